"""The search: lazy is greedy under diminishing gains, records what is true, keeps its budget, and asks for little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.envs.graphwalker.selectors.search import greedy, lazy, single, without_stamps
from tests.envs.graphwalker.selectors.walks import coverage, links, play, soft_coverage

SEEDS, BUDGETS = st.integers(0, 10**6), st.integers(1, 5)


@given(SEEDS, BUDGETS, st.sampled_from([coverage, soft_coverage]))
def test_lazy_picks_what_greedy_picks_under_diminishing_gains(seed: int, budget: int, make) -> None:
    rng = np.random.default_rng(seed)
    entropy, near = make(rng, 25), links(rng, 25, 4)
    anchors = rng.integers(0, 25, 5).tolist()
    quick, asked = play(lazy(anchors, near.__getitem__, budget), entropy)
    slow, _ = play(greedy(anchors, near.__getitem__, budget), entropy)
    plain, _ = play(without_stamps(anchors, near.__getitem__, budget), entropy)
    assert quick.shots == slow.shots == plain.shots
    assert quick.gains == pytest.approx(slow.gains, abs=1e-9)
    assert quick.scored <= slow.scored and quick.scored <= plain.scored
    measured = [shots for batch in asked for shots in batch]
    assert len(measured) == len(set(measured)) == quick.scored, "a set was measured twice"


@given(SEEDS, BUDGETS, st.booleans(), st.sampled_from([lazy, greedy]))
def test_a_walk_keeps_its_rules_whatever_the_gains(seed: int, budget: int, early_stop: bool, search) -> None:
    rng = np.random.default_rng(seed)
    near, noise = links(rng, 25, 4), {}
    anchors = rng.integers(0, 25, 5).tolist()

    def entropy(shots: tuple[int, ...]) -> float:
        return noise.setdefault(shots, rng.random())

    found, _ = play(search(anchors, near.__getitem__, budget, early_stop), entropy)
    assert len(set(found.shots)) == len(found.shots) <= budget
    reachable = set(anchors)
    for i, (row, gain) in enumerate(zip(found.shots, found.gains, strict=True)):
        assert row in reachable and row not in found.shots[:i]
        assert gain == pytest.approx(entropy(found.shots[:i]) - entropy((*found.shots[:i], row)), abs=3e-6)
        assert gain > 0 or not early_stop
        reachable |= set(near[row])
    if not early_stop:
        assert len(found.shots) == min(budget, len(found.shots) + len(reachable - set(found.shots)))


def test_all_candidates_of_a_step_come_in_one_batch() -> None:
    rng = np.random.default_rng(0)
    _, asked = play(lazy(range(9), links(rng, 40, 8).__getitem__, 3), soft_coverage(rng, 40))
    assert asked[0] == ((), *((row,) for row in range(9)))
    assert [len(batch) for batch in asked if len(batch) > 1 and len(batch[0]) > 0]


def test_without_search_candidates_are_measured_alone() -> None:
    entropy = {(): 1.0, (4,): 0.5, (2,): 0.7, (7,): 0.5, (1,): 1.2}
    found, asked = play(single([7, 4, 2, 1, 4], 3), entropy.__getitem__)
    assert found.shots == (4, 7, 2) and found.gains == (0.5, 0.5, 0.3) and len(asked) == 1
    assert play(single([1], 3), entropy.__getitem__)[0].shots == ()
    assert play(single([1], 3, early_stop=False), entropy.__getitem__)[0].gains == (-0.2,)


def test_a_tie_goes_to_the_lower_row_and_rounding_hides_the_last_bits() -> None:
    def entropy(shots: tuple[int, ...]) -> float:
        return 1.0 - 0.25 * len(shots) + (1e-9 if 3 in shots else 0.0)

    for search in (lazy, greedy):
        found, _ = play(search([9, 3, 5], lambda row: [], 2), entropy)
        assert found.shots == (3, 5)


def test_nothing_gains_nothing_is_shown() -> None:
    for search in (lazy, greedy):
        found, _ = play(search([1, 2], lambda row: [3], 3), lambda shots: float(len(shots)))
        assert found.shots == () and found.scored == 3
