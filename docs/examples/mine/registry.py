"""A reader: stays.csv, a line a stay, codes between semicolons."""

from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.readers.own_source import build_cohort


def read(root: Path) -> Cohort:
    """Read root/stays.csv: patient, stay, admitted, discharged, died, diagnoses (ICD-10-CM), drugs."""
    text = pl.read_csv(root / "stays.csv", infer_schema=False).with_columns(
        pl.col("admitted", "discharged").str.to_datetime(time_unit="us"), pl.col("died") == "yes",
        pl.col("diagnoses").str.replace_all(".", "", literal=True), pl.col("drugs").str.to_lowercase(),
    )  # fmt: skip
    names = {"patient": "subject_id", "stay": "visit_id", "admitted": "start", "discharged": "end"}
    stays = text.rename(names).with_columns(pl.col("subject_id", "visit_id").cast(pl.Int64))
    events = [codes_of(stays, "diagnoses", "ICD10CM/", "end"), codes_of(stays, "drugs", "DRUG/", "start")]
    return build_cohort("registry", stays, pl.concat(events))


def codes_of(stays: pl.DataFrame, column: str, vocabulary: str, known: str) -> pl.DataFrame:
    """Events of a column of codes, which the chart knows from the start or the end of the stay on."""
    rows = stays.select("visit_id", time=known, code=pl.col(column).str.split(";")).explode("code")
    return rows.filter(pl.col("code") != "").with_columns(code=pl.lit(vocabulary) + pl.col("code").str.strip_chars())
