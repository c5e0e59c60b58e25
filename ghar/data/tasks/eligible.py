"""In which stays predictions are asked for: of adults, of a patient's first stay, of stays in intensive care, of stays
in some years."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.years import stays_within
from ghar.errors import BadInput

ADULT = 18.0  # years at the start of the stay


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
