"""In which stays predictions are asked for: of adults, of a patient's first stay, of stays in intensive care, of stays
in some years (task.stays=[2011-2016]; sources shift their dates, and few say the true year)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.readers.columns import open_declared
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.tables import columns_of
from ghar.errors import BadInput

ADULT = 18.0  # years at the start of the stay
GROUP = r"(\d{4})\D+(\d{4})"  # MIMIC-IV's anchor_year_group: "2011 - 2013"


class OfVisit(Protocol):
    """What a sample of a stay has."""

    @property
    def visit_id(self) -> int: ...


S = TypeVar("S", bound=OfVisit)


def eligible(
    samples: Sequence[S], cohort: Cohort, rules: Sequence[str], root: str | None = None
) -> tuple[list[S], dict[str, int]]:
    """The samples whose stay every rule allows, and how many each rule left out, the first rule that does.

    root: folder of the source's own tables, for years. Histories stay whole: older stays are shown whatever they are.
    BadInput where no sample is left, and for years of a source that tells none.
    """
    candidates, counts = list(samples), {}
    for rule in rules:
        allowed = stays_within(cohort, root, rule) if rule[0].isdigit() else stays_of(cohort, rule)
        kept = [sample for sample in candidates if sample.visit_id in allowed]
        counts[f"left out, task.stays={rule}"] = len(candidates) - len(kept)
        candidates = kept
    if rules and not candidates:
        left = ", ".join(f"{rule.partition('=')[2]} left out {n}" for rule, n in counts.items())
        raise BadInput(f"task.stays={list(rules)} leaves none of {len(samples)} samples ({left}): take fewer rules.")
    return candidates, counts


def stays_of(cohort: Cohort, rule: str) -> set[int]:
    """Ids of the stays that a rule allows.

    adults: 18 years or older at the start; a stay of unknown age is none. first: the earliest of a patient, of each
    hospital stay where ICU stays of different ones have no known order (eICU). icu: an ICU stay begins in it.
    """
    if rule == "first":
        by = ["subject_id", *(["group"] if "group" in cohort.visits.columns else [])]
        return set(cohort.visits.sort("start").group_by(by).first()["visit_id"].to_list())
    if rule == "icu" and cohort.stay == "ICU":
        return set(cohort.visits["visit_id"].to_list())
    wanted = (
        pl.col("code").str.starts_with("ICU_ADMISSION/")
        if rule == "icu"
        else (pl.col("code") == "AGE") & (pl.col("numeric_value") >= ADULT)
    )
    events = cohort.scan().filter(wanted).select("visit_id").drop_nulls().unique().collect()
    return set(events["visit_id"].to_list())


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
