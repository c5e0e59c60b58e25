"""A corpus of reports: it ranks the stays that are like one stay, and finds pieces in their reports.

Who asks is named in the request, and the corpus knows whose stay that is: no request can see the patient's own stays,
nor, where times count, a report that was not there yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ghar.data.readers.notes import Notes
from ghar.episode import Evidence, Passage, Retrieve
from ghar.retrieval.experience import Finder, find_excerpts
from ghar.retrieval.reports import ReportIndex, ReportQuery, allowed_stays

Ranker = Callable[
    [ReportQuery, str, int], tuple[np.ndarray, np.ndarray]
]  # stay, text, top_k -> rows of the index, scores


@dataclass(frozen=True)
class RankReports(Retrieve):
    """Ask for the `top_n` stays most like `stay`; `query` is its question and background, which only a text-based
    ranker reads. The evidence's passages have kind "report", the stay as `ident`, the similarity as score, and as
    `partition` the index of the stay's own outcome (-1 where the corpus knows none).

    stay: a key of `ReportCorpus.queries`.
    """

    stay: int | str = 0


@dataclass(frozen=True)
class FindExcerpts(Retrieve):
    """Ask for the `top_n` pieces that answer `query` in the reports of the stays `partitions`, for `stay`.

    Passages have kind "excerpt", the report's stay as `partition` and their place among the pieces as `ident`; their
    text begins with the heading they stand under.
    """

    stay: int | str = 0


@dataclass(frozen=True, eq=False)
class ReportCorpus:
    """queries: what may be known of each stay that asks, by its id, or by another name where one asks more than once.
    names: what a ranked stay is shown as. outcomes: label index of each stay of the index, where a task has them."""

    index: ReportIndex
    notes: Notes
    queries: Mapping[Any, ReportQuery]
    ranker: Ranker
    finder: Finder
    names: Callable[[int], str]
    outcomes: Mapping[int, int] = field(default_factory=dict)

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """Answer `RankReports` and `FindExcerpts` in order."""
        return [self._rank(r) if isinstance(r, RankReports) else self._find(r) for r in requests]

    def _rank(self, request: RankReports) -> Evidence:
        rows, scores = self.ranker(self.queries[request.stay], request.query, request.top_n)
        stays = self.index.visit_id[rows].tolist()
        passages = [
            Passage(self.names(stay), "report", self.outcomes.get(stay, -1), score, stay)
            for stay, score in zip(stays, scores.tolist(), strict=True)
        ]
        return Evidence(tuple(passages))

    def _find(self, request: Retrieve) -> Evidence:
        if not isinstance(request, FindExcerpts) or request.partitions is None:
            raise TypeError(f"the corpus of reports ranks stays and finds excerpts of ranked ones, it got {request!r}")
        rows = np.flatnonzero(np.isin(self.index.visit_id, request.partitions))
        offered = rows[allowed_stays(self.index, self.queries[request.stay])[rows]]
        if hidden := set(request.partitions) - set(self.index.visit_id[offered].tolist()):
            raise ValueError(f"stay {min(hidden)} may not be shown to stay {request.stay}")
        reports = {stay: self.notes.text(stay) for stay in request.partitions}
        excerpts = find_excerpts(self.finder, reports, request.query, request.top_n)
        passages = [
            Passage(f"{e.heading}: {e.text}", "excerpt", e.report, e.score, number) for number, e in enumerate(excerpts)
        ]
        return Evidence(tuple(passages))
