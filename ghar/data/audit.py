"""What a model is shown before anybody could have known it: an independent look at the samples of any task.

A sample may show what was recorded after its prediction. It may also be asked when its outcome is there already, as
length of stay at the discharge is in the papers. So what is shown is held against the time of the prediction and
against the outcome's own time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort, Sample
from ghar.data.tasks.samples import TimeSeries

TIME = pl.Datetime("us")
COLUMNS = ("sample_id", "visit_id", "code", "prediction_time", "recorded")  # recorded: when it was first known


@dataclass(frozen=True)
class Exposure:
    """Of samples of visits, or of time series. facts: codes, or values, shown. late: those recorded after the
    prediction. with_outcome: those first recorded when the outcome was there, or later. at_outcome: samples that are
    predicted then or later. leaking: samples of which either holds. hours: from the prediction to the outcome, the
    median; None where no one knows.
    """

    samples: int
    facts: int
    late: int
    with_outcome: int
    at_outcome: int
    leaking: int
    hours: float | None

    @property
    def score(self) -> float | None:
        """Leak score: the share of samples that leak, from 0 to 1; None where no outcome has a known time."""
        return None if self.samples and self.hours is None else self.leaking / max(self.samples, 1)


def as_plain(used: str, exposures: Mapping[str, Exposure]) -> dict[str, Any]:
    """What summary.json holds under "audit": the mode that a run used, and for each mode its numbers."""
    scores = {mode: row.score for mode, row in exposures.items()}
    modes = {
        mode: {
            "samples": row.samples, "facts": row.facts, "late": row.late, "with_outcome": row.with_outcome,
            "at_outcome": row.at_outcome, "hours_ahead": row.hours,
            "leak_score": None if (score := scores[mode]) is None else round(score, 4),
        }
        for mode, row in exposures.items()
    }  # fmt: skip
    return {"used": used, "modes": modes}


def exposure(cohort: Cohort, samples: Sequence[Sample[Any]]) -> Exposure:
    """What samples show, against the prediction's and the outcome's own time. cohort: in the codes they show.

    A sample whose outcome has no known time counts as one that does not leak.
    """
    about = pl.LazyFrame(
        [(sample.sample_id, sample.outcome_time) for sample in samples], {"sample_id": pl.String, "outcome": TIME},
        orient="row",
    )  # fmt: skip
    visits = [sample for sample in samples if isinstance(sample.history, tuple)]
    series = [sample for sample in samples if isinstance(sample.history, TimeSeries)]
    facts = pl.concat([collect_visit_facts(cohort, visits), collect_series_facts(cohort, series)])
    rows = facts.join(about, on="sample_id", how="left").collect(engine="streaming")
    leaks = rows.filter((pl.col("recorded") >= pl.col("outcome")) | (pl.col("recorded").is_null()))
    at = [s.sample_id for s in samples if s.outcome_time is not None and s.prediction_time >= s.outcome_time]
    waits = sorted(
        (s.outcome_time - s.prediction_time).total_seconds() / 3600 for s in samples if s.outcome_time is not None
    )
    return Exposure(
        samples=len(samples),
        facts=rows.height,
        late=late_rows(rows.lazy()).height,
        with_outcome=leaks.height,
        at_outcome=len(at),
        leaking=len({*at, *leaks["sample_id"]}),
        hours=waits[len(waits) // 2] if waits else None,
    )


def collect_visit_facts(cohort: Cohort, samples: Sequence[Sample]) -> pl.LazyFrame:
    """COLUMNS of everything that samples show."""
    facts = [
        (sample.sample_id, visit.visit_id, code, sample.prediction_time)
        for sample in samples
        for visit in sample.history
        for code in (*visit.diagnoses, *visit.procedures, *visit.medications)
    ]
    schema = {"sample_id": pl.String, "visit_id": pl.Int64, "code": pl.String, "prediction_time": TIME}
    rows = pl.DataFrame(facts, schema, orient="row").lazy()
    wanted = rows.select("visit_id").unique()
    events = cohort.scan().select("visit_id", "code", "recorded").join(wanted, on="visit_id", how="semi")
    first = events.group_by("visit_id", "code").agg(pl.col("recorded").min())
    return rows.join(first, on=["visit_id", "code"], how="left", maintain_order="left").select(COLUMNS)


def collect_series_facts(cohort: Cohort, samples: Sequence[Sample[TimeSeries]]) -> pl.LazyFrame:
    """COLUMNS of every value that samples show."""
    used = [np.unique(rows[rows >= 0]) for rows in (sample.history.source for sample in samples)]
    sample = pl.Series(np.repeat(np.arange(len(samples)), [len(rows) for rows in used]), dtype=pl.Int64)
    about = pl.LazyFrame(
        [(i, s.sample_id, s.prediction_time) for i, s in enumerate(samples)],
        {"_sample": pl.Int64, "sample_id": pl.String, "prediction_time": TIME},
        orient="row",
    )
    rows = pl.LazyFrame({"_sample": sample, "_row": np.concatenate([*used, np.zeros(0, np.int64)]).astype(np.int64)})
    events = cohort.scan().with_row_index("_row").with_columns(pl.col("_row").cast(pl.Int64))
    joined = rows.join(about, on="_sample", how="left").join(events, on="_row", how="left", maintain_order="left")
    return joined.select(COLUMNS)


def late_rows(rows: pl.LazyFrame) -> pl.DataFrame:
    """COLUMNS of the rows that were recorded after their prediction, or that the cohort does not have."""
    late = pl.col("recorded").is_null() | (pl.col("recorded") > pl.col("prediction_time"))
    return rows.filter(late).select(COLUMNS).collect()
