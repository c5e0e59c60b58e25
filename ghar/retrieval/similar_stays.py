"""What the reports of similar patients say, as a corpus that is asked by words: Eqs. 4 to 7 of EXPRAG rank the stays,
and of each a sentence about the query is shown.

One partition. A stay is compared by the codes of the stay itself and not of all before it, by the kind of code that
the query is about ("disease NAME": diagnoses; "drug NAME": medications; anything else: all three alike). Of the most
similar stays those are shown whose report has a sentence with every word of the query's name, the most similar first:
a sentence counts for whom it was written about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from ghar.data.cohort import Sample
from ghar.data.readers.notes import Notes
from ghar.episode import Evidence, Passage, RetrieveFor
from ghar.retrieval.experience import sentence_spans
from ghar.retrieval.reports import KINDS, ReportIndex, ReportQuery, Weights, build_reports, entries_of, rank, weights
from ghar.retrieval.sparse import words

PARTS = ("reports of like stays",)
CANDIDATES = 50  # most similar stays whose reports are read
KEPT = 20_000  # reports that stay cut into sentences
ABOUT = {"disease": "diagnoses", "drug": "medications"}  # first word of a query -> the codes that are compared


@dataclass(frozen=True, eq=False)
class SimilarStays:
    """index: of the stays that may be shown. notes: their reports. asking: every sample that may ask, by id."""

    index: ReportIndex
    notes: Notes
    asking: Mapping[str, Sample]
    _read: dict[int, list[tuple[str, set[str]]]] = field(default_factory=dict)

    def retrieve(self, requests: Sequence[RetrieveFor]) -> list[Evidence]:
        """One evidence a request, in order: a sentence of each of the `top_n` most similar stays that have one, never
        of the patient who asks. KeyError for a sample that is not there."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: RetrieveFor) -> Evidence:
        sample = self.asking[request.sample_id]
        one, two, three = (tuple(getattr(sample.history[-1], kind)) for kind in KINDS)
        query = ReportQuery(sample.subject_id, None, (one, two, three))
        rows, scores = rank(self.index, query, weight_of(request.query), CANDIDATES)
        passages: list[Passage] = []
        asked = set(words(request.query)) - ABOUT.keys()
        for stay, score in zip(self.index.visit_id[rows].tolist(), scores.tolist(), strict=True):
            sentences = [sentence for sentence, own in self._sentences(stay) if asked <= own]
            passages += [Passage(f"like stay - {sentence}", "report", 0, score, stay) for sentence in sentences[:1]]
            if len(passages) == request.top_n:
                break
        return Evidence(tuple(passages))

    def _sentences(self, stay: int) -> list[tuple[str, set[str]]]:
        """The sentences of a report, and the words of each."""
        if stay not in self._read:
            if len(self._read) >= KEPT:
                self._read.clear()
            text = self.notes.text(stay)
            spoken = [" ".join(text[start:end].split()) for _, start, end in sentence_spans(text)]
            self._read[stay] = [(sentence, set(words(sentence))) for sentence in spoken]
        return self._read[stay]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_read": {}}


def weight_of(query: str) -> Weights:
    """Of Eq. 7, by what a query is about."""
    kind = ABOUT.get(query.split(" ", 1)[0])
    return weights("uniform", "") if kind is None else weights("task_focused", kind)


def index_stays(samples: Sequence[Sample], notes: Notes) -> ReportIndex:
    """The newest visits of samples that have a report, each once, by their own codes."""
    stays = {sample.visit_id: sample for sample in samples if sample.visit_id in notes}
    newest = [sample.history[-1] for sample in stays.values()]
    when = pl.Series([visit.start for visit in newest], dtype=pl.Datetime("us")).to_physical().to_numpy()
    visits = np.array(list(stays), np.int64)
    subjects = np.array([sample.subject_id for sample in stays.values()], np.int64)
    return build_reports(visits, subjects, when, {kind: entries_of([[v] for v in newest], kind) for kind in KINDS})
