"""TF-IDF and BM25 over postings: both score a text by adding up one stored weight per query term it contains.

The weights come from scikit-learn (TF-IDF, unit length) and bm25s (BM25, Lucene's form); a query then reads only the
postings of its own terms inside the partition, straight from disk.

TF-IDF's terms are words, word pairs and whole names. Without the names, an edge of "familial sepsis" with a short
tail can beat the edge of "sepsis" with a long one, because the tail makes the vector longer.

A text that shares nothing but filler words ("of the", "with") with a query is no hit. Models ask in whole sentences,
and "What is known of the case?" found "Abnormality of the liver".
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ghar.ranking import best
from ghar.storage import Strings, read_array, read_strings, write_arrays

SparseKind = Literal["tfidf", "bm25"]
SPARSE = get_args(SparseKind)  # kinds of retrievers that make no vectors
WORD = re.compile(r"\w+")
PARTS = re.compile(r" - | \(")  # "head - relation - tail", "name (type)"
NAME = "="  # begins a term that is a whole name
LONGEST_NAME = 16  # words
# Words of grammar, which say nothing of a subject. No single letter is one ("hepatitis A").
FILLERS = frozenset(
    "about after also an and any are as at be been being both but by can could did do does during each for from had "
    "has have how if in into is it its might more most must nor not of on only or other our should so some such than "
    "that the their them then there these they this those through to too until upon very was we were what when where "
    "which while who whom whose why will with would you your".split()
)
Query = tuple[np.ndarray, np.ndarray]


def words(text: str) -> list[str]:
    """Lower-case words without accents; single letters stay ("hepatitis C")."""
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return WORD.findall(text.lower())


def words_and_pairs(text: str) -> list[str]:
    """Words, and neighbouring words joined by a space."""
    single = words(text)
    return single + [f"{a} {b}" for a, b in pairwise(single)]


def passage_terms(text: str) -> list[str]:
    """TF-IDF's terms of a node's or edge's text: of each of its parts the words, the pairs, and the part as a name."""
    terms = []
    for part in PARTS.split(text):
        terms += words_and_pairs(part)
        terms.append(NAME + " ".join(words(part)))
    return terms


@dataclass(frozen=True, eq=False)
class SparseIndex:
    """Postings: term t occurs in items[start[t]:start[t+1]] (ascending) with weights[start[t]:start[t+1]].

    terms: sorted. importance: f64[T], what one occurrence of a term in a query counts (idf for TF-IDF, 1 for BM25).
    """

    kind: SparseKind
    terms: Strings
    importance: np.ndarray
    start: np.ndarray
    items: np.ndarray
    weights: np.ndarray

    def encode(self, queries: Sequence[str]) -> list[Query]:
        """Term numbers and weights of each query; terms that no text has are dropped, as scikit-learn does."""
        return [self._encode(query) for query in queries]

    def _encode(self, query: str) -> Query:
        counts = Counter(words_and_pairs(query) + self._name(query) if self.kind == "tfidf" else words(query))
        term_counts = {t: n for word, n in sorted(counts.items()) if (t := self.terms.find(word)) is not None}
        terms = np.fromiter(term_counts, dtype=np.int64)
        weights = np.fromiter(term_counts.values(), dtype=np.float64) * self.importance[terms]
        if self.kind == "tfidf" and len(terms):
            weights /= np.linalg.norm(weights)
        return terms, weights

    def _name(self, query: str) -> list[str]:
        """The longest name in the query that the graph knows; the first of equally long ones."""
        single = words(query)
        for length in range(min(len(single), LONGEST_NAME), 0, -1):
            for begin in range(len(single) - length + 1):
                name = NAME + " ".join(single[begin : begin + length])
                if self.terms.find(name) is not None:
                    return [name]
        return []

    def search(self, queries: Sequence[Query], items: range | np.ndarray, top_n: int) -> list[Query]:
        """For each query the `top_n` best of `items` (a range, or ascending numbers) and their scores.

        Items that share no term with the query, or filler words alone, are no hits, so there may be fewer.
        """
        return [self._search(query, items, top_n) for query in queries]

    def _search(self, query: Query, items: range | np.ndarray, top_n: int) -> Query:
        if not len(items):
            return np.empty(0, np.int64), np.empty(0)
        low, high = int(items[0]), int(items[-1]) + 1
        hits, scores = [np.empty(0, np.int64)], [np.empty(0)]
        is_hit = np.zeros(high - low, bool)
        for term, weight in zip(*query, strict=True):
            a, b = self.start[term], self.start[term + 1]
            posting = self.items[a:b]
            left, right = posting.searchsorted(low), posting.searchsorted(high)
            hits.append(posting[left:right])
            scores.append(self.weights[a + left : a + right] * weight)
            if not FILLERS.issuperset(self.terms[int(term)].split()):
                is_hit[hits[-1] - low] = True
        total = np.bincount(np.concatenate(hits) - low, np.concatenate(scores), minlength=high - low)
        total[~is_hit] = 0.0
        if not isinstance(items, range):
            total = total[items - low]
        at = np.flatnonzero(total > 0)
        places, values = best(at, total[at], top_n)
        return (places + low if isinstance(items, range) else items[places]), values

    def save(self, folder: Path) -> None:
        """Write the arrays into an existing folder."""
        names = ("terms", "importance", "start", "items", "weights")
        write_arrays(folder, {name: getattr(self, name) for name in names})

    @classmethod
    def load(cls, folder: Path, kind: SparseKind) -> SparseIndex:
        """Open saved arrays memory-mapped; `BadInput` names one that is missing or damaged."""
        arrays = {name: read_array(folder, name) for name in ("importance", "start", "items", "weights")}
        return cls(kind, read_strings(folder, "terms"), **arrays)


def build_sparse(kind: SparseKind, texts: Iterable[str]) -> SparseIndex:
    """Index texts; text i is item i. Document frequencies are those of the whole graph, not of a partition."""
    return _build_tfidf(texts) if kind == "tfidf" else _build_bm25(texts)


def _build_tfidf(texts: Iterable[str]) -> SparseIndex:
    from sklearn.feature_extraction.text import TfidfVectorizer

    options: dict[str, Any] = {"analyzer": passage_terms, "dtype": np.float32}  # scikit-learn's types allow neither
    vectorizer = TfidfVectorizer(**options)
    matrix = vectorizer.fit_transform(texts).tocsc()
    matrix.sort_indices()
    terms = Strings.of(vectorizer.get_feature_names_out().tolist())
    idf = vectorizer.idf_.astype(np.float64)
    return SparseIndex("tfidf", terms, idf, matrix.indptr, matrix.indices, matrix.data)


def _build_bm25(texts: Iterable[str]) -> SparseIndex:
    import bm25s
    from scipy.sparse import csc_matrix

    engine = bm25s.BM25()
    engine.index([words(text) for text in texts], show_progress=False)
    vocabulary = sorted(term for term in engine.vocab_dict if term)
    parts = engine.scores
    shape = (parts["num_docs"], len(parts["indptr"]) - 1)
    matrix = csc_matrix((parts["data"], parts["indices"], parts["indptr"]), shape=shape)
    matrix = matrix[:, [engine.vocab_dict[term] for term in vocabulary]]
    matrix.sort_indices()
    ones = np.ones(len(vocabulary))
    return SparseIndex("bm25", Strings.of(vocabulary), ones, matrix.indptr, matrix.indices, matrix.data)
