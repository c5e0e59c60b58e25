"""What every registered environment pays, onto docs/environments.md and into envs/scores.json.

Each id plays the test part of its generated patients in its default view: the best constant reply, no reply, random
legal actions, and a scripted policy where the room has one that needs no run. Range: the least and the most that any of
them earned, and what the outcome alone can pay. Intervals are over patients.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ghar.llm.policy import FunctionPolicy

ROOT = Path(__file__).resolve().parents[1]
PAGE, SCORES = ROOT / "docs" / "environments.md", ROOT / "envs" / "scores.json"
BEGIN, END = "<!-- scores -->", "<!-- /scores -->"
REPLIES = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "no", "yes", "answer: 0", "answer: 1", "A", "A B", "A B C")
LONGEST = 200  # distinct cases that are played
Choose = Callable[[Any, int, np.random.Generator], Any]  # play, place, generator -> action


def environments(share: float, page: Path = PAGE, scores: Path = SCORES) -> dict[str, Any]:
    """Measure every id and write page and table. share: of `LONGEST` cases."""
    from ghar.envs.register import GAMES

    results = {}
    for name in GAMES:
        results[f"ghar/{name}-v0"] = measured(name, max(4, round(LONGEST * share)))
        print(json.dumps({name: results[f"ghar/{name}-v0"]}), flush=True)
    scores.write_text(json.dumps(results, indent=1) + "\n")
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}")
    return results


def measured(name: str, count: int) -> dict[str, Any]:
    """{"reward": {"low", "high"}, "cases", "scores": {policy: [mean, low, high]}} of one id."""
    from ghar.envs.register import GAMES

    game: Any = GAMES[name](split="test")
    weights: dict[int, int] = {}
    for case in game.scene.cases:
        weights[id(case)] = weights.get(id(case), 0) + 1
    cases = list({id(case): case for case in game.scene.cases}.values())
    cases = [cases[i] for i in np.random.default_rng(0).permutation(len(cases))[:count]]
    every = [weights[id(case)] for case in cases]
    earned = {who: [play(game, case, choose) for case in cases] for who, choose in policies(name, game).items()}
    constants = {who: own for who, own in earned.items() if who.startswith("reply ") or who.startswith("action ")}
    best = max(constants, key=lambda who: float(np.average(constants[who], weights=every)))
    kept = {f"best constant: {best}": constants[best]} | {w: own for w, own in earned.items() if w not in constants}
    return {
        "cases": len(cases), "patients": len({getattr(case, "subject_id", case.sample_id) for case in cases}),
        "reward": {"low": round(min(map(min, earned.values())), 3), "high": round(max(map(max, earned.values())), 3)},
        "scores": {who: interval(own, every, cases) for who, own in kept.items()},
    }  # fmt: skip


def policies(name: str, game: Any) -> dict[str, Choose]:
    """Policies by name."""
    from ghar.envs.views.games import TextGame

    baselines: dict[str, Choose] = {}
    if isinstance(game, TextGame):
        for reply in REPLIES:
            baselines[f"reply {reply!r}"] = lambda play, place, rng, reply=reply: reply
        baselines["no reply"] = lambda play, place, rng: ""
        baselines["random legal"] = _random_text
    else:
        baselines["action 0"] = lambda play, place, rng: int(play.observe(place)["action_mask"].argmax())
        baselines["action: the last allowed"] = lambda play, place, rng: int(_allowed(play, place)[-1])
        baselines["random legal"] = lambda play, place, rng: int(rng.choice(_allowed(play, place)))
    scripted = _scripted(name)
    if scripted is not None:
        baselines["scripted"] = lambda play, place, rng: scripted.answer([play.paused.acts[place]], [0])[0].text
    return baselines


def _scripted(name: str) -> Any:
    """The room's rule that knows what it needs from the prompt's own facts; None where a rule is fitted on a run."""
    if name == "GHAR":
        from ghar.envs.ghar.demo import demo_scene
        from ghar.envs.ghar.navigation import ExactTeacher
        from ghar.envs.ghar.teacher import NO_ERROR

        return ExactTeacher(demo_scene()[1], NO_ERROR)
    if name == "EXPRAG":
        from ghar.envs.exprag.rule import majority_of_experiences

        return FunctionPolicy(majority_of_experiences)
    return None


def _allowed(play: Any, place: int) -> np.ndarray:
    return np.flatnonzero(play.observe(place)["action_mask"])


def _random_text(play: Any, place: int, rng: np.random.Generator) -> str:
    act = play.paused.acts[place]
    return str(rng.choice(act.choices)) if act.choices else str(rng.choice(REPLIES))


def play(game: Any, case: Any, choose: Choose) -> float:
    """The reward of one episode, all agents together."""
    from ghar.envs.views.games import earned

    rng, one = np.random.default_rng(0), game.start(case, 0)
    while waiting := one.paused.waiting():
        one.act(waiting[0][1], choose(one, waiting[0][1], rng))
    return earned(one)


def interval(values: list[float], weights: list[int], cases: list[Any]) -> list[float]:
    """Weighted mean with a 95% interval that draws patients."""
    from ghar.metrics.bootstrap import ratio_interval

    who = [getattr(case, "subject_id", case.sample_id) for case in cases]
    weighted = [value * weight for value, weight in zip(values, weights, strict=True)]
    ratio = ratio_interval(weighted, weights, patients=who)
    assert ratio is not None
    return [round(value, 3) for value in ratio.as_list()]


def table(results: Mapping[str, Any]) -> str:
    """Markdown, a row an id."""
    names = ("best constant", "no reply", "random legal", "scripted")
    heads = ("id", "lowest, highest reward seen", *names, "cases, patients")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, own in results.items():
        cells = []
        for column in names:
            who = next((who for who in own["scores"] if who.startswith(column)), None)
            text = "" if who is None else "{:.2f} [{:.2f}, {:.2f}]".format(*own["scores"][who])
            cells.append(text + (f" ({who.partition(': ')[2]})" if column == "best constant" and who else ""))
        low, high = own["reward"]["low"], own["reward"]["high"]
        lines.append(f"| `{name}` | {low:.2f}, {high:.2f} | {' | '.join(cells)} | {own['cases']}, {own['patients']} |")
    return "\n".join(lines)
