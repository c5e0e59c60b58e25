"""One cohort format for every source: MEDS-shaped events, codes and visits.

events: subject_id i64, time datetime[us] (null = static), code str, numeric_value f32, text_value str,
    visit_id i64, recorded datetime[us] (when the fact became known; equals `time` where the source has no
    better answer; discharge for ICD codes). Sorted by subject_id, time.
codes: code str (unique), description str, parents list[str].
visits: subject_id, visit_id, start, end, died bool, death_time; sorted by subject_id, start. Optional column `group`
    (i64): where it is present, visits of one patient have a known order only inside a group; they are sorted by
    subject_id, group, start, and no history, gap or "next visit" may cross a group. eICU needs it: its visits are ICU
    stays, its groups hospital stays, and hospital stays of one patient in a year have no known order (trap 7).

Codes carry their vocabulary, because 493 strings are valid in both ICD versions (EHR.md, trap 9):
"ICD10CM/I509", "ICD9CM/4280", "ICD10PCS/...", "ICD9PROC/...", "DRUG/metoprolol tartrate" (lower case),
"LAB/50912", "VITAL/heart rate", "ICU_ADMISSION/MICU", "AGE", "GENDER/F" (static), ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

import polars as pl

from ghar.data.visit_codes import Visit, VisitCodes, collect_visit_codes


@dataclass(frozen=True, eq=False)
class Cohort:
    """Events, codes and visits of one source. `counts`: repair rule -> rows it touched. `stay`: what a visit is.

    table: the events, in memory or still on disk. `events` reads them into memory when first asked for; `scan` does
    not, and is for work that needs some rows or columns of a cohort that may be larger than the memory.
    stored_rows: file of `visit_rows` beside a cohort in the cache. key: changes when anything of the cohort does, for
    what is kept beside it. One that was changed (`replace`) has neither.
    """

    name: str
    table: pl.DataFrame | pl.LazyFrame
    codes: pl.DataFrame
    visits: pl.DataFrame
    generated: bool = False
    credentialed: bool = True
    counts: Mapping[str, int] = field(default_factory=dict)
    stay: Literal["hospital", "ICU"] = "hospital"
    stored_rows: Path | None = field(default=None, init=False)
    key: str | None = field(default=None, init=False)

    @cached_property
    def events(self) -> pl.DataFrame:
        """All events, in memory."""
        return self.table if isinstance(self.table, pl.DataFrame) else self.table.collect(engine="streaming")

    def scan(self) -> pl.LazyFrame:
        """All events, in the same order, not yet read."""
        return self.__dict__.get("events", self.table).lazy()

    @cached_property
    def shown(self) -> VisitCodes:
        """The codes of each visit, by kind, as tasks on visits show them; a cohort from the cache has them there."""
        if self.stored_rows is None:
            from ghar.data.visit_rows import visit_rows  # and numpy, which a cohort from the cache does not need

            rows = visit_rows(self)
        else:
            rows = pl.read_parquet(self.stored_rows)
        return collect_visit_codes(rows, self.codes, self.visits)

    def names(self) -> dict[str, str]:
        """Description of every code."""
        return dict(zip(self.codes["code"], self.codes["description"], strict=True))


@dataclass(frozen=True)
class Sample:
    """One prediction: the observable visits, oldest first, at `prediction_time`, and the label index."""

    sample_id: str
    subject_id: int
    visit_id: int
    prediction_time: datetime
    history: tuple[Visit, ...]
    label: int


@dataclass(frozen=True)
class Task:
    """A prediction task: `question` is put to the model, `labels` are its possible answers in index order."""

    name: str
    question: str
    labels: tuple[str, ...]
