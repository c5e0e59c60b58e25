"""How well pieces of text answer a query: by BM25, by vectors, or by both fused. One number a piece, 0 for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ghar.ranking import best
from ghar.retrieval.encoders import Encoder
from ghar.retrieval.sparse import build_sparse, words

Matcher = Callable[[Sequence[str], str], np.ndarray]  # texts, query -> f64[n]
WORST = 1e-9  # share of the worst piece that a matcher found: still found
KEPT = 100_000  # vectors of pieces that are kept for the next query


def bm25(texts: Sequence[str], query: str) -> np.ndarray:
    """BM25 with document frequencies over `texts`."""
    all_scores = np.zeros(len(texts))
    if any(words(text) for text in texts):
        index = build_sparse("bm25", texts)
        [(items, scores)] = index.search(index.encode([query]), range(len(texts)), len(texts))
        all_scores[items] = scores
    return all_scores


def tfidf(texts: Sequence[str], query: str) -> np.ndarray:
    """Cosine of TF-IDF vectors of words, document frequencies over `texts`: vectors that need no model."""
    if not any(words(text) for text in texts):
        return np.zeros(len(texts))
    vectorizer, matrix = fit_tfidf(texts)
    return (matrix @ vectorizer.transform([query]).T).toarray()[:, 0]


def fit_tfidf(texts: Iterable[str]) -> tuple[Any, Any]:
    """Fit scikit-learn's TfidfVectorizer of `words`; return it and the texts' unit vectors, sparse f64[texts, words].

    ValueError where no text has a word.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    options: dict[str, Any] = {"analyzer": words}  # scikit-learn's types allow no function
    vectorizer = TfidfVectorizer(**options)
    return vectorizer, vectorizer.fit_transform(texts)


def dense(encoder: Encoder) -> Matcher:
    """Cosine of the encoder's vectors, 0 where it is negative; vectors of pieces are kept for later queries."""
    return partial(_by_vectors, encoder, {})


def _by_vectors(encoder: Encoder, kept: dict[str, np.ndarray], texts: Sequence[str], query: str) -> np.ndarray:
    if not texts:
        return np.zeros(0)
    if len(kept) > KEPT:
        kept.clear()
    new = [text for text in dict.fromkeys(texts) if text not in kept]
    kept.update(zip(new, encoder.passages(new), strict=True) if new else ())
    matrix = np.stack([kept[text] for text in texts]).astype(np.float64)
    return np.maximum(matrix @ encoder.queries([query])[0].astype(np.float64), 0.0)


def fused(one: Matcher, other: Matcher) -> Matcher:
    """Relative score fusion (EXPRAG, Appendix A.4): the mean of both scores, each between the worst and the best piece
    that its matcher found, as 0 and 1."""
    return partial(_by_both, one, other)


def _by_both(one: Matcher, other: Matcher, texts: Sequence[str], query: str) -> np.ndarray:
    return (_relative(one(texts, query)) + _relative(other(texts, query))) / 2


def _relative(scores: np.ndarray) -> np.ndarray:
    """Scores above 0 between the worst (0) and the best of them (1); all 1 where they are alike."""
    hits = scores > 0
    if not hits.any():
        return np.zeros(len(scores))
    low, high = scores[hits].min(), scores[hits].max()
    share = (scores - low) / (high - low) if high > low else np.ones(len(scores))
    return np.where(hits, np.maximum(share, WORST), 0.0)


def top(scores: np.ndarray, count: int) -> np.ndarray:
    """Places of the `count` best pieces that have anything of the query, best first, the earlier of equal ones."""
    hits = np.flatnonzero(scores > 0)
    return best(hits, scores[hits], count)[0]
