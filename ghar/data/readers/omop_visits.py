"""Persons, visits, deaths and intensive care of the OMOP CDM, by the rules of omop.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ghar.data.readers.columns import open_declared
from ghar.data.readers.deaths import DEATH, WHOLE_DAY, is_date, sound_deaths
from ghar.data.readers.events import CountedRows, event
from ghar.data.readers.meds_visits import DEADLY
from ghar.data.readers.mimic import demographics, whole_years
from ghar.data.readers.omop_columns import OMOP
from ghar.data.readers.omop_concepts import below
from ghar.data.readers.tables import YEARS, SourceTable, find_table, sift
from ghar.errors import BadInput

INPATIENT, EMERGENCY, OUTPATIENT, INTENSIVE = (9201, 262, 8717), (9203,), (9202,), (32037, 581379)
DIED = (4216643, 4306655, 44814686)  # patient died, death, deceased
SEXES = {8532: "F", 8507: "M"}
MIDNIGHTS = 1_000_000  # rows whose datetimes say whether a table has times of day


@dataclass(frozen=True)
class Moment:
    """When a row was: `time`, at midnight where the day is all that is said; `last`, the last second at which it can
    have been; `moved`, whether its datetime is of another day."""

    time: pl.Expr
    last: pl.Expr
    moved: pl.Expr


def moment(table: SourceTable, name: str) -> Moment:
    """Of the columns NAME_date and, where the table has it, NAME_datetime."""
    day = pl.col(f"{name}_date").dt.truncate("1d")
    if f"{name}_datetime" not in table.columns:
        return Moment(day, day + WHOLE_DAY, pl.lit(False))
    at = pl.col(f"{name}_datetime")
    moved = at.dt.date() != day.dt.date()
    time = pl.when(~moved.fill_null(False)).then(at)
    timed = time.is_not_null() & pl.lit(_has_times(table, f"{name}_datetime"))
    whole = pl.coalesce(time, day)
    return Moment(whole, pl.when(timed).then(time).otherwise(whole.dt.truncate("1d") + WHOLE_DAY), moved)


def _has_times(table: SourceTable, column: str) -> bool:
    """Whether a datetime of the first rows is at another time of day than midnight."""
    cell = pl.col(column)
    try:
        timed = table.rows.select(column).head(MIDNIGHTS).select((cell != cell.dt.truncate("1d")).any())
        return bool(timed.collect(engine="streaming").item())
    except (pl.exceptions.PolarsError, OSError):
        return True  # whoever reads the rows says what is wrong


def optional(table: SourceTable, *names: str) -> pl.Expr:
    """The first of the columns that a table has; null where it has none of them."""
    there = [pl.col(name) for name in names if name in table.columns]
    return pl.coalesce(there) if there else pl.lit(None, OMOP.tables[table.name].types[names[0]])


def read_people(root: Path) -> CountedRows:
    """subject_id, gender ("F", "M" or null), born."""
    table = open_declared(root, OMOP, "person")
    year, month, day = (optional(table, f"{part}_of_birth") for part in ("year", "month", "day"))
    written = [
        (year, pl.coalesce(month, 1), pl.coalesce(day, 1)),
        (year, pl.lit(1), pl.lit(1)),
    ]
    # a day that there is not, as 30 February, leaves the year
    days = [pl.concat_str(*parts, separator="-").str.to_date("%Y-%m-%d", strict=False) for parts in written]
    sound = year.is_between(*YEARS)
    dated = pl.when(sound).then(pl.coalesce(days)).cast(pl.Datetime("us"))
    letter = optional(table, "gender_source_value").str.strip_chars().str.to_uppercase().str.slice(0, 1)
    sex = pl.col("gender_concept_id").replace_strict(SEXES, default=None, return_dtype=pl.String)
    sex = pl.coalesce(sex, pl.when(letter.is_in(list(SEXES.values()))).then(letter), pl.lit(""))
    drops = {"no_id": pl.col("person_id").is_null(), "repeated": ~pl.col("person_id").is_first_distinct()}
    exact = optional(table, "birth_datetime")
    born = pl.coalesce(exact, dated)
    repairs = {
        "no_date_of_birth": born.is_null(),
        "year_of_birth_alone": exact.is_null() & sound & (month.is_null() | days[0].is_null()),
    }
    result = [pl.col("person_id").alias("subject_id"), sex.alias("gender"), born.alias("born")]
    people, counts = sift(table, table.rows, drops, repairs, result)
    if people.is_empty():
        raise BadInput(f"{table.path} lists no person: copy the table again.")
    return people, counts


def read_visits(root: Path, people: pl.DataFrame, concepts: pl.DataFrame, above: pl.DataFrame) -> CountedRows:
    """Visits of every kind: subject_id, visit_id, start, end, deadly, inpatient; all but those of inpatients count as
    dropped, for they are no visits of the cohort."""
    table = open_declared(root, OMOP, "visit_occurrence")
    begin, finish, kind = moment(table, "visit_start"), moment(table, "visit_end"), pl.col("visit_concept_id")
    start, end = begin.time, finish.last
    is_deadly = optional(table, "discharged_to_source_value", "discharge_to_source_value").str.contains(DEADLY)
    ends_dead = [*DIED, *concepts.filter(pl.col("name").str.contains(DEADLY))["concept_id"]]
    dead = optional(table, "discharged_to_concept_id", "discharge_to_concept_id").is_in(ends_dead)
    drops = {
        "no_id": pl.col("visit_occurrence_id").is_null(),
        "repeated": ~pl.col("visit_occurrence_id").is_first_distinct(),
        "unknown_person": pl.col("known").is_null(),
        "no_start": start.is_null(),
    }
    repairs = {
        "no_end": end.is_null(),
        "end_before_start": end < start,
        "datetime_of_another_day": (begin.moved | finish.moved).fill_null(False),
    }
    kinds = {"inpatient": INPATIENT, "emergency": EMERGENCY, "outpatient": OUTPATIENT}
    sorts = {concept: name for name, ids in kinds.items() for concept in below(above, ids)}
    result = [
        pl.col("person_id").alias("subject_id"),
        pl.col("visit_occurrence_id").alias("visit_id"),
        start.alias("start"),
        pl.when(end >= start).then(end).alias("end"),
        (is_deadly.fill_null(False) | dead.fill_null(False)).alias("deadly"),
        pl.when(kind.fill_null(0) == 0).then(pl.lit("no_kind"))
        .otherwise(kind.replace_strict(sorts, default="other_kind", return_dtype=pl.String)).alias("kind"),
    ]  # fmt: skip
    visits, counts = sift(table, of_people(table, people), drops, repairs, result)
    for name, height in visits["kind"].value_counts().sort("kind").iter_rows():
        counts |= {f"dropped.visit_occurrence.{name}": height} if name != "inpatient" else {}
    visits = visits.with_columns(inpatient=pl.col("kind") == "inpatient").drop("kind")
    return visits.sort("subject_id", "start", "visit_id"), counts


def of_people(table: SourceTable, people: pl.DataFrame) -> pl.LazyFrame:
    """Rows with the column `known`, null where person_id is of no person."""
    subjects = people.lazy().select(person_id="subject_id", known=True)
    return table.rows.join(subjects, on="person_id", how="left", maintain_order="left")


def read_deaths(root: Path, people: pl.DataFrame, visits: pl.DataFrame) -> CountedRows:
    """subject_id, time, code of the deaths that can be true."""
    if find_table(root, "death") is None:
        return pl.DataFrame(schema={"subject_id": pl.Int64, "time": pl.Datetime("us"), "code": pl.String}), {
            "absent.death": 1
        }
    table = open_declared(root, OMOP, "death")
    at = moment(table, "death")
    drops = {"unknown_person": pl.col("known").is_null(), "no_date": at.time.is_null()}
    result = [pl.col("person_id").alias("subject_id"), at.time.alias("time")]
    rows, counts = sift(table, of_people(table, people), drops, {"datetime_of_another_day": at.moved}, result)
    deaths, against = sound_deaths(rows, visits.filter("inpatient"))
    counts |= {"repaired.death.before_last_visit": against} if against else {}
    return deaths.with_columns(code=pl.lit(DEATH)), counts


def deaths_outside(deaths: pl.DataFrame, visits: pl.DataFrame) -> CountedRows:
    """Events of the deaths of patients who died in no visit; a date stands for its last second."""
    alive = deaths.join(visits.filter("died"), on="subject_id", how="anti").group_by("subject_id").agg(pl.min("time"))
    late = pl.when(is_date()).then(pl.col("time") + WHOLE_DAY).otherwise("time")
    rows = alive.sort("subject_id").with_columns(time=late, visit=pl.lit(None, pl.Int64))
    events = rows.select(event(pl.col("time"), pl.lit(DEATH), pl.col("time"), visit="visit"))
    return events, {"added.death.outside_of_visits": events.height} if events.height else {}


def read_demographics(people: pl.DataFrame, visits: pl.DataFrame) -> CountedRows:
    """Events of sex and age."""
    events, counts = demographics(people, visits, whole_years(pl.col("born"), pl.col("start")))
    names = {"patients": "person", "admissions": "visit_occurrence"}
    return events, {".".join(names.get(part, part) for part in rule.split(".")): n for rule, n in counts.items()}


def read_intensive_care(root: Path, visits: pl.DataFrame, concepts: pl.DataFrame, above: pl.DataFrame) -> CountedRows:
    """Stays in intensive care by visit_detail: an event at the start, which does not carry the end, and one at the end.
    A unit has the name of its care site, else the source's value, else that of its concept."""
    if find_table(root, "visit_detail") is None:
        return pl.DataFrame(schema={"subject_id": pl.Int64}), {"absent.visit_detail": 1}
    table = open_declared(root, OMOP, "visit_detail")
    enters = moment(table, "visit_detail_start")
    leaves = moment(table, "visit_detail_end").last if "visit_detail_end_date" in table.columns else pl.lit(None)
    spans = visits.filter("inpatient").lazy()
    rows = table.rows.join(
        spans.select(visit_occurrence_id="visit_id", subject_id="subject_id"),
        on="visit_occurrence_id", how="left", maintain_order="left",
    )  # fmt: skip
    rows = rows.with_columns(care_site_id=optional(table, "care_site_id"))
    rows = rows.join(_care_sites(root), on="care_site_id", how="left", maintain_order="left")
    kinds = concepts.lazy().select(visit_detail_concept_id="concept_id", _kind="name")
    rows = rows.join(kinds, on="visit_detail_concept_id", how="left", maintain_order="left")
    source_unit = optional(table, "visit_detail_source_value").str.strip_chars()
    unit = pl.coalesce("_site", pl.when(source_unit != "").then(source_unit), "_kind", pl.lit("UNKNOWN"))
    drops = {
        "other_unit": ~pl.col("visit_detail_concept_id").is_in(below(above, INTENSIVE)).fill_null(False),
        "unknown_visit": pl.col("subject_id").is_null(),
        "visit_of_another_person": pl.col("subject_id") != pl.col("person_id"),
        "no_start": enters.time.is_null(),
    }
    code = pl.concat_str(pl.lit("ICU_ADMISSION/"), unit)
    result = [*event(enters.time, code, enters.last, visit="visit_occurrence_id"), leaves.alias("leaves")]
    repairs = {"no_end": leaves.is_null(), "end_before_start": leaves < enters.time}
    stays, counts = sift(table, rows, drops, repairs, result)
    ended = stays.filter(pl.col("leaves") >= pl.col("time"))
    ended = ended.with_columns(code=pl.lit("ICU_DISCHARGE"), time="leaves", recorded="leaves")
    counts |= {"added.visit_detail.discharges": ended.height} if ended.height else {}
    return pl.concat([stays, ended]).drop("leaves"), counts


def _care_sites(root: Path) -> pl.LazyFrame:
    """care_site_id and its name _site."""
    if find_table(root, "care_site") is None:
        return pl.LazyFrame(schema={"care_site_id": pl.Int64, "_site": pl.String})
    name = pl.col("care_site_name").str.strip_chars()
    rows = open_declared(root, OMOP, "care_site").rows.select("care_site_id", _site=pl.when(name != "").then(name))
    return rows.drop_nulls().unique("care_site_id", keep="first", maintain_order=True)
