"""Parts of a set of samples: few shots of each class, a number of patients, groups by how rare the diseases are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import polars as pl

from ghar.data.cohort import Sample
from ghar.data.tasks.splits import S
from ghar.data.visit_codes import NEVER
from ghar.errors import BadInput

SHOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
GROUPS = ("G1", "G2", "G3")


def few_shot(samples: Sequence[S], shots: int, seed: int = 0) -> list[S]:
    """`shots` samples of each class, in the order they came in; a smaller draw is part of a larger one of that seed.

    EHRSHOT and EHR-RAG use 1, 2, 4, ..., 512 (`SHOTS`). Raises BadInput for a class with too few samples.
    """
    if shots < 1:
        raise BadInput(f"shots={shots} is no number of samples: choose 1 or more.")
    drawn: list[int] = []
    for label in sorted({sample.label for sample in samples}):
        of_class = [i for i, sample in enumerate(samples) if sample.label == label]
        if len(of_class) < shots:
            raise BadInput(f"Class {label} has {len(of_class)} samples, not {shots}: choose fewer shots.")
        rng = np.random.default_rng(np.random.SeedSequence([seed, label]))
        drawn += rng.permutation(of_class)[:shots].tolist()
    return [samples[i] for i in sorted(drawn)]


def sample_patients(samples: Sequence[S], patients: int, seed: int = 0) -> list[S]:
    """All samples of so many random patients (2,000 of each data set: GraphWalker, Appendix B). BadInput if too few."""
    everyone = np.array(sorted({sample.subject_id for sample in samples}), dtype=np.int64)
    if patients > len(everyone) or patients < 1:
        raise BadInput(
            f"{patients} of {len(everyone)} patients cannot be drawn: choose task.patients from 1 to {len(everyone)}."
        )
    chosen = set(np.random.default_rng(np.random.SeedSequence(seed)).permutation(everyone)[:patients].tolist())
    return [sample for sample in samples if sample.subject_id in chosen]


def last_of_patients(samples: Sequence[S], visits: Mapping[int, int]) -> list[S]:
    """The last sample of each patient with two or more visits (GraphWalker, Section 5), in the order they came in.

    visits: patient -> number of visits, as `Cohort.visits` counts them; samples are by patient and time.
    """
    last = {sample.subject_id: i for i, sample in enumerate(samples) if visits[sample.subject_id] >= 2}
    return [samples[i] for i in sorted(last.values())]


def known_by(samples: Sequence[Sample]) -> np.ndarray:
    """int64 [n], microseconds: when each outcome was known at the latest, `NEVER` where no one knows.

    With data.earlier a training sample may be shown to those alone who are predicted then or later (trap 8).
    Times of different patients can be compared as far as the source shifts them alike; MIMIC shifts each patient on its
    own, so there the cut by time says little.
    """
    times = pl.Series([sample.outcome_time for sample in samples], dtype=pl.Datetime("us"))
    return times.to_physical().fill_null(NEVER).to_numpy()


def micros(time: datetime) -> int:
    """A time as `known_by` counts it."""
    return pl.Series([time], dtype=pl.Datetime("us")).to_physical().item()


def rarity_groups(train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Samples by the rarity of their diseases, rarest first: G1 [0, 1/3), G2 [1/3, 2/3), G3 [2/3, 1] (GHAR, Fig. 7).

    The paper gives the intervals and not what they are of. Here: a disease is as common as the share of the training
    patients who have it (0 for one they do not have); a sample is as common as its shown diagnoses on average; and the
    intervals are of the samples in that order, equally common ones (at their mean rank) in one group. Samples that
    show no diagnosis are in no group.
    """
    patients: Counter[str] = Counter()
    patient_diagnoses: dict[int, set[str]] = {}
    for sample in train:
        patient_diagnoses.setdefault(sample.subject_id, set()).update(_diagnoses(sample))
    for diagnoses in patient_diagnoses.values():
        patients.update(diagnoses)
    kept = [sample for sample in samples if _diagnoses(sample)]
    # Whole counts over their number, so that equal means are equal numbers.
    means = [sum(patients[code] for code in _diagnoses(sample)) / len(_diagnoses(sample)) for sample in kept]
    _, place, count = np.unique(np.array(means), return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count + 1) / 2)[place] if kept else np.zeros(0)  # mean rank among equals, from 0
    group = np.minimum((rank + 0.5) / max(len(kept), 1) * 3, 2.5).astype(int)
    return {name: [s for s, own in zip(kept, group, strict=True) if own == i] for i, name in enumerate(GROUPS)}


def _diagnoses(sample: Sample) -> set[str]:
    return {code for visit in sample.history for code in visit.diagnoses}
