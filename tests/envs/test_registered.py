"""Every registered environment: Gymnasium's, PettingZoo's and our own checks, side by side, and mistakes of users."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

gymnasium = pytest.importorskip("gymnasium", reason="the views need the extra ray (gymnasium, pettingzoo)")

import numpy as np  # noqa: E402
from gymnasium.envs.registration import EnvSpec  # noqa: E402
from gymnasium.error import Error, InvalidAction, ResetNeeded  # noqa: E402
from gymnasium.utils.env_checker import check_env  # noqa: E402
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test  # noqa: E402

from ghar import envs  # noqa: E402
from ghar.envs.demo import ETA  # noqa: E402
from ghar.envs.register import GAMES  # noqa: E402
from ghar.envs.system import mark_of  # noqa: E402
from ghar.envs.views.pettingzoo_view import aec, parallel  # noqa: E402
from ghar.envs.views.spaces import Unicode  # noqa: E402
from tests.envs.test_pettingzoo_view import EXPECTED  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PAIR = {"agents": ("top", "low")}
TEXTS = [("GHAR", {}), ("GraphWalker", {"view": "text"}), ("EHRRAG", {}), ("EXPRAG", {}), ("KARE", {})]
TOKENS = [(name, {"view": "tokens"}) for name, _ in TEXTS]
NUMBERS = [("GraphWalker", {}), ("GraphWalker", {"measured": False}), ("Navigation", {}), ("Navigation", PAIR)]
ENCODED = TOKENS + NUMBERS
CYCLES = 100


def each(cases: list[tuple[str, dict[str, Any]]]) -> Any:
    names = ["-".join([name, *map(str, arguments.values())]) for name, arguments in cases]
    return pytest.mark.parametrize("name, arguments", cases, ids=names)


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registered")


@pytest.fixture(autouse=True)
def generated(demo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder where the demo world is made, once for all."""
    monkeypatch.chdir(demo_folder)
    yield


def make(name: str, arguments: dict[str, Any], render_mode: str | None = None) -> Any:
    return gymnasium.make(f"ghar.envs.register:ghar/{name}-v0", render_mode=render_mode, **arguments)


def test_every_system_is_registered_and_tested() -> None:
    assert {name for name, _ in TEXTS + ENCODED} == set(GAMES)
    assert {f"ghar/{name}-v0" for name in GAMES} <= set(gymnasium.registry)


def test_gymnasium_reads_no_entry_points() -> None:
    """So no package can register ids without an import; ids that name their module are what is left. Fails once a
    Gymnasium looks for plug-ins again: then declare one in setup.cfg."""
    sources = Path(gymnasium.__file__).parent.rglob("*.py")
    assert not [path for path in sources if "entry_points(" in path.read_text()]


@each(TEXTS + ENCODED)
def test_gymnasiums_checker_is_content(name: str, arguments: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(name, arguments, "ansi").unwrapped)


