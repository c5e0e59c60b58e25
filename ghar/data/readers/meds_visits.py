"""Visits of a MEDS folder that comes without a table of them: from the events that open and close a stay.

A stay is opened by a code like HOSPITAL_ADMISSION//..., HOSPITALIZATION_START, ENCOUNTER_ADMIT or ADMISSION//..., and
closed by HOSPITAL_DISCHARGE//..., ENCOUNTER_END, DISCHARGE//... (MIMIC_IV_MEDS, eICU-MEDS and their kin), or by what
data.vocabulary names. An OMOP-like inpatient event (Visit/IP, Visit/ERIP), one of OMOP_MEDS (visit//...) and
MIMIC_IV_Admission/... with a time in the column `end` are both; outpatient ones are no visits. Rules, in order:

which belong together   events of a patient with the same visit_id (or hadm_id, encounter_id, visit_occurrence_id) are
                        one stay: its first opening, its last closing. Without an identifier an opening goes with the
                        first closing at or after it and not after the subject's next opening; several openings at one
                        time are one. Identifiers that several patients share (eICU-MEDS: the hospital's) are not the
                        visits' numbers.
unknown end             no closing, or one before the opening ("visits_without_discharge"): `end` is null.
death                   died in the stay when MEDS_DEATH comes after its start, not after the day of its end (discharges
                        are often dated to the midnight before the death) and before the next stay, or when the closing
                        code says DIED, EXPIRED or DECEASED. Of several deaths of a patient one is true (deaths.py).
events                  belong to the stay their identifier names, else to the last one that began at or before them and
                        had not ended; an order of a drug that lies in no stay, to the one that begins within a day,
                        else to the one that ended within a day (trap 3); static events and all others to none
                        ("events_without_visit").
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from ghar.data.readers.deaths import WHOLE_DAY, sound_deaths

KEYS = ("visit_id", "hadm_id", "encounter_id", "visit_occurrence_id")
OPENS = (
    r"(?i)^((HOSPITAL|HOSPITALIZATION|ENCOUNTER|INPATIENT)[_/]+(ADMISSION|ADMIT|START)([_/]|$)|ADMISSION(/|$)"
    r"|ADMISSION-AT-HOSPITAL(/|$))"
)
CLOSES = (
    r"(?i)^((HOSPITAL|HOSPITALIZATION|ENCOUNTER|INPATIENT)[_/]+(DISCHARGE|END|STOP)([_/]|$)|DISCHARGE(/|$)"
    r"|DISCHARGE-FROM-HOSPITAL(/|$)|MIMIC_IV_DISCHARGE_LOCATION/)"
)
SPANS = r"(?i)^(VISIT/(IP|ERIP)$|VISIT//|MIMIC_IV_ADMISSION/)"
DEADLY = r"(?i)DIED|EXPIRED|DECEASED"
DEATH = r"^MEDS_DEATH"
CountedRows = tuple[pl.DataFrame, dict[str, int]]


def tells_of_stays(opens: str | None = None, closes: str | None = None) -> pl.Expr:
    """Whether an event opens or closes a stay, or is a death: the only ones that `visits_from_events` looks at.

    opens, closes: further patterns of codes that do.
    """
    rules = [rule for rule in (OPENS, CLOSES, SPANS, DEATH, opens, closes) if rule is not None]
    return pl.any_horizontal(pl.col("code").str.contains(rule) for rule in rules)


def visits_from_events(events: pl.DataFrame, opens: str | None = None, closes: str | None = None) -> CountedRows:
    """`Cohort.visits` by the rules of this module, with the source's identifier in the further column `_key`, and
    counts; no such event means no visit."""
    rows = events.filter(pl.col("time").is_not_null()).with_columns(_key=key_of(events))
    opened, closed = (
        pl.any_horizontal(pl.col("code").str.contains(rule) for rule in rules if rule is not None)
        for rules in ((OPENS, SPANS, opens), (CLOSES, closes))
    )
    starts = rows.filter(opened).with_columns(
        own_end=pl.col("end") if "end" in rows.columns else pl.lit(None, pl.Datetime("us"))
    )
    ends = rows.filter(closed).with_columns(deadly=pl.col("code").str.contains(DEADLY))
    stays = pl.concat([_by_key(starts, ends), _by_order(starts, ends)]).sort("subject_id", "start", "_key")
    shared = stays["_key"].drop_nulls().is_duplicated().any()
    number = pl.lit(None, pl.Int64) if shared else pl.col("_key")
    unused = stays.select(number.max().fill_null(0) + 1).item() if stays.height else 1
    stays = stays.with_columns(
        visit_id=pl.coalesce(number, unused + pl.int_range(pl.len())),
        end=pl.when(pl.col("end") >= pl.col("start")).then("end"),
    )
    visits = with_deaths(stays, events)
    no_end = visits["end"].null_count()
    counts = {"visits_derived": visits.height, "visits_without_discharge": no_end}
    counts["visit_identifiers_of_several_patients"] = int(shared)
    return visits, {rule: n for rule, n in counts.items() if n}


def place_events(events: pl.DataFrame, visits: pl.DataFrame) -> CountedRows:
    """`events` with the visit_id of `visits` they belong to. Column role: "order" of a drug, where there is one."""
    spans = visits.select("subject_id", "start", "end", _by_time="visit_id").sort("start")
    stay_keys = visits.select("subject_id", "_key", _by_key="visit_id").drop_nulls("_key")
    rows = events.with_row_index("_row").with_columns(_key=key_of(events))
    timed = rows.filter(pl.col("time").is_not_null()).select("_row", "subject_id", "time").sort("time")
    inside = timed.join_asof(
        spans, left_on="time", right_on="start", by="subject_id", strategy="backward", check_sortedness=False
    ).filter((pl.col("time") <= pl.col("end")).fill_null(pl.col("_by_time").is_not_null()))
    placed = (
        rows.join(inside.select("_row", "_by_time"), on="_row", how="left")
        .join(stay_keys, on=["subject_id", "_key"], how="left")
        .sort("_row")
        .with_columns(visit_id=pl.coalesce("_by_key", "_by_time"))
    )
    if "role" in events.columns:
        outside = pl.col("visit_id").is_null() & pl.col("time").is_not_null()
        orders = placed.filter((pl.col("role") == "order") & outside)
        near = _nearest(orders.select("_row", "subject_id", "time"), visits)
        placed = placed.join(near, on="_row", how="left", maintain_order="left")
        placed = placed.with_columns(visit_id=pl.coalesce("visit_id", "_near")).drop("_near")
    placed = placed.drop("_row", "_key", "_by_key", "_by_time")
    return placed, {"events_without_visit": placed["visit_id"].null_count()}


def key_of(events: pl.DataFrame) -> pl.Expr:
    """The source's identifier of an event's stay, null where there is none."""
    there = [name for name in KEYS if name in events.columns]
    return pl.coalesce(there) if there else pl.lit(None, pl.Int64)


def _nearest(rows: pl.DataFrame, visits: pl.DataFrame) -> pl.DataFrame:
    """_row and _near: the visit that begins at most a day after a row's time, else the last that ended a day before."""
    begins = visits.select("subject_id", time="start", _next="visit_id").sort("time")
    ended = visits.select("subject_id", time="end", _last="visit_id").drop_nulls("time").sort("time")
    day = timedelta(days=1)
    same = {"on": "time", "by": "subject_id", "tolerance": day, "check_sortedness": False}
    rows = rows.sort("time").join_asof(begins, strategy="forward", **same)
    rows = rows.join_asof(ended, strategy="backward", **same)
    return rows.select("_row", _near=pl.coalesce("_next", "_last"))


