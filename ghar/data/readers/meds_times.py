"""Times of a MEDS folder's facts: facts without a time, ages from dates of birth, and one death a patient."""

from __future__ import annotations

import polars as pl

# Codes of the house that are measured or done at some time; those of a kind are too.
CLINICAL = "^(LAB|VITAL|CHART|GIVEN|SPECIMEN|ICU_ADMISSION|ICU_DISCHARGE|LOINC)(/|$)"


def timed(some: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Events without clinical facts of no time, and how many these were; a fact without a time that became known at
    one, as codes of a stay do at its end, has that time."""
    lost = pl.col("time").is_null() & pl.col("_clinical")
    if not some.select(lost.any()).item():
        return some.drop("_clinical"), 0
    dated = some.with_columns(time=pl.when(lost).then("recorded").otherwise("time"))
    kept = dated.filter(~lost).drop("_clinical").sort("subject_id", "time", maintain_order=True)
    return kept, some.height - kept.height


def with_ages(some: pl.DataFrame, visits: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Events with an "AGE" at each admission, in whole years since MEDS_BIRTH, 90 for all above 89; and their count."""
    births = some.filter(pl.col("code") == "MEDS_BIRTH").group_by("subject_id").agg(_born=pl.col("time").min())
    start, born = pl.col("start"), pl.col("_born")
    before = _day_of_year(start) < _day_of_year(born)
    years = start.dt.year() - born.dt.year() - before.cast(pl.Int32)
    rows = visits.join(births.drop_nulls(), on="subject_id").with_columns(_years=years).filter(pl.col("_years") >= 0)
    number = pl.when(pl.col("_years") > 89).then(90).otherwise("_years").cast(pl.Float32)
    values = {"time": start, "recorded": start, "numeric_value": number, "code": pl.lit("AGE")}
    ages = rows.select("subject_id", "visit_id", **values)
    whole = pl.concat([some, ages.cast({"subject_id": some.schema["subject_id"]})], how="diagonal")
    return whole.sort("subject_id", "time", maintain_order=True), ages.height


def _day_of_year(time: pl.Expr) -> pl.Expr:
    return time.dt.month().cast(pl.Int32) * 100 + time.dt.day()


def true_deaths(some: pl.DataFrame, deaths: pl.DataFrame) -> pl.DataFrame:
    """Events without deaths that contradict the stays or repeat another death (deaths.py)."""
    death = pl.col("code").str.contains("^MEDS_DEATH")
    if not some.select(death.any()).item():
        return some
    true = deaths.with_columns(_true=True)
    rows = some.join(true, on=["subject_id", "time"], how="left", maintain_order="left")
    return rows.filter(~death | pl.col("_true").fill_null(False) | pl.col("time").is_null()).drop("_true")
