"""A reader: stays.csv, a line a stay, codes between semicolons."""

from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort

TIME = pl.Datetime("us")


def read(root: Path) -> Cohort:
    """Read root/stays.csv: patient, stay, admitted, discharged, died, diagnoses (ICD-10-CM), drugs."""
    text = pl.read_csv(root / "stays.csv", infer_schema=False)
    rows = text.select(
        subject_id=pl.col("patient").cast(pl.Int64),
        visit_id=pl.col("stay").cast(pl.Int64),
        start=pl.col("admitted").str.to_datetime(time_unit="us"),
        end=pl.col("discharged").str.to_datetime(time_unit="us"),
        died=pl.col("died") == "yes",
        diagnoses=pl.col("diagnoses").fill_null("").str.replace_all(".", "", literal=True),
        drugs=pl.col("drugs").fill_null("").str.to_lowercase(),
    )
    visits = rows.select(
        "subject_id", "visit_id", "start", "end", "died",
        death_time=pl.when("died").then("end").otherwise(pl.lit(None, TIME)),
    ).sort("subject_id", "start")  # fmt: skip
    events = pl.concat([codes_of(rows, "diagnoses", "ICD10CM/", "end"), codes_of(rows, "drugs", "DRUG/", "start")])
    codes = events.select("code").unique().sort("code").with_columns(
        description=pl.col("code").str.split("/").list.last(), parents=pl.lit([], pl.List(pl.String))
    )
    return Cohort("registry", events.sort("subject_id", "time", "code"), codes, visits)


def codes_of(rows: pl.DataFrame, column: str, vocabulary: str, known: str) -> pl.DataFrame:
    """Events of one column of codes, which the chart knows from the start or the end of the stay on."""
    one = rows.with_columns(pl.col(column).str.split(";")).explode(column).filter(pl.col(column) != "")
    return one.select(
        "subject_id", time=pl.col(known), code=pl.lit(vocabulary) + pl.col(column).str.strip_chars(),
        numeric_value=pl.lit(None, pl.Float32), text_value=pl.lit(None, pl.String), visit_id="visit_id",
        recorded=pl.col(known),
    )  # fmt: skip
