"""Tables of MIMIC on the course of a stay, for systems that read events (data.more): outputs, transfers and services
(inputs: infusions.py). Rules, counted as in mimic4.py:

outputs    outputevents as "OUTPUT/<item>" in ml, known when stored; in MIMIC-III without rows marked as errors.
transfers  "TRANSFER/<unit>" at the arrival, in MIMIC-IV also in the emergency department without an admission; a ward
           of MIMIC-III has a number alone ("ward 45"). Rows of discharges are "discharge": the admissions say it.
services   "SERVICE/<service>" at the change.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ghar.data.readers.columns import SourceColumns, open_declared
from ghar.data.readers.events import LazyRows, event
from ghar.data.readers.infusions import filled, unplaced, with_item, with_patients
from ghar.data.readers.tables import sift_large

LARGEST = 50_000  # ml at once; above, a digit too many was typed


def read_outputs(
    root: Path, source: SourceColumns, name: str, items: str, visits: pl.DataFrame, patients: pl.DataFrame, work: Path
) -> LazyRows:
    """Events of the table `name` (outputevents); `items` names the table of their items."""
    table = open_declared(root, source, name)
    rows = with_item(with_patients(table, visits, patients), root, source, items)
    value, unit = pl.col("value"), pl.col("valueuom").str.strip_chars().str.to_lowercase()
    drops = unplaced(pl.col("charttime")) | {
        "unknown_item": pl.col("_item").is_null(),
        **({"marked_error": pl.col("iserror") == 1} if "iserror" in table.columns else {}),
        "no_value": value.is_null(),
        "other_unit": (unit != "ml").fill_null(False),
        "implausible": (value < 0) | (value > LARGEST),
    }
    repairs = {"no_storetime": pl.col("storetime").is_null()}
    code = pl.concat_str(pl.lit("OUTPUT/"), "_item")
    result = event(pl.col("charttime"), code, pl.max_horizontal("charttime", "storetime"), value)
    return sift_large(table, rows, drops, repairs, result, work)


def read_transfers(
    root: Path, source: SourceColumns, name: str, visits: pl.DataFrame, patients: pl.DataFrame, work: Path
) -> LazyRows:
    """Events of the table `name` (transfers)."""
    table = open_declared(root, source, name)
    if "careunit" in table.columns:
        unit = filled("careunit")
    else:
        ward = pl.concat_str(pl.lit("ward "), pl.col("curr_wardid").cast(pl.String))
        unit = pl.coalesce(filled("curr_careunit"), ward)
    at = pl.col("intime")
    left = (pl.col("eventtype").str.to_lowercase() == "discharge").fill_null(False)
    drops = {"discharge": left} | unplaced(at) | {"no_unit": unit.is_null()}
    code = pl.concat_str(pl.lit("TRANSFER/"), unit)
    return sift_large(table, with_patients(table, visits, patients), drops, {}, event(at, code, at), work)


def read_services(
    root: Path, source: SourceColumns, name: str, visits: pl.DataFrame, patients: pl.DataFrame, work: Path
) -> LazyRows:
    """Events of the table `name` (services)."""
    table = open_declared(root, source, name)
    at, service = pl.col("transfertime"), filled("curr_service")
    drops = unplaced(at) | {"no_service": service.is_null()}
    code = pl.concat_str(pl.lit("SERVICE/"), service)
    return sift_large(table, with_patients(table, visits, patients), drops, {}, event(at, code, at), work)
