"""Bringing the cost terms (reason, path, relevance) to one scale, as Eq. 8's "on the same scale" asks for.

The paper does not say how. Three ways, chosen by `RewardSpec.normalise`; orm and rank keep their own scale in all:

range (default): what a cost comes to over an episode is mapped from its known bounds onto [-1, 0], 0 being the best
    value that the term can take: a cost that each retrieval has (path, relevance) counts 1 / max_iterations of that. A
    retrieval can then at best cost nothing. With the raw values a good retrieval earns up to max_paths + 2 and a step
    without one earns 0, so that the policy learns to retrieve for the sake of retrieving, whatever the patient needs;
    were each retrieval mapped onto [-1, 0] by itself, three of them would cost as much as a right answer earns, since
    no summary reaches the upper bound of relevance, and the policy would learn to stop after the first.
running: (x - mean) / std, with mean and deviation of everything observed in training so far. Steps without retrieval
    have no path or relevance and get 0, the average retrieval's value.
none: the literal sum of Eqs. 8 and 12.
"""

import math
from collections.abc import Iterable, Mapping

COSTS = ("reason", "path", "relevance")
EVERY_STEP = ("path", "relevance")  # arrive once a retrieval, the other once an episode


def bounds(length: int, max_iterations: int, max_paths: int) -> dict[str, tuple[float, float]]:
    """(worst, best) raw value of each cost term: 1 to max_iterations steps, at most max_paths ids, similarities."""
    return {
        "reason": (1.0 - max_iterations / length, 1.0 - 1.0 / length),
        "path": (-0.5 * max_paths, float(max_paths)),
        "relevance": (0.0, 2.0),
    }


def to_range(value: float, worst: float, best: float) -> float:
    """Map [worst, best] onto [-1, 0]; what lies outside (a reply with too many ids) counts as the nearer end."""
    return min(0.0, max(-1.0, (value - best) / (best - worst))) if best > worst else 0.0


class RunningNormaliser:
    """Running mean and standard deviation per cost term (Welford's update); part of a checkpoint."""

    def __init__(self) -> None:
        self._moments = {term: (0, 0.0, 0.0) for term in COSTS}

    def observe(self, values: Iterable[tuple[str, float]]) -> None:
        """Take in (term, raw value) pairs of training episodes, before they are scored."""
        for term, value in values:
            count, mean, squares = self._moments[term]
            count += 1
            shift = value - mean
            mean += shift / count
            self._moments[term] = (count, mean, squares + shift * (value - mean))

    def __call__(self, term: str, value: float) -> float:
        """(value - mean) / std of `term`; the deviation counts as 1 until two different values have been observed."""
        count, mean, squares = self._moments[term]
        return (value - mean) / (math.sqrt(squares / count) if squares > 0.0 else 1.0)

    def state_dict(self) -> dict[str, list[float]]:
        """Count, mean and sum of squared deviations per term, plain numbers that JSON can hold."""
        return {term: list(moments) for term, moments in self._moments.items()}

    def load_state_dict(self, state: Mapping[str, Iterable[float]]) -> None:
        """Continue from `state_dict`'s numbers."""
        for term in COSTS:
            count, mean, squares = state[term]
            self._moments[term] = (int(count), float(mean), float(squares))
