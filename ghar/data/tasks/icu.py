"""ICU stays of a cohort, for the tasks that are defined on them and not on hospital stays."""

from __future__ import annotations

import polars as pl

from ghar.data.cohort import Cohort
from ghar.errors import BadInput

TRANSFERS, MOVED = "marked.icustays.transfers", "after a transfer"  # as ghar.data.readers.mimic.read_icu has them
ENTERS, LEAVES = "^ICU_ADMISSION(/|$)", "^ICU_DISCHARGE(/|$)"
COLUMNS = ("subject_id", "visit_id", "start", "end", "died", "death_time")


def benchmark_stays(cohort: Cohort) -> pl.DataFrame:
    """ICU stays as the MIMIC-III benchmark keeps them (Harutyunyan et al. 2019), with the columns of `icu_stays`.

    Left out: hospital stays with several ICU stays, stays that changed their unit or ward, patients below 18, stays
    without an end. `died` is a death by the end of the hospital stay, by its time. BadInput for another source.
    """
    if TRANSFERS not in cohort.counts:
        raise BadInput(
            f"The {cohort.name} tell nothing of wards, on which the benchmark's exclusions hang: choose "
            "data=mimic3, or system.stay=icu."
        )
    code = pl.col("code")
    events = cohort.scan().filter(code.str.contains(LEAVES) | (code == "AGE"))
    events = events.select("visit_id", "time", "code", "numeric_value", "text_value").collect(engine="streaming")
    moved = events.filter(code.str.contains(LEAVES) & (pl.col("text_value") == MOVED))
    children = events.filter((code == "AGE") & (pl.col("numeric_value") < 18))
    # In the benchmark's order: another ICU stay counts only if it is not left out itself.
    stays = icu_stays(cohort).join(moved, left_on=["visit_id", "end"], right_on=["visit_id", "time"], how="anti")
    stays = stays.filter(pl.len().over("visit_id") == 1, pl.col("end").is_not_null())
    stays = stays.join(children, on="visit_id", how="anti", maintain_order="left")
    ends = cohort.visits.select("visit_id", discharged="end")
    stays = stays.join(ends, on="visit_id", how="left", maintain_order="left")
    within = pl.col("died") & (pl.col("death_time") <= pl.col("discharged")).fill_null(False)
    return stays.with_columns(died=within).select(COLUMNS)


def icu_stays(cohort: Cohort) -> pl.DataFrame:
    """A row an ICU stay, in the order of `cohort.visits` and time: subject_id, visit_id, start, end, died, death_time,
    and `group` where the visits have one.

    Where a visit is a hospital stay, visit_id, died and death_time are those of the hospital stay. An ICU stay begins
    with its ICU_ADMISSION event and ends with the first ICU_DISCHARGE of the hospital stay after it, unless that comes
    after the next beginning: then `end` is unknown. Where a visit is an ICU stay (eICU) it is the visit itself. Raises
    BadInput when the cohort knows of no ICU stay.
    """
    if cohort.stay == "ICU":
        return cohort.visits.select(*COLUMNS, *(c for c in ("group",) if c in cohort.visits.columns))
    code = pl.col("code")
    rows = (
        cohort.scan()
        .filter(pl.col("visit_id").is_not_null() & pl.col("time").is_not_null() & code.str.starts_with("ICU_"))
        .select("visit_id", "time", "code")
        .collect()
    )
    opened = rows.filter(code.str.contains(ENTERS)).sort("time", maintain_order=True)
    if opened.is_empty():
        raise BadInput(f"The {cohort.name} knows of no ICU stay: choose system.stay=visit, or task.stays without icu.")
    closed = rows.filter(code.str.contains(LEAVES)).sort("time").select("visit_id", "time", end="time")
    start, end = pl.col("start"), pl.col("end")
    following = start.shift(-1).over("visit_id")
    stays = opened.join_asof(
        closed, on="time", by="visit_id", strategy="forward", allow_exact_matches=False, check_sortedness=False
    ).rename({"time": "start"})
    stays = stays.with_columns(end=pl.when((end <= following).fill_null(True)).then(end))
    # A discharge at the minute of a beginning ends the stay before, where there is one; else this stay had no length.
    taken = (end.shift().over("visit_id") == start).fill_null(False)
    at_once = closed.select("visit_id", start="time", _at_once="end").unique()
    stays = stays.with_columns(_taken=taken).join(at_once, on=["visit_id", "start"], how="left", maintain_order="left")
    stays = stays.with_columns(end=pl.coalesce(end, pl.when(~pl.col("_taken")).then("_at_once")))
    about = cohort.visits.select("subject_id", "visit_id", "died", "death_time").with_row_index("_visit")
    joined = stays.join(about, on="visit_id", how="inner", maintain_order="left")
    return joined.sort("_visit", "start", maintain_order=True).select(COLUMNS)
