"""Train, validation and test sets by patient, always: as the papers cut them, for any kind of sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from ghar.errors import BadInput


class Labelled(Protocol):
    """What every sample has: a patient and a label."""

    @property
    def subject_id(self) -> int: ...

    @property
    def label(self) -> int: ...


S = TypeVar("S", bound=Labelled)
T = TypeVar("T")


@dataclass(frozen=True)
class Splits(Generic[S]):
    """Samples of disjoint patients, in the order they came in.

    pool: further samples whose outcomes may be shown as examples, and which nothing is ever trained on.
    """

    train: tuple[S, ...]
    valid: tuple[S, ...]
    test: tuple[S, ...]
    pool: tuple[S, ...] = ()

    @property
    def known(self) -> tuple[S, ...]:
        """Samples whose outcomes may be shown as examples."""
        return (*self.train, *self.pool)

    def limited(self, train: int | None, valid: int | None, test: int | None, seed: int, block: int = 1) -> Splits[S]:
        """At most so many samples of each set, None for all: drawn, and kept in their order. A smaller limit keeps some
        of what a larger one keeps. The pool stays whole.

        The first ones would be of few hospitals: eICU's patients are numbered by hospital. block: so many neighbouring
        samples are balanced only together; a draw takes all of them while the limit lasts.
        """
        limits = (self.train, train), (self.valid, valid), (self.test, test)
        kept = [tuple(draw(part, most, seed, block)) for part, most in limits]
        return Splits(kept[0], kept[1], kept[2], self.pool)


def draw(samples: Sequence[T], most: int | None, seed: int, block: int = 1) -> list[T]:
    """At most so many samples, None for all, in their order, by blocks of so many neighbours.

    A smaller `most` draws some of what a larger one draws.
    """
    order = np.random.default_rng(seed).permutation(-(-len(samples) // block))
    places = [i for first in order * block for i in range(first, min(first + block, len(samples)))]
    return [samples[i] for i in sorted(places[:most])]


def split_by_patient(
    samples: Sequence[S],
    ratios: tuple[float, float, float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    everyone: Iterable[int] | None = None,
) -> Splits[S]:
    """Shuffle the patients and cut them by `ratios` (default 6:2:2, GHAR); shares are of patients, not of samples.

    Depends on the set of patients and the seed only, not on the order of the samples. KARE and GHAR's Section V-A use
    8:1:1. everyone: the patients that are shuffled, those of the samples by default; with all of a cohort, no patient
    is in train for one task and in test for another, which a test across tasks needs (train on READ, test on DEC: GHAR,
    Section V-C). Raises BadInput for ratios that are not three positive shares of 1, and for an empty split.
    """
    _check(ratios)
    whole = {sample.subject_id for sample in samples} if everyone is None else everyone
    patients = np.array(sorted(set(whole)), dtype=np.int64)
    return _assign(samples, _cut(patients, ratios, np.random.default_rng(np.random.SeedSequence(seed))), ratios)


def split_stratified(
    samples: Sequence[S], ratios: tuple[float, float, float] = (0.8, 0.1, 0.1), seed: int = 0
) -> Splits[S]:
    """Split by patient within each class, so that all three sets have its share (8:1:1, GraphWalker, Appendix B).

    A patient's class is the label of the last sample. Raises BadInput as `split_by_patient` does.
    """
    _check(ratios)
    label_of = {sample.subject_id: sample.label for sample in samples}
    groups: tuple[set[int], ...] = (set(), set(), set())
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    for label in sorted(set(label_of.values())):
        patients = np.array(sorted(p for p, own in label_of.items() if own == label), dtype=np.int64)
        for group, part in zip(groups, _cut(patients, ratios, rng), strict=True):
            group |= part
    return _assign(samples, groups, ratios)


def split_as_given(samples: Sequence[S], split_of: Mapping[int, str]) -> Splits[S]:
    """The split that comes with a data set (`ghar.data.readers.meds_labels.read_subject_splits`): train, tuning,
    held_out, and where it has one a pool.

    Raises BadInput for a patient without one of them, and for an empty set, but for the pool.
    """
    names = ("train", "tuning", "held_out", "pool")
    for sample in samples:
        if split_of.get(sample.subject_id) not in names:
            split = split_of.get(sample.subject_id)
            raise BadInput(
                f"Patient {sample.subject_id} has split {split!r}, not {', '.join(names)}: correct the split."
            )
    groups = tuple({p for p, own in split_of.items() if own == name} for name in names)
    pool = tuple(sample for sample in samples if sample.subject_id in groups[3])
    return replace(_assign(samples, groups[:3], names[:3]), pool=pool)


def _check(ratios: tuple[float, ...]) -> None:
    if len(ratios) != 3 or min(ratios) <= 0 or abs(sum(ratios) - 1) > 1e-6:
        raise BadInput(f"Split ratios {ratios} are not three positive shares that add up to 1: correct them.")


def _cut(patients: np.ndarray, ratios: tuple[float, ...], rng: np.random.Generator) -> tuple[set[int], ...]:
    rng.shuffle(patients)
    cuts = np.round(np.cumsum(ratios[:2]) * len(patients)).astype(int)
    return tuple(set(part.tolist()) for part in np.split(patients, cuts))


def _assign(samples: Sequence[S], groups: Sequence[set[int]], by: tuple) -> Splits[S]:
    parts = [tuple(sample for sample in samples if sample.subject_id in group) for group in groups]
    if not all(parts):
        sizes = "/".join(str(len({sample.subject_id for sample in part})) for part in parts)
        count = len({sample.subject_id for sample in samples})
        raise BadInput(f"{count} patients cut by {by} leave an empty split ({sizes}): use more patients.")
    return Splits(*parts)
