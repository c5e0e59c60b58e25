"""What both kinds of cases look up in: the ranker and the finder that the settings name, and how a stay is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast
from zlib import crc32

import numpy as np

from ghar.config import Config
from ghar.data.cohort import Visit
from ghar.data.readers.notes import Notes
from ghar.envs.exprag.report_corpus import Ranker
from ghar.envs.exprag.report_texts import rank_by_text, text_scores
from ghar.envs.exprag.settings import Settings
from ghar.retrieval.encoders import Encoder, load_encoder
from ghar.retrieval.experience import Finder, make_finder
from ghar.retrieval.matching import dense, tfidf
from ghar.retrieval.reports import (
    ReportIndex,
    ReportQuery,
    Scheme,
    Weights,
    allowed_stays,
    best_rows,
    rank,
    rank_by_thirds,
    weights,
)
from ghar.retrieval.sparse import SPARSE

MAX_DIAGNOSES = 5  # diagnoses that stand for a ranked stay in the report
ENCODED = 32  # texts an encoder sees at once


def encoder_of(config: Config) -> Encoder | None:
    """The encoder that retriever=... names; None for those that count words."""
    return _load(config.retriever.kind)


def ranker_encoder(settings: Settings, encoder: Encoder | None) -> Encoder | None:
    """The encoder of the ranker by text: that of system.ranker_encoder, else the run's own."""
    return encoder if settings.ranker_encoder is None else _load(settings.ranker_encoder)


def _load(kind: str) -> Encoder | None:
    return None if kind in SPARSE else load_encoder(kind, ENCODED)


def make_ranker(settings: Settings, asked: str, index: ReportIndex, notes: Notes, encoder: Encoder | None) -> Ranker:
    """The ranker that system.ranker names. asked: the kind of codes a task is about (`ghar.retrieval.reports.KINDS`),
    which task_focused and complementary read. encoder: of retriever=..."""
    if settings.ranker == "text":
        return partial(rank_by_text, index, text_scores(index, notes, ranker_encoder(settings, encoder)))
    if settings.ranker in ("random", "one_code"):
        return partial(rank_at_random, index, settings.ranker == "one_code")
    if settings.ranker == "released":
        return partial(_rank_as_released, index)
    return partial(rank_by_codes, index, weights(cast(Scheme, settings.ranker), asked))


def finder_of(settings: Settings, encoder: Encoder | None) -> Finder:
    """The retriever that system.retriever names."""
    return make_finder(settings.retriever, tfidf if encoder is None else dense(encoder))


def rank_by_codes(
    index: ReportIndex, weight: Weights, query: ReportQuery, text: str, top_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Eq. 7; the text is not read."""
    return rank(index, query, weight, top_k)


def rank_at_random(
    index: ReportIndex, one_code: bool, query: ReportQuery, text: str, top_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """What Eq. 7 has to beat: stays by chance; of those with the principal diagnosis where `one_code` says so and there
    are any. The chance is the query's own."""
    rng = np.random.default_rng(crc32(repr((query.subject_id, query.codes)).encode()))
    allowed = allowed_stays(index, query)
    if one_code and query.codes[0]:
        sharing = allowed & (index.sets[0].overlap(query.codes[0][:1])[0] > 0)
        allowed = sharing if sharing.any() else allowed
    return best_rows(1.0 - rng.random(len(index)), allowed, top_k)


def _rank_as_released(index: ReportIndex, query: ReportQuery, text: str, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    return rank_by_thirds(index, query, top_k)


@dataclass(frozen=True, eq=False)
class StayNames:
    """A ranked stay in the report: its first diagnoses, and how many more there are. names: text of every code."""

    visits: Mapping[int, Visit]
    names: Mapping[str, str]

    def __call__(self, stay: int) -> str:
        codes = self.visits[stay].diagnoses
        more = f" and {len(codes) - MAX_DIAGNOSES} more" if len(codes) > MAX_DIAGNOSES else ""
        return ", ".join(self.names.get(code, code) for code in codes[:MAX_DIAGNOSES]) + more