def _by_key(starts: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Stays whose events carry an identifier: subject_id, _key, start, end, deadly."""
    keyed = pl.col("_key").is_not_null()
    opened = starts.filter(keyed).group_by("subject_id", "_key").agg(pl.min("time").alias("start"), pl.max("own_end"))
    closed = ends.filter(keyed).group_by("subject_id", "_key").agg(pl.max("time").alias("end"), pl.any("deadly"))
    stays = opened.join(closed, on=["subject_id", "_key"], how="left")
    return stays.select("subject_id", "_key", "start", end=pl.coalesce("end", "own_end"), deadly="deadly")


def _by_order(starts: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Stays whose events carry none: each opening with the first closing after it, up to the next opening."""
    bare, subject = pl.col("_key").is_null(), "subject_id"
    opened = starts.filter(bare).group_by(subject, pl.col("time").alias("start")).agg(pl.max("own_end"))
    opened = opened.sort(subject, "start").with_columns(next=pl.col("start").shift(-1).over(subject))
    closed = ends.filter(bare).group_by(subject, pl.col("time").alias("end")).agg(pl.any("deadly")).sort("end")
    stays = opened.sort("start").join_asof(
        closed,
        left_on="start",
        right_on="end",
        by=subject,
        strategy="forward",
        allow_exact_matches=False,
        check_sortedness=False,
    )
    mine = (pl.col("end") <= pl.col("next")).fill_null(pl.col("end").is_not_null())
    stays = stays.sort(subject, "start").with_columns(
        end=pl.when(mine).then("end"), deadly=pl.when(mine).then("deadly")
    )
    # A closing at the minute of an opening ends the stay before, where there is one; else this stay had no length.
    taken = (pl.col("end").shift().over(subject) == pl.col("start")).fill_null(False)
    at_once = closed.select(subject, start="end", _end="end", _deadly="deadly")
    stays = stays.with_columns(taken=taken).join(at_once, on=[subject, "start"], how="left", maintain_order="left")
    late = pl.col("end").is_null() & ~pl.col("taken")
    return stays.select(
        subject,
        _key=pl.lit(None, pl.Int64),
        start="start",
        end=pl.coalesce("own_end", pl.when(late).then("_end").otherwise("end")),
        deadly=pl.when(late).then("_deadly").otherwise("deadly"),
    )


def deaths_of(events: pl.DataFrame, stays: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """`sound_deaths` of the death events among `events`."""
    return sound_deaths(events.filter(pl.col("code").str.contains(DEATH)).select("subject_id", "time"), stays)


def with_deaths(stays: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """`Cohort.visits` with the further column `_key`, by the rules of this module.

    stays: subject_id, visit_id, start, end, deadly (whether the source says so at the closing), _key, in order.
    """
    deaths = deaths_of(events, stays)[0].group_by("subject_id").agg(pl.min("time").alias("death"))
    death, start, end = pl.col("death"), pl.col("start"), pl.col("end")
    is_date = death == death.dt.truncate("1d")
    latest = pl.when(is_date).then(pl.min_horizontal(death + WHOLE_DAY, end)).otherwise(death)
    in_time = (death.dt.date() <= end.dt.date()).fill_null(True) & (death < pl.col("next")).fill_null(True)
    inside = (in_time & (pl.when(is_date).then(death + WHOLE_DAY).otherwise(death) >= start)).fill_null(False)
    died = inside | pl.col("deadly").fill_null(False)
    at = pl.max_horizontal(pl.when(inside).then(latest).otherwise(end), start)
    joined = stays.with_columns(next=start.shift(-1).over("subject_id"))
    joined = joined.join(deaths, on="subject_id", how="left", maintain_order="left")
    rows = joined.select(
        "subject_id", "visit_id", "start", "end", died=died, death_time=pl.when(died).then(at), _key="_key"
    )
    return rows.sort("subject_id", "start", "visit_id")