@each(TEXTS + ENCODED)
def test_pettingzoos_own_tests_pass(name: str, arguments: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """In the text view too, which users get first."""
    game = GAMES[name](**arguments)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(aec(game, "ansi"), num_cycles=CYCLES)
        parallel_api_test(parallel(game, "ansi"), num_cycles=CYCLES)
        seed_test(partial(aec, game), num_cycles=CYCLES)
        parallel_seed_test(partial(parallel, game), num_cycles=CYCLES)
    assert [str(w.message) for w in caught if not any(e in str(w.message) for e in EXPECTED)] == []


@each(TEXTS + ENCODED)
def test_it_keeps_the_promises_of_this_house(name: str, arguments: dict[str, Any]) -> None:
    envs.check(make(name, arguments), episodes=2)
    game = GAMES[name](**arguments)
    envs.check(aec(game), episodes=1)
    envs.check(parallel(game), episodes=1)


@each(TEXTS + ENCODED)
def test_environments_side_by_side_under_one_seed(name: str, arguments: dict[str, Any]) -> None:
    def play() -> list[Any]:
        several = gymnasium.make_vec(
            f"ghar.envs.register:ghar/{name}-v0", num_envs=3, vectorization_mode="sync", **arguments
        )
        observed, _ = several.reset(seed=1)
        seen, rewards = [observed], []
        for _ in range(12):
            texts = not isinstance(observed, dict)
            action: Any = ("0", "0", "0") if texts else observed["action_mask"].argmax(axis=1)
            observed, reward, *_ = several.step(action)
            seen.append(observed if texts else observed["observation"].copy())
            rewards.append(reward.tolist())
        several.close()
        return [[np.asarray(one).tolist() for one in seen[1:]], rewards]

    assert play() == play()


@each(TEXTS + ENCODED)
def test_an_episode_is_printed_readably(name: str, arguments: dict[str, Any]) -> None:
    env = make(name, arguments, "ansi")
    _, info = env.reset(seed=2)
    agent = info["agent"]
    env.action_space.seed(0)
    ended = False
    while not ended:
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        ended = terminated or truncated
    shown = env.render()
    assert shown.startswith("== ") and shown.endswith(" ==") and f"\n[{agent}: " in shown and "\n    > " in shown
    assert all(line.startswith(("== ", "[", "    ")) for line in shown.splitlines() if line)


@each(TEXTS + ENCODED)
def test_a_users_mistakes_in_gymnasium(name: str, arguments: dict[str, Any]) -> None:
    env = make(name, arguments).unwrapped
    texts = isinstance(env.observation_space, Unicode)
    with pytest.raises(ResetNeeded, match="reset"):
        env.step("0" if texts else 0)
    for seed in ("1", 1.5, -1):
        with pytest.raises(Error, match="Seed must be"):
            env.reset(seed=seed)
    seen, _ = env.reset(seed=0)
    wrong: list[Any] = [3, None, b"yes"] if texts else ["yes", None, 1.5, True, -1, 10**6]
    if not texts:
        wrong += [int(a) for a in np.flatnonzero(seen["action_mask"] == 0)[:1]]
    for action in wrong:
        with pytest.raises(InvalidAction):
            env.step(action)
    ended = False
    while not ended:
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        ended = terminated or truncated
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(env.action_space.sample())


@pytest.mark.parametrize("name", ["GHAR", "EHRRAG"])
def test_in_the_text_view_an_agent_with_nothing_to_decide_may_only_wait(name: str) -> None:
    env = parallel(GAMES[name]())
    seen, _ = env.reset(seed=0)
    (idle,) = set(env.agents) - set(env.decisions())
    (busy,) = env.decisions()
    drawn = {agent: {env.action_space(agent).sample() for _ in range(20)} for agent in (idle, busy)}
    assert seen[idle] == "" and drawn[idle] == {""} and drawn[busy] - {""}  # one of 33 draws is empty
    with pytest.raises(InvalidAction, match="may only wait"):
        env.step({busy: "no", idle: "x"})
    env.step({busy: "no", idle: ""})


@pytest.mark.parametrize("name", GAMES)
def test_an_id_can_be_written_down_and_made_again(name: str) -> None:
    env = make(name, {"split": "valid"})
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    assert again.spec == env.spec and repr(again.reset(seed=3)) == repr(env.reset(seed=3))


@pytest.mark.parametrize("name", GAMES)
def test_parts_of_the_cases_share_no_patient(name: str) -> None:
    who = {}
    for split in ("train", "valid", "test"):
        cases = GAMES[name](split=split).scene.cases
        who[split] = {getattr(case, "subject_id", case.sample_id) for case in cases}
    assert all(who.values()) and not who["train"] & who["test"] and not who["valid"] & (who["train"] | who["test"])
    with pytest.raises(ValueError, match="choose among train, valid, test"):
        GAMES[name](split="tset")


@pytest.mark.parametrize("name", GAMES)
def test_generated_patients_are_marked_as_open(name: str) -> None:
    """A case without a mark counts as credentialed, and verifiers may not be given its text."""
    game: Any = GAMES[name]()
    assert game.scene.cases and not any(map(mark_of, game.scene.cases))


@pytest.mark.parametrize("name", ["GHAR", "EHRRAG", "EXPRAG", "KARE"])
def test_constant_replies_earn_nothing(name: str) -> None:
    """Of the best of them over all cases of the test, by Gymnasium, in its default view."""
    env = make(name, {"split": "test"})
    cases = list({id(case): i for i, case in enumerate(env.unwrapped.game.scene.cases)}.values())
    weights = np.array([sum(c is env.unwrapped.game.scene.cases[i] for c in env.unwrapped.game.scene.cases)
                        for i in cases])  # fmt: skip
    for reply in ("", "0", "1", "5", "no", "yes", "answer: 1", "A", "A B"):
        earned = [played(env, reply, case) for case in cases]
        assert np.average(earned, weights=weights) < 0.15 * ETA, reply


def played(env: Any, reply: str, case: int) -> float:
    env.reset(seed=0, options={"case": case})
    total, ended = 0.0, False
    while not ended:
        _, reward, terminated, truncated, _ = env.step(reply)
        total, ended = total + float(reward), terminated or truncated
    return total


def test_most_patients_of_kare_are_shown_knowledge() -> None:
    env = make("KARE", {})
    prompts = [str(env.reset(options={"case": i})[0]) for i in range(len(env.unwrapped.game.scene.cases))]
    assert sum("known (none)" in prompt for prompt in prompts) < 0.1 * len(prompts) and len(prompts) > 200


@each(ENCODED)
def test_a_users_mistakes_in_pettingzoo(name: str, arguments: dict[str, Any]) -> None:
    game = GAMES[name](**arguments)
    env, side = aec(game), parallel(game)
    seen: Any
    with pytest.raises(AssertionError, match="reset"):
        env.step(0)
    with pytest.raises(AssertionError, match="reset"):
        side.step({})
    wrong: tuple[Any, ...] = ("1", 1.5, -1)
    for seed in wrong:
        for view in (env, side):
            with pytest.raises(Error, match="Seed must be"):
                view.reset(seed=seed)
    env.reset(seed=0)
    first, waiting = env.agent_selection, dict.fromkeys(env.agents, 0)
    seen, *_ = env.last()
    for action in ("yes", -1, 10**6):
        with pytest.raises(AssertionError):
            env.step(action)
    side.reset(seed=0)
    with pytest.raises(KeyError, match=first):
        side.step({})
    for outside in np.flatnonzero(seen["action_mask"] == 0)[:1]:
        with pytest.raises(InvalidAction, match="outside the action mask"):
            env.step(int(outside))
        with pytest.raises(InvalidAction, match="outside the action mask"):
            side.step({**waiting, first: int(outside)})
    while not any(env.terminations.values()):
        env.last()
        env.step(env.action_space(env.agent_selection).sample())
    with pytest.raises((ValueError, AssertionError)):
        env.step(0)  # of an agent that has ended: only None
    while env.agents:
        env.step(None)
    core: Any = env.unwrapped
    play = core.play
    env.step(0)  # as in all of PettingZoo, a warning and nothing else
    assert core.play is play and env.agents == []


def test_the_lines_of_the_readme_play_an_episode() -> None:
    (lines,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        if "gymnasium.make(" in block
    ]
    played: dict[str, Any] = {}
    exec(lines, played)
    assert played["done"] and "[retrieve]" in played["env"].render() and len(lines.splitlines()) <= 10
