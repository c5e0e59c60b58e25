"""Train, validation and test sets by patient, always."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ghar.data.cohort import Sample
from ghar.errors import BadInput


@dataclass(frozen=True)
class Splits:
    """Samples of disjoint patients, in the order they came in."""

    train: tuple[Sample, ...]
    valid: tuple[Sample, ...]
    test: tuple[Sample, ...]


def split_by_patient(
    samples: Sequence[Sample], ratios: tuple[float, float, float] = (0.6, 0.2, 0.2), seed: int = 0
) -> Splits:
    """Shuffle the patients and cut them by `ratios` (default 6:2:2, GHAR); shares are of patients, not of samples.

    Depends on the set of patients and the seed only, not on the order of the samples. Raises BadInput for ratios that
    are not three positive shares of 1, and for a split that would be empty.
    """
    if len(ratios) != 3 or min(ratios) <= 0 or abs(sum(ratios) - 1) > 1e-6:
        raise BadInput(f"Split ratios {ratios} are not three positive shares that add up to 1: correct them.")
    patients = np.array(sorted({sample.subject_id for sample in samples}), dtype=np.int64)
    np.random.default_rng(np.random.SeedSequence(seed)).shuffle(patients)
    cuts = np.round(np.cumsum(ratios[:2]) * len(patients)).astype(int)
    groups = [set(part.tolist()) for part in np.split(patients, cuts)]
    if not all(groups):
        sizes = "/".join(str(len(group)) for group in groups)
        raise BadInput(f"{len(patients)} patients cut by {ratios} leave an empty split ({sizes}): use more patients.")
    return Splits(*(tuple(sample for sample in samples if sample.subject_id in group) for group in groups))
