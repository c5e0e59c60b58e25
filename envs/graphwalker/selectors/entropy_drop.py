"""Entropy drop: by how much a selector's examples lower the entropy of a patient's text (GraphWalker, Appendix F,
Eqs. 13 and 14)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from ghar.envs.graphwalker.selectors.driver import Scorer, drive
from ghar.envs.graphwalker.selectors.protocol import Ask, Entropy, Patient, Shots
from ghar.envs.graphwalker.selectors.search import gain_of


def entropy_drops(chosen: Sequence[tuple[Patient, Shots]], scorer: Scorer, in_flight: int) -> list[float]:
    """Compute H(x | no example) - H(x | S) of each patient x and its examples S, in nats a token.

    Both are cross-entropies of the patient's own text, as the walk measures them. At most `in_flight` patients at once.
    """
    return drive([partial(_drop, patient, shots) for patient, shots in chosen], scorer, in_flight)


def _drop(patient: Patient, shots: Shots) -> Generator[Ask, Any, float]:
    without, with_examples = yield Entropy(patient, ((), shots))
    return gain_of(without, with_examples)
