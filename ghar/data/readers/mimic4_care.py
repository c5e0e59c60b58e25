"""Tables of MIMIC-IV on the course of a stay, for systems that read events (data.more): inputs, outputs, transfers and
services. Rules, counted as in mimic4.py:

inputs     icu/inputevents as "INPUT/<item>, <unit>": the rate, which is known from the start on; where there is none,
           the amount, known when it was given. Rows that were written anew are "rewritten", negative numbers
           "implausible".
outputs    icu/outputevents as "OUTPUT/<item>" in ml, known when stored.
transfers  hosp/transfers as "TRANSFER/<unit>" at the arrival, also in the emergency department without an admission;
           its rows of discharges are "discharge": the admissions say it.
services   hosp/services as "SERVICE/<service>" at the change.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ghar.data.readers.columns import open_declared
from ghar.data.readers.events import FoundLarge, event
from ghar.data.readers.mimic import join_visits
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.tables import SourceTable, sift_large

LARGEST = 50_000  # ml at once; above, a digit too many was typed


def read_inputs(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> FoundLarge:
    """Events of icu/inputevents."""
    table = open_declared(root, MIMIC4, "icu/inputevents")
    rows = _with_item(_joined(table, visits, patients), root)
    running = pl.col("rate").is_not_null()
    number = pl.coalesce("rate", "amount")
    unit = pl.when(running).then("rateuom").otherwise("amountuom").str.strip_chars().fill_null("")
    label = pl.concat_str(pl.lit("INPUT/"), "_item", pl.when(unit != "").then(", " + unit).otherwise(pl.lit("")))
    given = pl.when(~running).then("endtime")
    drops = _drops(pl.col("starttime")) | {
        "unknown_item": pl.col("_item").is_null(),
        "rewritten": pl.col("statusdescription").str.to_lowercase().str.contains("rewritten").fill_null(False),
        "no_value": number.is_null(),
        "implausible": number < 0,
    }
    repairs = {"no_storetime": pl.col("storetime").is_null()}
    known = pl.max_horizontal("starttime", "storetime", given)
    return sift_large(table, rows, drops, repairs, event(pl.col("starttime"), label, known, number), work)


def read_outputs(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> FoundLarge:
    """Events of icu/outputevents."""
    table = open_declared(root, MIMIC4, "icu/outputevents")
    rows = _with_item(_joined(table, visits, patients), root)
    value, unit = pl.col("value"), pl.col("valueuom").str.strip_chars().str.to_lowercase()
    drops = _drops(pl.col("charttime")) | {
        "unknown_item": pl.col("_item").is_null(),
        "no_value": value.is_null(),
        "other_unit": (unit != "ml").fill_null(False),
        "implausible": (value < 0) | (value > LARGEST),
    }
    repairs = {"no_storetime": pl.col("storetime").is_null()}
    code = pl.concat_str(pl.lit("OUTPUT/"), "_item")
    result = event(pl.col("charttime"), code, pl.max_horizontal("charttime", "storetime"), value)
    return sift_large(table, rows, drops, repairs, result, work)


def read_transfers(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> FoundLarge:
    """Events of hosp/transfers."""
    table = open_declared(root, MIMIC4, "hosp/transfers")
    at, unit = pl.col("intime"), _said("careunit")
    left = (pl.col("eventtype").str.to_lowercase() == "discharge").fill_null(False)
    drops = {"discharge": left} | _drops(at) | {"no_unit": unit.is_null()}
    code = pl.concat_str(pl.lit("TRANSFER/"), unit)
    return sift_large(table, _joined(table, visits, patients), drops, {}, event(at, code, at), work)


def read_services(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> FoundLarge:
    """Events of hosp/services."""
    table = open_declared(root, MIMIC4, "hosp/services")
    at, service = pl.col("transfertime"), _said("curr_service")
    drops = _drops(at) | {"no_service": service.is_null()}
    code = pl.concat_str(pl.lit("SERVICE/"), service)
    return sift_large(table, _joined(table, visits, patients), drops, {}, event(at, code, at), work)


def _joined(table: SourceTable, visits: pl.DataFrame, patients: pl.DataFrame) -> pl.LazyFrame:
    """Rows with the times of their admission, and `known`: true where the patient is in the table of patients."""
    known = patients.lazy().select("subject_id", known=True)
    return join_visits(table, visits).join(known, on="subject_id", how="left", maintain_order="left")


def _with_item(rows: pl.LazyFrame, root: Path) -> pl.LazyFrame:
    """Rows with `_item`, the name of their item in lower case."""
    items = open_declared(root, MIMIC4, "icu/d_items").rows.select("itemid", _item=_said("label").str.to_lowercase())
    return rows.join(items.unique("itemid", keep="first"), on="itemid", how="left", maintain_order="left")


def _drops(at: pl.Expr) -> dict[str, pl.Expr]:
    return {
        "unknown_patient": pl.col("known").is_null(),
        "unknown_admission": pl.col("hadm_id").is_not_null() & pl.col("start").is_null(),
        "no_time": at.is_null(),
    }


def _said(column: str) -> pl.Expr:
    """What a column says; null for a blank."""
    text = pl.col(column).str.strip_chars()
    return pl.when(text != "").then(text)
