"""ICU stays of a cohort, for the tasks that are defined on them and not on hospital stays."""

from __future__ import annotations

import polars as pl

from ghar.data.cohort import Cohort
from ghar.errors import BadInput

ENTERS, LEAVES = "^ICU_ADMISSION(/|$)", "^ICU_DISCHARGE(/|$)"
COLUMNS = ("subject_id", "visit_id", "start", "end", "died", "death_time")


def icu_stays(cohort: Cohort) -> pl.DataFrame:
    """A row an ICU stay, in the order of `cohort.visits` and time: subject_id, visit_id, start, end, died, death_time,
    and `group` where the visits have one.

    Where a visit is a hospital stay, visit_id, died and death_time are those of the hospital stay. An ICU stay begins
    with its ICU_ADMISSION event and ends with the first ICU_DISCHARGE of the hospital stay after it, unless that comes
    after the next beginning: then `end` is null. Where a visit is an ICU stay (eICU) it is the visit itself. Raises
    BadInput when the cohort knows of no ICU stay.
    """
    if cohort.stay == "ICU":
        return cohort.visits.select(*COLUMNS, *(c for c in ("group",) if c in cohort.visits.columns))
    code = pl.col("code")
    rows = (
        cohort.events.lazy()
        .filter(pl.col("visit_id").is_not_null() & pl.col("time").is_not_null() & code.str.starts_with("ICU_"))
        .select("visit_id", "time", "code")
        .collect()
    )
    opened = rows.filter(code.str.contains(ENTERS)).sort("time", maintain_order=True)
    if opened.is_empty():
        raise BadInput(f"The {cohort.name} knows of no ICU stay: choose stay=visit.")
    closed = rows.filter(code.str.contains(LEAVES)).sort("time").select("visit_id", "time", end="time")
    following = pl.col("start").shift(-1).over("visit_id")
    stays = opened.join_asof(closed, on="time", by="visit_id", strategy="forward", check_sortedness=False)
    stays = stays.rename({"time": "start"}).with_columns(
        end=pl.when((pl.col("end") <= following).fill_null(True)).then("end")
    )
    about = cohort.visits.select("subject_id", "visit_id", "died", "death_time").with_row_index("_visit")
    joined = stays.join(about, on="visit_id", how="inner", maintain_order="left")
    return joined.sort("_visit", "start", maintain_order=True).select(COLUMNS)
