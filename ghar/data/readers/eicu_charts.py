"""The 17 variables of vitals.py in eICU, which charts all of them but capillary refill.

The two tables of monitor readings hold several variables a row: "rows.vitalperiodic" counts their cells, and empty ones
are "dropped.vitalperiodic.no_value". Labels of nurseCharting: eicu-code of MIT-LCP (concepts/pivoted), as observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from ghar.data.readers.columns import open_declared
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.eicu_stays import at, far_offset, with_sound_offsets, with_stay
from ghar.data.readers.events import F64, I64, LazyRows, event
from ghar.data.readers.tables import SourceTable, sift_large
from ghar.data.readers.vitals import OXYGEN, celsius, fraction, implausible, variables_of

PERIODIC = {
    "temperature": "temperature",
    "sao2": "oxygen saturation",
    "heartrate": "heart rate",
    "respiration": "respiratory rate",
    "systemicsystolic": "systolic blood pressure",
    "systemicdiastolic": "diastolic blood pressure",
    "systemicmean": "mean blood pressure",
}
APERIODIC = {
    "noninvasivesystolic": "systolic blood pressure",
    "noninvasivediastolic": "diastolic blood pressure",
    "noninvasivemean": "mean blood pressure",
}
NURSE = {  # label / name
    "heart rate/heart rate": "heart rate",
    "respiratory rate/respiratory rate": "respiratory rate",
    "o2 saturation/o2 saturation": "oxygen saturation",
    "non-invasive bp/non-invasive bp systolic": "systolic blood pressure",
    "non-invasive bp/non-invasive bp diastolic": "diastolic blood pressure",
    "non-invasive bp/non-invasive bp mean": "mean blood pressure",
    "invasive bp/invasive bp systolic": "systolic blood pressure",
    "invasive bp/invasive bp diastolic": "diastolic blood pressure",
    "invasive bp/invasive bp mean": "mean blood pressure",
    "map (mmhg)/value": "mean blood pressure",
    "arterial line map (mmhg)/value": "mean blood pressure",
    "temperature/temperature (c)": "temperature",
    "temperature/temperature (f)": "temperature",
    "glasgow coma score/eyes": "glasgow coma scale eye opening",
    "glasgow coma score/motor": "glasgow coma scale motor response",
    "glasgow coma score/verbal": "glasgow coma scale verbal response",
    "glasgow coma score/gcs total": "glasgow coma scale total",
    "score (glasgow coma scale)/value": "glasgow coma scale total",
    "bedside glucose/bedside glucose": "glucose",
}
RESPIRATORY = {"fio2": OXYGEN, "fio2 (%)": OXYGEN}
EICU_LABS = {
    "LAB/glucose": "glucose",
    "LAB/bedside glucose": "glucose",
    "LAB/pH": "ph",
    "LAB/FiO2": OXYGEN,
    "LAB/O2 Sat (%)": "oxygen saturation",
}


def _monitor(name: str, columns: Mapping[str, str], root: Path, stays: pl.DataFrame, work: Path) -> LazyRows:
    """A table with a column for each variable, known when observed."""
    table = open_declared(root, EICU, name)
    cells = table.rows.unpivot(list(columns), index=["patientunitstayid", "observationoffset"], variable_name="label")
    rows = cells.with_columns(number=pl.col("value"), entered=pl.lit(None, I64))
    cells = replace(table, cells=len(columns))
    return _sifted(cells, rows.rename({"observationoffset": "offset"}), columns, stays, work)


def _nurse(root: Path, stays: pl.DataFrame, work: Path) -> LazyRows:
    """Vital signs and scores charted by nurses, known when entered."""
    names = ("label", "name", "value", "offset", "entered")
    columns = (
        *("nursingchartcelltypevallabel", "nursingchartcelltypevalname", "nursingchartvalue"),
        *("nursingchartoffset", "nursingchartentryoffset"),
    )
    table = open_declared(root, EICU, "nursecharting")
    rows = table.rows.rename(dict(zip(columns, names, strict=True)))
    where = pl.concat_str(pl.col("label").str.strip_chars(), pl.lit("/"), pl.col("name").str.strip_chars())
    number = pl.col("value").str.strip_chars().cast(F64, strict=False)
    fahrenheit = pl.col("name").str.contains("(F)", literal=True)
    number = pl.when(fahrenheit).then(celsius(number)).otherwise(number)
    return _sifted(table, rows.with_columns(label=where.str.to_lowercase(), number=number), NURSE, stays, work)


def _respiratory(root: Path, stays: pl.DataFrame, work: Path) -> LazyRows:
    """Inspired oxygen charted by respiratory therapists, known when entered."""
    table = open_declared(root, EICU, "respiratorycharting")
    rows = table.rows.with_columns(
        label=pl.col("respchartvaluelabel").str.strip_chars().str.to_lowercase(),
        number=pl.col("respchartvalue").str.strip_chars(" %").cast(F64, strict=False),
        offset=pl.col("respchartoffset"),
        entered=pl.col("respchartentryoffset"),
    )
    return _sifted(table, rows, RESPIRATORY, stays, work)


def _sifted(
    table: SourceTable, rows: pl.LazyFrame, labels: Mapping[str, str], stays: pl.DataFrame, work: Path
) -> LazyRows:
    """Events of rows with patientunitstayid, label, number, offset and entered (may be null)."""
    variable, value, offset, entered = (pl.col(c) for c in ("variable", "_value", "offset", "entered"))
    drops = {
        "other_item": variable.is_null(),
        "no_value": value.is_null(),
        "unknown_stay": pl.col("subject_id").is_null(),
        **far_offset("offset"),
        "no_time": offset.is_null(),
        "implausible": implausible(value),
    }
    in_percent = (variable == OXYGEN) & (pl.col("number") > 1)
    repairs = {"entered_before_charted": entered < offset, "oxygen_in_percent": in_percent}
    repairs |= {"offset_out_of_range": pl.col("_far")}
    named = rows.join(variables_of(labels, "label"), on="label", how="left", maintain_order="left")
    recorded = at(pl.max_horizontal(offset, entered))
    result = event(at(offset), pl.col("vital"), recorded, value, visit="patientunitstayid")
    placed = with_stay(named.with_columns(_value=fraction(pl.col("number"))), stays)
    return sift_large(table, with_sound_offsets(placed, "offset", "entered"), drops, repairs, result, work)


CHARTS: dict[str, Callable[[Path, pl.DataFrame, Path], LazyRows]] = {
    "vitalperiodic": partial(_monitor, "vitalperiodic", PERIODIC),
    "vitalaperiodic": partial(_monitor, "vitalaperiodic", APERIODIC),
    "nursecharting": _nurse,
    "respiratorycharting": _respiratory,
}
