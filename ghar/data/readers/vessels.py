"""Venous blood gases under codes and names of their own, of MIMIC-III and MIMIC-IV, in their tables, MEDS and OMOP.

MIMIC has one item for the pO2 of arteries and of veins, and says the vessel in a row "Specimen Type" of the same draw:
ART., VEN., MIX. or CENTRAL VENOUS. A pO2 of 35 is usual in a vein and deadly in an artery. So a venous one is
"LAB/50821/venous", "pO2 (venous)"; without a type, or with two at one time, it stays as it is. Base excess, total CO2,
lactate and electrolytes of the same draws agree between vessels and stay one item. No venous gas becomes a vital sign
(vitals.py). In OMOP the items may be concepts of LOINC, by MIMIC's own map (d_labitems_to_loinc); LOINC's codes for
blood of a vein alone stay as they are.
"""

from __future__ import annotations

import polars as pl

SPECIMEN_TYPES = ("LAB/50800", "LAB/52033", "LOINC/66746-9")
SATURATION = "LAB/50817"
OF_A_VESSEL = (  # with pCO2, pH and pO2
    *(SATURATION, "LAB/50818", "LAB/50820", "LAB/50821"),
    *("LOINC/20564-1", "LOINC/11557-6", "LOINC/11558-4", "LOINC/11556-8"),
)
VESSELS = {"VEN": "venous", "MIX": "mixed venous", "CENTRAL VENOUS": "central venous"}


def vessel_codes(code: str) -> dict[str, str]:
    """Map the venous codes of an item to their vessels; empty for an item that is one of all vessels."""
    return {f"{code}/{vessel}": vessel for vessel in VESSELS.values()} if code in OF_A_VESSEL else {}


VENOUS = tuple(code for item in OF_A_VESSEL for code in vessel_codes(item))


def venous_draws(rows: pl.DataFrame) -> pl.DataFrame:
    """Return subject_id, time and vessel of the draws of venous blood, from rows that hold all specimen types."""
    written = pl.col("text_value").str.strip_chars(" .").str.to_uppercase()
    types = rows.filter(pl.col("code").is_in(SPECIMEN_TYPES)).select("subject_id", "time", _type=written).unique()
    draws = types.filter(pl.len().over("subject_id", "time") == 1)
    vessel = pl.col("_type").replace_strict(VESSELS, default=None, return_dtype=pl.String)
    return draws.select("subject_id", "time", vessel=vessel).drop_nulls()


def with_vessels(rows: pl.DataFrame) -> pl.DataFrame:
    """Give venous blood gases their codes. rows: all events of some patients, whose order stays."""
    draws = venous_draws(rows)
    if draws.is_empty():
        return rows
    gases = rows.select("subject_id", "time", "code").with_row_index("_place")
    gases = gases.filter(pl.col("code").is_in(OF_A_VESSEL)).join(draws, on=["subject_id", "time"])
    codes = gases.select(pl.concat_str("code", pl.lit("/"), "vessel").alias("code"))["code"]
    return rows.with_columns(rows["code"].scatter(gases["_place"], codes))


def count_venous(events: pl.LazyFrame, table: str = "labevents") -> dict[str, int]:
    """Count results with a venous code as "marked.<table>.venous", where there are any."""
    venous = events.select(pl.col("code").is_in(VENOUS).sum()).collect(engine="streaming").item()
    return {f"marked.{table}.venous": venous} if venous else {}


def venous_titles(titles: pl.DataFrame) -> pl.DataFrame:
    """Return code and description of the venous codes of the items in `titles`."""
    rows = [
        (code, f"{label} ({vessel})")
        for item, label in titles.filter(pl.col("code").is_in(OF_A_VESSEL)).select("code", "description").iter_rows()
        for code, vessel in vessel_codes(item).items()
    ]
    return pl.DataFrame(rows, {"code": pl.String, "description": pl.String}, orient="row")
