"""Tables of MIMIC-IV on the course of a stay, for systems that read events (data.more): outputs, transfers and services
(inputs: infusions.py). Rules, counted as in mimic4.py:

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
from ghar.data.readers.infusions import filled, unplaced, with_item, with_patients
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.tables import sift_large

LARGEST = 50_000  # ml at once; above, a digit too many was typed


def read_outputs(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> FoundLarge:
    """Events of icu/outputevents."""
    table = open_declared(root, MIMIC4, "icu/outputevents")
    rows = with_item(with_patients(table, visits, patients), root, MIMIC4, "icu/d_items")
    value, unit = pl.col("value"), pl.col("valueuom").str.strip_chars().str.to_lowercase()
    drops = unplaced(pl.col("charttime")) | {
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
    at, unit = pl.col("intime"), filled("careunit")
    left = (pl.col("eventtype").str.to_lowercase() == "discharge").fill_null(False)
    drops = {"discharge": left} | unplaced(at) | {"no_unit": unit.is_null()}
    code = pl.concat_str(pl.lit("TRANSFER/"), unit)
    return sift_large(table, with_patients(table, visits, patients), drops, {}, event(at, code, at), work)


def read_services(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> FoundLarge:
    """Events of hosp/services."""
    table = open_declared(root, MIMIC4, "hosp/services")
    at, service = pl.col("transfertime"), filled("curr_service")
    drops = unplaced(at) | {"no_service": service.is_null()}
    code = pl.concat_str(pl.lit("SERVICE/"), service)
    return sift_large(table, with_patients(table, visits, patients), drops, {}, event(at, code, at), work)
