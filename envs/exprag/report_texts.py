"""The text-based report ranker: whole reports by the likeness of their text to question, options and background
(Appendix A.2.2, EXPRAG), the baseline of its Tables 2 to 4."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ghar.data.readers.notes import Notes
from ghar.progress import track
from ghar.retrieval.encoders import Encoder
from ghar.retrieval.matching import fit_tfidf
from ghar.retrieval.reports import ReportIndex, ReportQuery, allowed_stays, best_rows

TextScores = Callable[[str], np.ndarray]  # text -> f64[N], likeness to each stay's report
BATCH = 256  # reports encoded at once


def text_scores(index: ReportIndex, notes: Notes, encoder: Encoder | None) -> TextScores:
    """Cosines of the encoder's vectors, 0 where negative; None takes TF-IDF over the reports."""
    rows = range(len(index))
    if encoder is not None:
        encoded = np.empty((len(index), encoder.dimension), np.float32)
        for start in track(range(0, len(index), BATCH), "Encode reports", unit="batches"):
            part = rows[start : start + BATCH]
            encoded[start : start + BATCH] = encoder.passages([notes.text(int(index.visit_id[i])) for i in part])
        return partial(_by_vectors, encoder, encoded)
    return partial(_by_words, *fit_tfidf(notes.text(int(index.visit_id[i])) for i in rows))


def _by_vectors(encoder: Encoder, encoded: np.ndarray, text: str) -> np.ndarray:
    return np.maximum(encoded @ encoder.queries([text])[0], 0.0).astype(np.float64)


def _by_words(vectorizer: Any, matrix: Any, text: str) -> np.ndarray:
    return (matrix @ vectorizer.transform([text]).T).toarray()[:, 0]


def rank_by_text(
    index: ReportIndex, scores: TextScores, query: ReportQuery, text: str, top_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the `top_k` stays whose reports are most like `text`, best first, and their scores; who may be offered
    and ties as in `reports.rank`."""
    return best_rows(scores(text), allowed_stays(index, query), top_k)
