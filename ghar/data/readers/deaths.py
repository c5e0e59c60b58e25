"""One death for each patient, from all that a source says of it.

A source may give a death several times: the minute in the stay, and a date of death, which stands at midnight. Rules:

same day        a date beside a time on that day is the same death, known to the minute
contradiction   a death more than a day before a later stay begins, or a date before the day on which the last stay
                ended, is none: it is counted and nobody is dead by it (a transplant donor's stay begins within a day)
whole day       a date alone stands for its last second: a death on the day of a discharge must not precede it
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl

DEATH = "MEDS_DEATH"
DEATHS_IN_STAYS = "MEDS_DEATH in a stay"  # what an export has added to deaths outside of stays, which are the source's
WHOLE_DAY = timedelta(hours=23, minutes=59, seconds=59)
DONOR = timedelta(days=1)  # after a death a stay may still begin


def sound_deaths(deaths: pl.DataFrame, stays: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """subject_id, time of `deaths` that can be true, each once, and how many rows contradict the stays.

    deaths: subject_id, time; midnight is a date. stays: subject_id, start, end.
    """
    last = stays.group_by("subject_id").agg(pl.max("start").alias("_start"))
    rows = deaths.drop_nulls().join(last, on="subject_id", how="left", maintain_order="left")
    late = pl.when(is_date()).then(pl.col("time") + WHOLE_DAY).otherwise("time")
    against = (pl.col("_start") > late + DONOR).fill_null(False)
    sound = rows.filter(~against).select("subject_id", "time").unique()
    timed = sound.filter(~is_date()).select("subject_id", _day=pl.col("time").dt.date()).unique()
    same = sound.with_columns(_day=pl.col("time").dt.date())
    dates = same.filter(is_date()).join(timed, on=["subject_id", "_day"], how="anti")
    unique_deaths = pl.concat([same.filter(~is_date()), dates]).select("subject_id", "time")
    return unique_deaths.sort("subject_id", "time"), rows.filter(against).height


def is_date() -> pl.Expr:
    """Whether `time` is a date alone."""
    return pl.col("time") == pl.col("time").dt.truncate("1d")


def deaths_after_discharge(patients: pl.DataFrame, visits: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """Events MEDS_DEATH of patients who died outside of a stay, by `dod`, at the last second of its day.

    patients: subject_id, dod. visits: `Cohort.visits`. A dod before the day of the last discharge of a patient who left
    alive is a contradiction ("repaired.patients.dod_before_last_stay").
    """
    dated = patients.select("subject_id", time="dod").drop_nulls()
    ends = visits.group_by("subject_id").agg(
        pl.max("start").alias("_start"), pl.max("end").alias("_end"), pl.col("died").any().alias("_died")
    )
    rows = dated.join(ends, on="subject_id", how="inner", maintain_order="left").filter(~pl.col("_died"))
    seen = pl.max_horizontal("_start", "_end").dt.date()
    wrong = pl.col("time").dt.date() < seen
    died = rows.filter(~wrong).select("subject_id", at=pl.max_horizontal(pl.col("time") + WHOLE_DAY, "_end"))
    nothing = {"numeric_value": pl.lit(None, pl.Float32), "text_value": pl.lit(None, pl.String)}
    events = died.select(
        "subject_id", time="at", code=pl.lit("MEDS_DEATH"), **nothing, visit_id=pl.lit(None, pl.Int64), recorded="at"
    )
    counts = {
        "added.patients.deaths_after_discharge": events.height,
        "repaired.patients.dod_before_last_stay": rows.filter(wrong).height,
    }
    return events, {rule: n for rule, n in counts.items() if n}
