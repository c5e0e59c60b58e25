"""A source of the user's own: data=PACKAGE.MODULE, whose `read(root)` returns a Cohort (docs/extending.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from ghar.data.cohort import Cohort
from ghar.errors import BadInput
from ghar.extensions import import_module

TIME = pl.Datetime("us")
EVENTS = {
    "subject_id": pl.Int64, "time": TIME, "code": pl.String, "numeric_value": pl.Float32, "text_value": pl.String,
    "visit_id": pl.Int64, "recorded": TIME,
}  # fmt: skip
CODES = {"code": pl.String, "description": pl.String, "parents": pl.List(pl.String)}
VISITS = {
    "subject_id": pl.Int64, "visit_id": pl.Int64, "start": TIME, "end": TIME, "died": pl.Boolean, "death_time": TIME,
}  # fmt: skip

VISITS_ORDER = ("subject_id", "start")


def read_own(name: str, root: Path) -> Cohort:
    """Read and check the cohort of module `name`. BadInput for a module or a cohort that lacks something."""
    cohort = import_module("data", name, "read").read(root)
    if not isinstance(cohort, Cohort):
        raise BadInput(f"data={name}: read(root) returns {type(cohort).__name__}, not a ghar.data.cohort.Cohort.")
    for wrong in faults(cohort):
        raise BadInput(f"data={name}: {wrong}")
    return cohort


def build_cohort(name: str, visits: pl.DataFrame, events: pl.DataFrame) -> Cohort:
    """Make a cohort of two tables that have its main columns: the others are filled in, and all are sorted.

    visits: subject_id, visit_id, start, end; died is no where it is missing, death_time the end of a visit that died.
    events: code, time, and visit_id or subject_id or both; recorded is the time where it is missing or null.
    description: of the code, else what stands behind its vocabulary. Events of the same time and code stay in their
    order. BadInput where a main column is missing, or a column does not read as its type.
    """
    for what, table, main in (("visits", visits, ("subject_id", "visit_id", "start", "end")),
                              ("events", events, ("code", "time"))):  # fmt: skip
        if lacking := [column for column in main if column not in table.columns]:
            raise BadInput(f"The {what} of {name} have no column {lacking[0]}: give {', '.join(main)}.")
    if not {"visit_id", "subject_id"} & set(events.columns):
        raise BadInput(f"The events of {name} have neither visit_id nor subject_id: give one, or both.")
    if "died" not in visits.columns:
        visits = visits.with_columns(died=False)
    stays = _columns(f"visits of {name}", visits, VISITS)
    if "death_time" not in visits.columns:
        stays = stays.with_columns(death_time=pl.when("died").then("end"))
    rows = _columns(f"events of {name}", events, EVENTS | {"description": pl.String})
    patients = stays.select("visit_id", of_visit="subject_id")
    rows = rows.join(patients, on="visit_id", how="left", maintain_order="left").with_columns(
        subject_id=pl.coalesce("subject_id", "of_visit"), recorded=pl.coalesce("recorded", "time"),
    )  # fmt: skip
    named = rows.group_by("code").agg(pl.col("description").drop_nulls().first()).sort("code")
    codes = named.with_columns(
        description=pl.coalesce("description", pl.col("code").str.replace("^[^/]*/", "")),
        parents=pl.lit([], pl.List(pl.String)),
    )
    return Cohort(
        name,
        rows.select(*EVENTS).sort("subject_id", "time", "code", maintain_order=True),
        codes,
        stays.sort(*VISITS_ORDER, maintain_order=True),
    )


def _columns(what: str, table: pl.DataFrame, columns: dict[str, Any]) -> pl.DataFrame:
    """These columns in their types, empty where the table has none. BadInput for values of another type."""
    made = table.select(pl.col(one) if one in table.columns else pl.lit(None).alias(one) for one in columns)
    for column, kind in columns.items():
        try:
            made = made.with_columns(pl.col(column).cast(kind))
        except pl.exceptions.PolarsError as error:  # whose words quote values
            raise BadInput(f"The {what} have a column {column} that does not read as {kind}: correct it.") from error
    return made


def faults(cohort: Cohort) -> list[str]:
    """What is wrong with a cohort, a sentence each: columns, order, names that occur twice or nowhere."""
    tables = {"events": (cohort.events, EVENTS), "codes": (cohort.codes, CODES), "visits": (cohort.visits, VISITS)}
    wrong = []
    for name, (table, columns) in tables.items():
        for column, kind in columns.items():
            have = table.schema.get(column)
            if have != kind:
                wrong.append(f"{name}.{column} is {'missing' if have is None else have}, and must be {kind}.")
    if wrong:
        return wrong
    for name, table, order in (
        ("events", cohort.events, ["subject_id", "time"]), ("visits", cohort.visits, ["subject_id", "start"]),
    ):  # fmt: skip
        if not table.select(order).equals(table.select(order).sort(order, maintain_order=True)):
            wrong.append(f"{name} are not in the order of {', '.join(order)}: sort them.")
    for name, column in (("codes", "code"), ("visits", "visit_id")):
        twice = tables[name][0][column].is_duplicated()
        if twice.any():
            wrong.append(f"{name}.{column} {tables[name][0].filter(twice)[column][0]} stands there twice.")
    unnamed = cohort.events.join(cohort.codes, on="code", how="anti")
    if unnamed.height:
        wrong.append(f"The code {unnamed['code'][0]} of events is not among the codes.")
    lost = cohort.events.filter(pl.col("visit_id").is_not_null()).join(cohort.visits, on="visit_id", how="anti")
    if lost.height:
        wrong.append(f"The visit {lost['visit_id'][0]} of events is not among the visits.")
    for name in ("events", "visits"):
        if of_no_one := tables[name][0]["subject_id"].null_count():
            wrong.append(f"{of_no_one} rows of {name} are of no patient: give each a subject_id, or a visit_id of one.")
    return wrong
