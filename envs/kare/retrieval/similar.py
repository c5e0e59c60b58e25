"""Similar patients of the training split, shown with their outcome as part of the base context (Section 3.2, KARE).

The paper shows the nearest patient with the query's label and the nearest with another one. That is the nearest patient
of each label, which can be found without the query's label; in the paper's words and order it would give the label away
in training and could not be had at test time. So here, for every query alike: the nearest patient, then the nearest
whose label differs from those found before, until there are `count`; shown in the order of their labels. All shown are
different patients, as in the paper's "two most similar patients": a stay that went well and the next one of the same
patient would be one. Nothing reads the query's label, and its patient is never shown.

EHR similarity is the cosine of embeddings of the base contexts without similar patients (Section 4.1: one text
embedding model for everything but abstracts).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ghar.data.cohort import Sample
from ghar.data.tasks.subsets import known_by, micros
from ghar.ranking import DECIMALS


class SimilarPatients:
    """Nearest training patients. Every sample that is ever shown is one of `samples`."""

    def __init__(self, samples: Sequence[Sample], vectors: np.ndarray, *, earlier: bool = False):
        """samples: of the training split. vectors: f32[n, d], unit embedding of each one's base context.

        earlier: find shows only whose outcome was known when the query is predicted (data.earlier).
        """
        if len(samples) != len(vectors):
            raise ValueError(f"{len(vectors)} vectors are given for {len(samples)} training samples")
        self.samples = tuple(samples)
        self.vectors = vectors
        self._subject = np.array([sample.subject_id for sample in samples], np.int64)
        self._label = np.array([sample.label for sample in samples], np.int64)
        self._outcome_time = known_by(samples) if earlier else None

    def find(self, sample: Sample, vector: np.ndarray, count: int = 2, each: int = 1) -> tuple[Sample, ...]:
        """The `each` nearest patients of each of `count` labels, by label; fewer when the split has fewer.

        sample: whose patient's stays are never shown. vector: f32[d] of the query. each: two of each label are the
        paper's few-shot prompt with N=4 (Table 2). No patient is shown twice, with one label or with two. Ties go to
        the earlier sample.
        """
        cosines = np.round(self.vectors @ vector, DECIMALS)  # so that equal texts tie, whatever the order of a sum was
        open_ = self._subject != sample.subject_id
        if self._outcome_time is not None:
            open_ &= self._outcome_time <= micros(sample.prediction_time)
        nearest: list[int] = []
        for _ in range(count):
            if not open_.any():
                break
            alike = open_ & (self._label == self._label[_nearest(cosines, open_)])
            open_ &= ~alike
            for _ in range(each):
                if alike.any():
                    nearest.append(_nearest(cosines, alike))
                    others = self._subject != self._subject[nearest[-1]]
                    alike &= others
                    open_ &= others
        return tuple(self.samples[i] for i in sorted(nearest, key=lambda i: self._label[i]))


def _nearest(cosines: np.ndarray, among: np.ndarray) -> int:
    return int(np.argmax(np.where(among, cosines, -np.inf)))
