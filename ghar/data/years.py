"""In which years stays were, for task.stays=[2011-2016]; sources shift their dates, and few say the true year."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.readers.columns import open_declared
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.tables import columns_of
from ghar.errors import BadInput

GROUP = r"(\d{4})\D+(\d{4})"  # "2011 - 2013"


def stays_within(cohort: Cohort, root: str | None, span: str) -> set[int]:
    """Ids of the stays that were in the years `span` ("2011-2016", "2014") for certain.

    MIMIC-IV tells three years in which a patient's anchor year lies (anchor_year_group), and a stay as many years
    after them as it is after the anchor year: all three must be in the span. eICU tells the year of the hospital
    discharge. root: folder of the source's own tables. BadInput for a source that tells no years.
    """
    first, last = int(span[:4]), int(span[-4:])
    years = None if root is None else _years(cohort, Path(root))
    if years is None:
        raise BadInput(
            f"task.stays has years ({span}), and the {cohort.name} do not say in which years their stays were, as "
            "MIMIC-IV (anchor_year_group) and eICU (hospitaldischargeyear) do: leave the years out."
        )
    inside = years.filter((pl.col("first") >= first) & (pl.col("last") <= last))
    return set(inside["visit_id"].to_list())


def _years(cohort: Cohort, root: Path) -> pl.DataFrame | None:
    """visit_id, and the first and last year in which the stay may have been; None where the source says none."""
    if "anchor_year_group" in columns_of(root, "hosp/patients"):
        wanted = ["subject_id", "anchor_year", "anchor_year_group"]
        people = open_declared(root, MIMIC4, "hosp/patients", wanted).rows.collect().unique("subject_id", keep="first")
        stays = cohort.visits.join(people, on="subject_id", how="left", maintain_order="left")
        group = pl.col("anchor_year_group").str.extract_groups(GROUP)
        since = pl.col("start").dt.year() - pl.col("anchor_year")
        bounds = {name: group.struct[i].cast(pl.Int64) + since for i, name in enumerate(("first", "last"))}
        return stays.select("visit_id", **bounds)
    if "hospitaldischargeyear" in columns_of(root, "patient"):
        rows = open_declared(root, EICU, "patient", ["patientunitstayid", "hospitaldischargeyear"]).rows.collect()
        year = pl.col("hospitaldischargeyear")
        return rows.select(visit_id="patientunitstayid", first=year, last=year)
    return None
