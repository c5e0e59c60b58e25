"""What a baseline may read of discharge summaries: those of earlier stays, there before the newest visit began.

A summary of the newest visit itself is never read: it says how the visit ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from ghar.data.cohort import Sample
from ghar.data.readers.notes import Notes

FEWEST = 2  # training samples whose summaries have a word


@dataclass(frozen=True, eq=False)
class EarlierNotes:
    """The summaries that a sample may show, as one text."""

    notes: Notes

    def __call__(self, sample: Sample) -> str:
        """Those of the visits before the newest one, the newest first, stored before it began."""
        if not sample.history:
            return ""
        newest = sample.history[-1]
        began = pl.Series([newest.start], dtype=pl.Datetime("us")).to_physical()[0]
        texts = []
        for visit in reversed(sample.history[:-1]):
            row = self.notes.row(visit.visit_id)
            if row is None or visit.visit_id == newest.visit_id or visit.visit_id == sample.visit_id:
                continue
            if self.notes.subject_id[row] == sample.subject_id and self.notes.available[row] < began:
                texts.append(self.notes.texts[row])
        return "\n".join(texts)


@dataclass(frozen=True, eq=False)
class NoteFeatures:
    """TF-IDF of the most frequent words of the training samples' summaries."""

    notes: EarlierNotes
    fitted: Any  # None where no training sample has a word that another has too

    def __call__(self, samples: Sequence[Sample]) -> csr_array:
        """f64[samples, words]"""
        if self.fitted is None:
            return csr_array((len(samples), 0))
        return csr_array(self.fitted.transform([self.notes(sample) for sample in samples]))

    @property
    def about(self) -> Mapping[str, int]:
        """How many words have a column."""
        return {"words": 0 if self.fitted is None else len(self.fitted.vocabulary_)}


def fit_words(notes: EarlierNotes, train: Sequence[Sample], most: int) -> NoteFeatures:
    """`most`: so many columns."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(sublinear_tf=True, min_df=FEWEST, max_features=most, dtype=np.float64)
    texts, words_of = [notes(sample) for sample in train], vectors.build_analyzer()
    seen = Counter(word for text in texts for word in set(words_of(text)))
    return NoteFeatures(notes, vectors.fit(texts) if any(n >= FEWEST for n in seen.values()) else None)
