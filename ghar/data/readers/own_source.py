"""A source of the user's own: data=PACKAGE.MODULE, whose `read(root)` returns a Cohort (docs/extending.md)."""

from __future__ import annotations

from pathlib import Path

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


def read_own(name: str, root: Path) -> Cohort:
    """Read and check the cohort of module `name`. BadInput for a module or a cohort that lacks something."""
    cohort = import_module("data", name, "read").read(root)
    if not isinstance(cohort, Cohort):
        raise BadInput(f"data={name}: read(root) returns {type(cohort).__name__}, not a ghar.data.cohort.Cohort.")
    for wrong in faults(cohort):
        raise BadInput(f"data={name}: {wrong}")
    return cohort


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
    return wrong
