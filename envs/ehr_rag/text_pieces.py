"""What EHR-RAG retrieves from a text (task=medqa, task=summary): the text itself is the record.

paper                         here
events, by time               sentences and lines, in their order
chunks of 100 rows            pieces of `size` sentences, none of which overlap
similarity and time (Eq. 3)   similarity alone: the order of sentences is no clock
trajectories of indicators    none
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ghar.envs.ehr_rag.ether import EventQuery, RowPassage, View
from ghar.episode import Evidence, Retrieve
from ghar.errors import BadInput
from ghar.kg.names import FILLERS
from ghar.ranking import best
from ghar.retrieval.encoders import Encoder
from ghar.retrieval.sparse import words

SEARCHES: tuple[View, ...] = ("chunks", "similar")
WORDS = 4_096  # of the training texts, the most frequent ones
KEPT = 256  # texts whose vectors stay: an episode comes back to its own


@dataclass(frozen=True)
class TextRecord:
    """The sentences of a text. subject: draws its random pieces."""

    rows: tuple[str, ...]
    subject: int

    def pieces(self, size: int) -> list[range]:
        """Places of the rows of each piece."""
        return [range(begin, min(begin + size, len(self.rows))) for begin in range(0, len(self.rows), size)]


@dataclass(frozen=True, eq=False)
class TrainingWords:
    """Words weighed by how rare they are in the training texts (scikit-learn's TF-IDF), as an encoder."""

    vectorizer: Any
    key: str = "training-words"

    @property
    def dimension(self) -> int:
        return len(self.vectorizer.vocabulary_)

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        return self.passages(texts)

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        return self.vectorizer.transform(texts).toarray()


def _telling(text: str) -> list[str]:
    return [word for word in words(text) if word not in FILLERS]


def fit_words(texts: Sequence[str]) -> Encoder:
    """The encoder of the words of some texts. BadInput where they have none."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(map(_telling, texts)):
        raise BadInput("The training texts have no words to search by: give others, or choose retriever=hashing or e5.")
    options: dict[str, Any] = {"analyzer": _telling, "max_features": WORDS, "dtype": np.float32}  # its types allow less
    return TrainingWords(TfidfVectorizer(**options).fit(texts))


@dataclass(eq=False)
class TextPieces:
    """Answers `EventQuery`s over texts, by the place of the case. size: sentences of a piece. seed: of random ones.

    load: the encoder, asked for where pieces are searched. It and its vectors stay behind when the corpus is sent to
    another process.
    """

    texts: Mapping[int, TextRecord]
    load: Callable[[], Encoder]
    size: int
    seed: int

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One `Evidence` a request, in order."""
        asked = sorted({request.query for request in requests if _view(request) in SEARCHES})
        vectors = dict(zip(asked, self._encoder.queries(asked), strict=True)) if asked else {}
        return [Evidence(tuple(self._answer(request, vectors.get(request.query)))) for request in requests]

    def _answer(self, request: Any, query: np.ndarray | None) -> list[RowPassage]:
        text, place, view, most = self.texts[request.place], request.place, request.view, request.top_n
        pieces = text.pieces(self.size)
        if not pieces:
            return []
        if view == "newest":
            return [_passage(text, range(len(text.rows))[-most:], 0, view, place, 1.0)]
        if query is None:
            rng = np.random.default_rng(np.random.SeedSequence([self.seed % 2**64, text.subject % 2**64]))
            drawn = rng.permutation(len(pieces))[:most].tolist()
            # scores in the order of the draw: prompts show the best first, and of equals the first of the text
            return [_passage(text, pieces[i], i, view, place, 1 - n / len(pieces)) for n, i in enumerate(drawn)]
        cosines = (self._vectors_of(place).astype(np.float64) * query).sum(axis=1)
        chosen, scores = best(np.arange(len(pieces)), cosines, most)
        ranked = zip(chosen.tolist(), scores.tolist(), strict=True)
        return [_passage(text, pieces[i], i, view, place, score) for i, score in ranked]

    def _vectors_of(self, place: int) -> np.ndarray:
        """[pieces, dimension] of a text."""
        vectors = self._vectors.get(place)
        if vectors is None:
            text = self.texts[place]
            words_of = [" ".join(text.rows[i] for i in piece) for piece in text.pieces(self.size)]
            vectors = self._vectors[place] = self._encoder.passages(words_of)
            while len(self._vectors) > KEPT:
                self._vectors.pop(next(iter(self._vectors)), None)
        return vectors

    @cached_property
    def _encoder(self) -> Encoder:
        return self.load()

    @cached_property
    def _vectors(self) -> dict[int, np.ndarray]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


def _view(request: Retrieve) -> View:
    if not isinstance(request, EventQuery):
        raise TypeError(f"EHR-RAG's corpus answers EventQuery, not {request!r}")
    return request.view


def _passage(text: TextRecord, rows: range, ident: int, view: View, place: int, score: float) -> RowPassage:
    """Sentences behind their numbers, from 1."""
    lines = tuple(f"[{row + 1}] {text.rows[row]}" for row in rows)
    return RowPassage("\n".join(lines), view, place, score, ident, tuple(rows), lines, ("",) * len(lines))
