"""What was infused, pushed and drunk (data.more=[inputs]), as "INPUT/<item>, <unit>": MIMIC-IV's icu/inputevents,
MIMIC-III's inputevents_mv (MetaVision) and inputevents_cv (CareVue), eICU's infusiondrug.

The number is the rate, which is known from the start on; where there is none, the amount, known when it was given.
Rules, counted as in mimic4.py: rows that were written anew are "rewritten", negative numbers "implausible". CareVue
charts at one time what was given until then, and writes units without strokes ("mcgkgmin"), which get them here. In
eICU the unit stands behind the drug's name, and a rate that is no number ("ERROR") is "not_a_number".
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ghar.data.readers.columns import SourceColumns, open_declared
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.eicu_stays import at, far_offset, with_sound_offsets, with_stay
from ghar.data.readers.events import F64, LazyRows, event, finite, stacked
from ghar.data.readers.mimic import join_visits
from ghar.data.readers.mimic3_columns import MIMIC3
from ghar.data.readers.tables import SourceTable, find_table, sift_large

ITEMS = {"inputevents_cv": "d_items", "inputevents_mv": "d_items"}  # MIMIC-III: table -> names of its items
CAREVUE_UNITS = {
    "mcgkgmin": "mcg/kg/min", "mcgkghr": "mcg/kg/hr", "mgkghr": "mg/kg/hr", "mcghr": "mcg/hr", "mcgmin": "mcg/min",
    "mghr": "mg/hr", "mgmin": "mg/min", "Uhr": "U/hr", "Umin": "U/min", "Ukghr": "U/kg/hr",
}  # fmt: skip


def read_inputs(
    root: Path, source: SourceColumns, name: str, items: str, visits: pl.DataFrame, patients: pl.DataFrame, work: Path
) -> LazyRows:
    """Events of the table `name` of MIMIC-III or MIMIC-IV; `items` names the table of their items."""
    table = open_declared(root, source, name)
    spans = "starttime" in table.columns  # MetaVision; CareVue has one time alone
    begins = pl.col("starttime" if spans else "charttime")
    running = pl.col("rate").is_not_null()
    number = pl.coalesce("rate", "amount")
    unit = pl.when(running).then("rateuom").otherwise("amountuom").str.strip_chars().fill_null("")
    unit = unit.replace(CAREVUE_UNITS)
    label = pl.concat_str(pl.lit("INPUT/"), "_item", pl.when(unit != "").then(", " + unit).otherwise(pl.lit("")))
    drops = unplaced(begins) | {"unknown_item": pl.col("_item").is_null()}
    if "statusdescription" in table.columns:
        anew = pl.col("statusdescription").str.to_lowercase().str.contains("rewritten")
        drops |= {"rewritten": anew.fill_null(False)}
    drops |= {"no_value": number.is_null(), "implausible": number < 0}
    given = [pl.when(~running).then("endtime")] if spans else []
    recorded = pl.max_horizontal(begins, "storetime", *given)
    rows = with_item(with_patients(table, visits, patients), root, source, items)
    repairs = {"no_storetime": pl.col("storetime").is_null()}
    return sift_large(table, rows, drops, repairs, event(begins, label, recorded, number), work)


def read_mimic3_inputs(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> LazyRows:
    """Events of MIMIC-III's two tables, of which one may be absent ("absent.inputevents_cv")."""
    parts, counts = [], {}
    there = [name for name in ITEMS if find_table(root, name) is not None]
    for name in there or ITEMS:  # the first of them is refused where there is none
        events, part_counts = read_inputs(root, MIMIC3, name, ITEMS[name], visits, patients, work)
        parts.append(events)
        counts |= part_counts
    return stacked(parts), counts | {f"absent.{name}": 1 for name in ITEMS if name not in there}


def read_eicu_infusions(root: Path, stays: pl.DataFrame, work: Path) -> LazyRows:
    """Events of eICU's infusiondrug: rates when they were charted."""
    table = open_declared(root, EICU, "infusiondrug")
    offset, text = pl.col("infusionoffset"), pl.col("drugrate").str.strip_chars()
    number = finite(text.cast(F64, strict=False))
    parts = pl.col("drugname").str.strip_chars().str.extract_groups(r"^(.*?)\s*(?:\(([^()]*)\))?$")
    drug, unit = (parts.struct.field(field).str.strip_chars() for field in ("1", "2"))
    behind = pl.when(unit != "").then(", " + unit).otherwise(pl.lit(""))
    code = pl.concat_str(pl.lit("INPUT/"), drug.str.to_lowercase(), behind)
    drops = {
        "unknown_stay": pl.col("subject_id").is_null(),
        "blank_drug": drug.is_null() | (drug == ""),
        **far_offset("infusionoffset"),
        "no_time": offset.is_null(),
        "no_value": text.is_null() | (text == ""),
        "not_a_number": number.is_null(),
        "implausible": number < 0,
    }
    rows = with_sound_offsets(with_stay(table.rows, stays), "infusionoffset")
    result = event(at(offset), code, at(offset), number, visit="patientunitstayid")
    return sift_large(table, rows, drops, {}, result, work)


def with_patients(table: SourceTable, visits: pl.DataFrame, patients: pl.DataFrame) -> pl.LazyFrame:
    """Rows with the times of their admission, and `known`: true where the patient is in the table of patients."""
    subjects = patients.lazy().select("subject_id", known=True)
    return join_visits(table, visits).join(subjects, on="subject_id", how="left", maintain_order="left")


def with_item(rows: pl.LazyFrame, root: Path, source: SourceColumns, name: str) -> pl.LazyFrame:
    """Rows with `_item`, the name of their item in lower case by the table `name`."""
    items = open_declared(root, source, name).rows.select("itemid", _item=filled("label").str.to_lowercase())
    return rows.join(items.unique("itemid", keep="first"), on="itemid", how="left", maintain_order="left")


def unplaced(time: pl.Expr) -> dict[str, pl.Expr]:
    """Rules of `sift` for rows of no known patient, admission or time."""
    return {
        "unknown_patient": pl.col("known").is_null(),
        "unknown_admission": pl.col("hadm_id").is_not_null() & pl.col("start").is_null(),
        "no_time": time.is_null(),
    }


def filled(column: str) -> pl.Expr:
    """What a column says; null for a blank."""
    text = pl.col(column).str.strip_chars()
    return pl.when(text != "").then(text)
