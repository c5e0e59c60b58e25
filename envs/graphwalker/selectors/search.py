"""GraphWalker's search over a patient graph (Algorithm 1; Appendix J for the lazy form).

The frontier starts with anchors. Each step takes the candidate v that lowers H(x | S) most, adds it to S, and adds its
neighbours to the frontier; it ends with K examples, or when nothing gains (early stop).

lazy    A gain that was measured for a smaller S is taken for an upper bound (diminishing gains). New candidates of a
        step are measured together; then whoever has the highest number is measured again until that one is fresh. A
        gain carries the size of S it was measured for, so none is measured twice, and there is no expansion after the
        last pick. Under diminishing gains the picks are those of `greedy`.
greedy  Every candidate is measured at every step (Algorithm 1 as printed): the reference.
single  Ablation "w/o greedy & frontier expansion": each candidate is measured alone, the K best that gain are taken.

most: sets that may be measured. The nearest candidates are measured first where neighbours come in that order; each
pick opens its share of what is left, so that later picks have theirs, and a gain that can no more be measured for the
present S is passed over: what is picked always gained what is recorded.

owner: the subject of a row. Rows of a subject who is in S already leave the frontier: the paper's nodes are patients,
each with one record, and a pool may hold several stays, or hours, of one patient.

Equal gains are decided by the lower row. Values are rounded to 1e-6 nats first: which other prompts share a batch
changes the last bits of a score.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Generator, Iterable, Sequence

from ghar.envs.graphwalker.selectors.protocol import Selection, Shots, WalkStep

DIGITS = 6
Measure = Generator[tuple[Shots, ...], Sequence[float], Selection]  # yields sets, is resumed with H(x | S) of each
Neighbours = Callable[[int], Iterable[int]]
Owner = Callable[[int], int]


def itself(row: int) -> int:
    """`owner` of rows that are each of another subject."""
    return row


def lazy(
    anchors: Sequence[int],
    neighbours: Neighbours,
    budget: int,
    early_stop: bool = True,
    most: int | None = None,
    owner: Owner = itself,
) -> Measure:
    """Lazy greedy search. `neighbours` gives rows that may be picked; selected ones are left out here."""
    most = sys.maxsize if most is None else most
    anchors = _distinct(anchors)[: most - 1]
    values = yield ((), *((row,) for row in anchors))
    scored, current = len(anchors) + 1, round(values[0], DIGITS)
    queue = [(-gain_of(current, value), row, 0) for row, value in zip(anchors, values[1:], strict=True)]
    heapq.heapify(queue)
    shots: Shots = ()
    steps: list[WalkStep] = []
    seen, picked = set(anchors), set[int]()
    while queue and len(shots) < budget:
        bound, row, size = queue[0]
        if early_stop and bound >= 0:  # nothing below an upper bound of 0 can gain
            break
        if size < len(shots) and scored == most:
            heapq.heappop(queue)
            continue
        if size < len(shots):
            [value] = yield ((*shots, row),)
            scored += 1
            heapq.heapreplace(queue, (-gain_of(current, value), row, len(shots)))
            continue
        steps.append(WalkStep(row, -bound, tuple(sorted(row for _, row, _ in queue))))
        heapq.heappop(queue)
        shots, current, picked = (*shots, row), round(current + bound, DIGITS), {*picked, owner(row)}
        queue = [entry for entry in queue if owner(entry[1]) not in picked]
        heapq.heapify(queue)
        new = (other for other in _distinct(neighbours(row)) if other not in seen and owner(other) not in picked)
        fresh = list(new) if len(shots) < budget else []
        fresh = fresh[: (most - scored) // (1 + budget - len(shots))]
        if fresh:
            seen.update(fresh)
            values = yield tuple((*shots, other) for other in fresh)
            scored += len(fresh)
            for other, value in zip(fresh, values, strict=True):
                heapq.heappush(queue, (-gain_of(current, value), other, len(shots)))
    return _selection(anchors, steps, scored)


def greedy(
    anchors: Sequence[int],
    neighbours: Neighbours,
    budget: int,
    early_stop: bool = True,
    most: int | None = None,
    owner: Owner = itself,
) -> Measure:
    """Full greedy search, line by line Algorithm 1; within `most` it measures those that came first."""
    most = sys.maxsize if most is None else most
    anchors = _distinct(anchors)
    [current] = yield ((),)
    current, scored = round(current, DIGITS), 1
    frontier, shots, steps = dict.fromkeys(anchors), (), []
    while len(shots) < budget and frontier and scored < most:
        rows = sorted([*frontier][: max(1, (most - scored) // (budget - len(shots)))])
        values = yield tuple((*shots, row) for row in rows)
        scored += len(rows)
        gain, row = max(((gain_of(current, value), -row) for row, value in zip(rows, values, strict=True)))
        if early_stop and gain <= 0:
            break
        steps.append(WalkStep(-row, gain, tuple(rows)))
        shots, current = (*shots, -row), round(current - gain, DIGITS)
        picked = {owner(other) for other in shots}
        frontier = {row: None for row in (*frontier, *neighbours(-row)) if owner(row) not in picked}
    return _selection(anchors, steps, scored)


def single(
    candidates: Sequence[int],
    budget: int,
    early_stop: bool = True,
    most: int | None = None,
    owner: Owner = itself,
) -> Measure:
    """The candidates with the highest gain of their own; their recorded gains do not add up."""
    rows = _distinct(candidates)[: None if most is None else most - 1]
    values = yield ((), *((row,) for row in rows))
    current = round(values[0], DIGITS)
    ranked = sorted((-gain_of(current, value), row) for row, value in zip(rows, values[1:], strict=True))
    firsts: dict[int, tuple[int, float]] = {}
    for loss, row in ranked:
        firsts.setdefault(owner(row), (row, -loss))
    taken = [(row, gain) for row, gain in [*firsts.values()][:budget] if gain > 0 or not early_stop]
    steps = [WalkStep(row, gain, tuple(sorted(rows))) for row, gain in taken]
    return _selection(rows, steps, len(rows) + 1)


def without_stamps(anchors: Sequence[int], neighbours: Neighbours, budget: int) -> Measure:
    """The lazy form as it is usually released, for counting: the best candidate is measured again whenever it is
    popped, fresh or not, and the frontier grows after the last pick too. Picks are those of `lazy`."""
    anchors = _distinct(anchors)
    values = yield ((), *((row,) for row in anchors))
    scored, current = len(anchors) + 1, round(values[0], DIGITS)
    queue = [(-gain_of(current, value), row) for row, value in zip(anchors, values[1:], strict=True)]
    heapq.heapify(queue)
    shots: Shots = ()
    steps: list[WalkStep] = []
    seen = set(anchors)
    while queue and len(shots) < budget:
        _, row = heapq.heappop(queue)
        [value] = yield ((*shots, row),)
        scored += 1
        key = (-gain_of(current, value), row)
        if queue and key > queue[0]:
            heapq.heappush(queue, key)
            continue
        if key[0] >= 0:
            break
        steps.append(WalkStep(row, -key[0], tuple(sorted([row, *(other for _, other in queue)]))))
        shots, current = (*shots, row), round(current + key[0], DIGITS)
        fresh = [other for other in _distinct(neighbours(row)) if other not in seen]
        seen.update(fresh)
        values = yield tuple((*shots, other) for other in fresh)
        scored += len(fresh)
        for other, value in zip(fresh, values, strict=True):
            heapq.heappush(queue, (-gain_of(current, value), other))
    return _selection(anchors, steps, scored)


def gain_of(current: float, value: float) -> float:
    """What H(x | S) falls by, rounded as all searches round it."""
    return round(current - round(value, DIGITS), DIGITS)


def _distinct(rows: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(int(row) for row in rows))


def _selection(anchors: Shots, steps: Sequence[WalkStep], scored: int) -> Selection:
    return Selection(
        tuple(step.row for step in steps), tuple(step.gain for step in steps), scored, anchors, tuple(steps)
    )
