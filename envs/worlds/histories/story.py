"""The causal story of the world of long histories, and the best accuracy for every subset of its evidence.

Every patient has a storage disease of one of twelve kinds. It becomes critical when it is driven and nothing has ended
it. What tells so stands in four places of a record of thousands of events:

    onset         a row of the first months names the kind; half of the records call the disease by another name
    trigger       mid-history a pump of the patient's own kind was exchanged (then the disease is driven). Everyone has
                  six exchanges of six kinds, so a row says something only to someone who knows the kind from the onset
    slope         the last five values of one measurement rise (driven, too) or fall. Their level says nothing, nor do
                  the older values, which rise and fall by themselves
    exculpating   mid-history a graft has ended the disease: half of all patients, so half of those who were driven

    driven = trigger or slope;  critical = driven and not exculpated, turned round in a share NOISE of patients

The three switches are drawn apart, and nothing else in a record depends on them or on the label.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, combinations, product

import numpy as np

TRIGGER, SLOPE, EXCULPATED, NOISE = 0.5, 0.4, 0.5, 0.04  # shares of patients
EVIDENCE = ("onset", "trigger", "slope", "exculpating")
KINDS = (
    "Kestrel", "Osprey", "Merlin", "Harrier", "Goshawk", "Condor", "Caracara", "Buzzard", "Peregrine", "Lanner",
    "Saker", "Hobby",
)  # fmt: skip


def critical(trigger: bool, slope: bool, exculpated: bool) -> float:
    """The probability of the label 1."""
    return 1 - NOISE if (trigger or slope) and not exculpated else NOISE


def states() -> dict[tuple[bool, bool, bool], float]:
    """(trigger, slope, exculpated) -> its share of patients."""

    def share(chance: float, on: bool) -> float:
        return chance if on else 1 - chance

    both = (False, True)
    return {
        (one, two, three): share(TRIGGER, one) * share(SLOPE, two) * share(EXCULPATED, three)
        for one, two, three in product(both, both, both)
    }


def subsets() -> list[tuple[str, ...]]:
    """All subsets of the evidence, small ones first."""
    return list(chain.from_iterable(combinations(EVIDENCE, n) for n in range(len(EVIDENCE) + 1)))


def visible_switches(evidence: Iterable[str]) -> tuple[bool, bool, bool]:
    """Which switches some evidence reveals: the trigger only together with the onset."""
    some = set(evidence)
    return {"onset", "trigger"} <= some, "slope" in some, "exculpating" in some


def chance(state: tuple[bool, bool, bool], visible: tuple[bool, bool, bool]) -> float:
    """The probability of the label 1 to someone who knows some switches of a patient in `state`."""
    like = {
        other: share for other, share in states().items()
        if all(mine == theirs for mine, theirs, is_visible in zip(state, other, visible, strict=True) if is_visible)
    }  # fmt: skip
    return sum(share * critical(*other) for other, share in like.items()) / sum(like.values())


def ceilings(patients: Iterable[tuple[bool, bool, bool]] | None = None) -> dict[str, float]:
    """Best expected accuracy for every subset of the evidence, named "onset and trigger", ..., "nothing".

    patients: their true switches; None stands for the whole population.
    """
    if patients is None:
        weighed = states()
    else:
        counted: dict[tuple[bool, bool, bool], float] = {}
        for state in patients:
            counted[state] = counted.get(state, 0.0) + 1.0
        total = sum(counted.values())
        weighed = {state: n / total for state, n in counted.items()}
    accuracies = {}
    for evidence in subsets():
        visible = visible_switches(evidence)
        expected = [share * _right(state, visible) for state, share in weighed.items()]
        accuracies[" and ".join(evidence) or "nothing"] = float(np.sum(expected))
    return accuracies


def _right(state: tuple[bool, bool, bool], visible: tuple[bool, bool, bool]) -> float:
    """The probability that the best answer under `visible` is right for a patient in `state`."""
    answer, truth = chance(state, visible) > 0.5, critical(*state)
    return truth if answer else 1 - truth
