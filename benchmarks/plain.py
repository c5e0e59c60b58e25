"""The yardstick of benchmarks/data.py: the same files and labels in plain polars, as one would write it for once.

No rules for bad rows, no recording times, no cache, no samples, no text: python benchmarks/plain.py ROOT OUT
writes OUT/labels.parquet (task, visit_id, label) and OUT/visits.parquet (visit_id and how many different codes).
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

SECOND = "%Y-%m-%d %H:%M:%S"


def scan(root: Path, name: str, columns: str, times: str = "") -> pl.LazyFrame:
    """Columns of a table; those named in `times` parsed."""
    rows = pl.scan_csv(root / f"{name}.csv.gz", infer_schema=False).select(columns.split())
    return rows.with_columns(pl.col(times.split()).str.to_datetime(SECOND, time_unit="us"))


def read(root: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Admissions by patient and time, and the lists of different codes of each of them, in the order of time."""
    keys = "subject_id hadm_id"
    admissions = scan(root, "hosp/admissions", f"{keys} admittime dischtime deathtime", "admittime dischtime deathtime")
    stays = admissions.with_columns(pl.col("subject_id", "hadm_id").cast(pl.Int64)).collect()
    stays = stays.sort("subject_id", "admittime")
    code = pl.concat_str("icd_version", pl.lit("/"), "icd_code")
    coded = {
        "diagnoses": scan(root, "hosp/diagnoses_icd", f"{keys} seq_num icd_code icd_version").select(
            "hadm_id", code=code, time=pl.lit(None, pl.Datetime("us"))
        ),
        "procedures": scan(root, "hosp/procedures_icd", f"{keys} chartdate icd_code icd_version").select(
            "hadm_id", code=code, time=pl.col("chartdate").str.to_datetime("%Y-%m-%d", time_unit="us")
        ),
        "medications": scan(root, "hosp/prescriptions", f"{keys} starttime drug", "starttime").select(
            "hadm_id", code=pl.col("drug").str.strip_chars().str.to_lowercase(), time="starttime"
        ),
    }
    visits = stays.lazy().select(visit_id="hadm_id")
    for kind, rows in coded.items():
        lists = (
            rows.with_columns(pl.col("hadm_id").cast(pl.Int64))
            .sort("time", maintain_order=True)
            .group_by("hadm_id", maintain_order=True)
            .agg(pl.col("code").unique(maintain_order=True).alias(kind))
        )
        visits = visits.join(lists, left_on="visit_id", right_on="hadm_id", how="left", maintain_order="left")
    labs = scan(root, "hosp/labevents", f"{keys} itemid charttime storetime value valuenum", "charttime storetime")
    labs = labs.with_columns(pl.col("subject_id", "hadm_id", "itemid").cast(pl.Int64), pl.col("valuenum").cast(float))
    results = labs.sort("subject_id", "charttime").collect()
    per_visit = results.lazy().group_by("hadm_id").agg(labs=pl.len())
    visits = visits.join(per_visit, left_on="visit_id", right_on="hadm_id", how="left", maintain_order="left")
    return stays, visits.collect()


def labels(stays: pl.DataFrame) -> pl.DataFrame:
    """Length of stay in 10 classes, readmission in 15 days, death within the last 24 hours."""
    start, end, died = pl.col("admittime"), pl.col("dischtime"), pl.col("deathtime").is_not_null()
    days = (end - start).dt.total_days()
    gap = start.shift(-1).over("subject_id") - end
    anchor = pl.max_horizontal(pl.coalesce("deathtime", end) - pl.duration(days=1), start)
    dies = died & (pl.col("deathtime") - anchor <= pl.duration(days=1))
    every = stays.with_columns(
        los=pl.when(days > 14).then(9).when(days > 7).then(8).otherwise(days).cast(pl.Int64),
        read=pl.when(~died & (gap >= pl.duration())).then((gap <= pl.duration(days=15)).cast(pl.Int64)),
        dec=dies.cast(pl.Int64),
    )
    tasks = every.select(visit_id="hadm_id", los="los", read="read", dec="dec")
    return tasks.unpivot(index="visit_id", variable_name="task", value_name="label").drop_nulls()


if __name__ == "__main__":
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    stays, visits = read(source)
    labels(stays).write_parquet(out / "labels.parquet")
    lists = pl.col("diagnoses", "procedures", "medications").list.len().fill_null(0)
    visits.select("visit_id", lists).write_parquet(out / "visits.parquet")
