"""The ward round: the best policy's worth against play, what an episode earns, and when a goal counts as reached."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import ward, ward_round
from ghar.data.tasks.splits import Splits
from ghar.envs.records import Records
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.system import Variant, build
from ghar.episode import Act, Episode, Retrieve
from ghar.launch.entry import load
from ghar.llm.policy import FunctionPolicy

pytestmark = pytest.mark.slow

PATIENTS = ward.patients(7, "test")
CORPUS = ward.Ward(Splits((), (), PATIENTS))


def played(rule, cases) -> list[Episode]:  # type: ignore[no-untyped-def]
    jobs = [EpisodeJob(c.sample_id, 0, lambda c=c: ward.episode(c, Variant("rule")), False) for c in cases]
    return rollout(jobs, {"round": FunctionPolicy(rule)}, CORPUS, seed=0, in_flight=256)


def earned(rule, cases=PATIENTS) -> np.ndarray:  # type: ignore[no-untyped-def]
    return np.array([ward.reward(e, c).total for e, c in zip(played(rule, cases), cases, strict=True)])


def test_the_best_policy_earns_what_its_worth_says_and_more_than_teacher_and_never_asking() -> None:
    best = earned(ward.best)
    opened = [(c.reads.stake, frozenset(name for name, _ in c.reads.findings)) for c in PATIENTS]
    worth = np.array([ward.worth(stake, names, 0, 0, ward.LIMIT)[0] for stake, names in opened])
    apart = best - worth
    assert abs(apart.mean()) < 4 * apart.std() / math.sqrt(len(apart))
    assert best.mean() > earned(ward.wanderer).mean() > 0
    assert best.mean() > earned(ward.at_once).mean()


def slow_worth(stake: int, names: tuple[str, ...], requests: int) -> float:
    """By listing what all findings may be: no policy is worth more than knowing them for nothing, and with no request
    left the likelier answer is all there is."""
    highs = [sum(choice) for choice in np.ndindex(*(2,) * len(names))]
    unstable = float(np.mean([high >= ward.NEEDED for high in highs]))
    return stake * max(unstable, 1 - unstable) if requests == 0 else float(stake)


@given(
    st.sampled_from(ward.STAKES),
    st.sampled_from(list(combinations(ward.SOURCE_OF, ward.OPEN))),
    st.integers(0, ward.LIMIT - 1),
)
def test_worth_grows_with_requests_between_answering_at_once_and_knowing_all(
    stake: int, names: tuple[str, ...], requests: int
) -> None:
    least, most = slow_worth(stake, names, 0), slow_worth(stake, names, 1)
    now, more = (ward.worth(stake, frozenset(names), 0, 0, n)[0] for n in (requests, requests + 1))
    assert least - 1e-9 <= now <= more + 1e-9 <= most + 1e-9
    assert ward.worth(stake, frozenset(names), 0, 0, 0) == (pytest.approx(least), "answer")


def test_an_episode_earns_its_stake_less_its_requests_turn_by_turn() -> None:
    for case, done in zip(PATIENTS[:200], played(ward.wanderer, PATIENTS[:200]), strict=True):
        found = ward.reward(done, case)
        asked = sum(turn.role == "move" and turn.completion.text != "answer" for turn in done.turns)
        right = done.prediction.label == case.label
        assert found.total == pytest.approx(case.reads.stake * right - ward.PRICE * asked)
        assert sum(sum(turn.values()) for turn in found.per_turn) == pytest.approx(found.total)
        assert asked <= ward.LIMIT and len(found.per_turn) == len(done.turns)


def test_a_source_that_is_asked_again_gives_its_next_answer() -> None:
    case = PATIENTS[0]
    name, high = case.reads.findings[0]
    source = ward.SOURCE_OF[name]
    wanted = [
        f"{name} {'high' if high else 'low'}" if comes else "silent"
        for comes in case.reads.answers[list(ward.SILENT).index(source)]
    ]
    requests = [Retrieve(f"{case.sample_id} {source} {n}", (0,), 1) for n in range(ward.LIMIT)]
    assert [evidence.text for evidence in CORPUS.retrieve(requests)] == wanted
    others = set(ward.SILENT) - {ward.SOURCE_OF[finding] for finding, _ in case.reads.findings}
    of_no_use = [Retrieve(f"{case.sample_id} {other} {n}", (0,), 1) for other in others for n in range(ward.LIMIT)]
    assert {evidence.text for evidence in CORPUS.retrieve(of_no_use)} <= {"silent", "unknown"}


def test_neither_the_record_nor_the_stake_tells_the_label_and_seeds_are_worlds() -> None:
    labels = np.array([case.label for case in PATIENTS])
    assert abs(labels.mean() - 0.5) < 4 * 0.5 / math.sqrt(len(labels))
    for stake in ward.STAKES:
        own = labels[[case.reads.stake == stake for case in PATIENTS]]
        assert abs(own.mean() - 0.5) < 4 * 0.5 / math.sqrt(len(own))
    assert ward.patients(7, "test") == PATIENTS != ward.patients(8, "test")
    assert {c.reads.findings for c in ward.patients(7, "valid")} != {c.reads.findings for c in PATIENTS[:400]}


def test_the_world_is_a_system_that_a_configuration_names() -> None:
    config = load(["system=benchmarks.ward", "task=read", "data.patients=60", "seed=7"])
    system = build(Records(config))
    assert system.cases.test == PATIENTS and system.main == "ward" and system.training.teacher in system.fixed
    assert set(" ".join(system.training.texts()).split()) >= set(" ".join(c.text for c in PATIENTS).split())


def test_a_decision_shows_what_is_known_and_no_more() -> None:
    seen: list[Act] = []

    def look(act: Act) -> str:
        seen.append(act)
        return ward.wanderer(act)

    played(look, PATIENTS[:20])
    for act in seen:
        state: ward.Round = act.facts["round"]
        assert state.high + state.low + len(state.open) == ward.OPEN
        assert act.prompt.endswith(f"{state.tally} {'so' if act.role == 'predict' else 'next'} :")


@pytest.mark.parametrize(
    ("curve", "found"),
    [
        ([(0, 1.0), (2, 3.0), (4, 2.0)], (2 * ward_round.EPISODES, False)),
        ([(0, 1.0), (2, 1.0)], (ward_round.UPDATES * ward_round.EPISODES, True)),
        ([(0, 5.0)], (ward_round.EVERY * ward_round.EPISODES, False)),  # no arm has played fewer
    ],
)
def test_the_goal_counts_from_the_first_validation_that_comes_to_it(
    curve: list[tuple[int, float]], found: tuple[int, bool]
) -> None:
    assert ward_round.until(curve, 2.5) == found


def test_fewer_episodes_are_the_mean_of_logarithms_with_students_t() -> None:
    own = dict.fromkeys(("test", "sft", "wanderer", "best", "at_once", "explained"), 1.0) | {"cut": False, "curve": []}
    episodes = {"mappo": 50, "rloo": 100, "reinforce_pp": 50}
    seeds = [{"goal": 1.5} | {name: own | {"episodes": n * k} for name, n in episodes.items()} for k in (1, 2, 4)]
    found = ward_round.numbers(seeds)["fewer than"]
    assert found["rloo"] == {**dict.fromkeys(("mean", "low", "high"), pytest.approx(0.5)), "seeds": 3}
    assert found["reinforce_pp"]["mean"] == pytest.approx(0.0)
