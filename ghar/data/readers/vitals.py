"""The 17 variables of the MIMIC-III benchmark as events "VITAL/<variable>", each in one unit, from every source.

The variables are those of Harutyunyan et al. 2019 (Scientific Data 6:96, table 3 there); the item lists below were put
together from the dictionaries of the sources (d_items; the eICU tables), with their choice of variables in mind. Three
differences: spontaneous breaths of a ventilated patient are not the respiratory rate; pH and oxygen saturation of
blood of a vein, or of a vessel that is not stated (vessels.py), are not those of the patient, for a saturation of 70%
is usual in a vein; and what a laboratory measures of the 17 (glucose, pH, oxygen saturation, inspired oxygen) is a LAB
event as well as a VITAL event.

A value outside `low`..`high` cannot be what its label says (wrong field, wrong unit, sensor off); its row is dropped
and counted as "implausible". The limits are wide: they must let the dying pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ghar.data.readers.columns import SourceColumns, open_declared
from ghar.data.readers.events import F64, CountedRows, LazyRows, event, words
from ghar.data.readers.tables import sift_large
from ghar.data.readers.vessels import OF_A_VESSEL, SPECIMEN_TYPES, gases_with_vessels


@dataclass(frozen=True)
class VitalSign:
    """Unit and plausible limits (inclusive)."""

    unit: str
    low: float
    high: float


VARIABLES: Mapping[str, VitalSign] = {
    "capillary refill rate": VitalSign("0 normal, below 3 s; 1 abnormal", 0.0, 1.0),
    "diastolic blood pressure": VitalSign("mmHg", 5.0, 300.0),
    "fraction inspired oxygen": VitalSign("fraction", 0.2, 1.0),
    "glasgow coma scale eye opening": VitalSign("points", 1.0, 4.0),
    "glasgow coma scale motor response": VitalSign("points", 1.0, 6.0),
    "glasgow coma scale total": VitalSign("points", 3.0, 15.0),
    "glasgow coma scale verbal response": VitalSign("points", 1.0, 5.0),
    "glucose": VitalSign("mg/dL", 5.0, 2500.0),
    "heart rate": VitalSign("beats/min", 0.0, 350.0),
    "height": VitalSign("cm", 25.0, 250.0),
    "mean blood pressure": VitalSign("mmHg", 5.0, 330.0),
    "oxygen saturation": VitalSign("%", 10.0, 100.0),
    "ph": VitalSign("pH", 6.3, 8.4),
    "respiratory rate": VitalSign("breaths/min", 0.0, 150.0),
    "systolic blood pressure": VitalSign("mmHg", 10.0, 375.0),
    "temperature": VitalSign("degrees Celsius", 14.0, 45.0),
    "weight": VitalSign("kg", 0.3, 450.0),
}
# chartevents items of MIMIC-III (CareVue below 10,000, MetaVision from 220,000 on) and of MIMIC-IV (MetaVision).
MIMIC_ITEMS: Mapping[str, tuple[int, ...]] = {
    "capillary refill rate": (115, 3348, 8377, 223951, 224308),
    "diastolic blood pressure": (
        *(8368, 8440, 8441, 8502, 8503, 8504, 8505, 8506, 8507, 8555),
        *(220051, 220180, 224643, 225310, 227242),
    ),
    "fraction inspired oxygen": (189, 190, 727, 2981, 3420, 3422, 7570, 223835),
    "glasgow coma scale eye opening": (184, 220739),
    "glasgow coma scale motor response": (454, 223901),
    "glasgow coma scale total": (198,),
    "glasgow coma scale verbal response": (723, 223900),
    "glucose": (807, 811, 1310, 1529, 3744, 3745, 220621, 225664, 226537, 228388),
    "heart rate": (211, 220045),
    "height": (920, 1394, 3485, 3486, 4187, 4188, 226707, 226730),
    "mean blood pressure": (
        *(52, 443, 456, 3312, 3314, 3316, 3318, 3320, 3322, 6702, 6927),
        *(220052, 220181, 225312),
    ),
    "oxygen saturation": (646, 834, 220227, 220277),
    "ph": (780, 1126, 1673, 4202, 4753, 223830),  # 860 and 220274 are of veins
    "respiratory rate": (615, 618, 3337, 3603, 220210, 224690),
    "systolic blood pressure": (
        *(51, 442, 455, 3313, 3315, 3317, 3319, 3321, 3323, 6701),
        *(220050, 220179, 224167, 225309, 227243),
    ),
    "temperature": (676, 677, 678, 679, 3654, 3655, 223761, 223762),
    "weight": (762, 763, 3580, 3581, 3693, 224639, 226512, 226531),
}
OXYGEN = "fraction inspired oxygen"
POUND, INCH = 0.45359237, 2.54  # kg, cm
FAHRENHEIT, POUNDS, INCHES = (678, 679, 3654, 223761), (3581, 226531), (920, 1394, 3486, 4187, 226707)
MIMIC_LABS = {
    **dict.fromkeys(("LAB/50809", "LAB/50931", "LAB/52027", "LAB/52569"), "glucose"),
    "LAB/50816": OXYGEN,
    "LAB/50817": "oxygen saturation",
    "LAB/50820": "ph",
}


def vital_names() -> pl.DataFrame:
    """Names of the 17 codes: variable and unit."""
    rows = [(f"VITAL/{name}", f"{name} ({about.unit})") for name, about in VARIABLES.items()]
    return pl.DataFrame(rows, {"code": pl.String, "description": pl.String}, orient="row")


def variables_of(labels: Mapping[int, str] | Mapping[str, str], key: str) -> pl.LazyFrame:
    """Columns `key`, variable, vital (its code), low and high, to be joined to rows.

    A lookup inside an expression would not stream, and codes put together row by row would not share their memory.
    """
    rows = [(label, name, f"VITAL/{name}", VARIABLES[name].low, VARIABLES[name].high) for label, name in labels.items()]
    return pl.LazyFrame(rows, [key, "variable", "vital", "low", "high"], orient="row")


def fraction(value: pl.Expr) -> pl.Expr:
    """The value, inspired oxygen as a fraction: sources mix fractions and percentages, which do not overlap."""
    return pl.when((pl.col("variable") == OXYGEN) & (value > 1)).then(value / 100).otherwise(value)


def implausible(value: pl.Expr) -> pl.Expr:
    """Whether a value is outside the limits that `variables_of` joined; null where there is none."""
    return ~value.is_between("low", "high") | value.is_nan()


def celsius(value: pl.Expr) -> pl.Expr:
    """Degrees Fahrenheit as degrees Celsius."""
    return (value - 32) / 1.8


def in_house_units(item: pl.Expr, number: pl.Expr) -> pl.Expr:
    """The number charted for an item of MIMIC, in the unit of VARIABLES."""
    number = pl.when(item.is_in(FAHRENHEIT)).then(celsius(number)).otherwise(number)
    number = pl.when(item.is_in(POUNDS)).then(number * POUND).otherwise(number)
    return pl.when(item.is_in(INCHES)).then(number * INCH).otherwise(number)


def mimic_charts(
    root: Path, source: SourceColumns, name: str, visits: pl.DataFrame, patients: pl.DataFrame, work: Path
) -> LazyRows:
    """The 17 variables in the table `name` (chartevents) of MIMIC-III or -IV; the former marks errors.

    Known when stored, else when charted. `text_value` keeps the words of a value that was charted in words.
    """
    table = open_declared(root, source, name)
    item, charted, stored, variable = (pl.col(c) for c in ("itemid", "charttime", "storetime", "variable"))
    value, text = pl.col("_value"), pl.col("value").str.strip_chars()
    number = in_house_units(item, pl.coalesce("valuenum", text.cast(F64, strict=False), refill(text)))
    drops = {
        "other_item": variable.is_null(),
        "unknown_patient": pl.col("known").is_null(),
        "unknown_admission": pl.col("hadm_id").is_not_null() & pl.col("start").is_null(),
        **({"marked_error": pl.col("error") == 1} if "error" in table.columns else {}),
        "no_time": charted.is_null() & stored.is_null(),
        "no_value": value.is_null(),
        "implausible": implausible(value),
    }
    repairs = {
        "no_charttime": charted.is_null(),
        "no_storetime": stored.is_null(),
        "stored_before_charted": stored < charted,
        "oxygen_in_percent": (variable == OXYGEN) & (pl.col("_number") > 1),
    }
    spans = visits.lazy().select("subject_id", pl.col("visit_id").alias("hadm_id"), "start")
    items = {item: variable for variable, items in MIMIC_ITEMS.items() for item in items}
    rows = (
        table.rows.join(variables_of(items, "itemid"), on="itemid", how="left", maintain_order="left")
        .join(spans, on=["subject_id", "hadm_id"], how="left", maintain_order="left")
        .join(patients.lazy().select("subject_id", known=True), on="subject_id", how="left", maintain_order="left")
        .with_columns(_number=number)
        .with_columns(_value=fraction(pl.col("_number")))
    )
    in_words = variable.str.contains("^(glasgow|capillary)")
    value_text = pl.when(in_words).then(words(text, value))
    recorded = pl.max_horizontal(stored, charted)
    result = event(pl.coalesce(charted, stored), pl.col("vital"), recorded, value, value_text)
    return sift_large(table, rows, drops, repairs, result, work)


def vitals_of_labs(events: pl.LazyFrame, labs: Mapping[str, str]) -> CountedRows:
    """Copies of lab events as vital events, for the `labs` (code -> variable) that are among the 17.

    Counts "added.labs.vitals". What is implausible as a vital sign, or a gas of another vessel than an artery
    (vessels.py), stays a lab event alone.
    """
    value = fraction(pl.col("numeric_value").cast(F64))
    blood = events.filter(pl.col("code").is_in((*SPECIMEN_TYPES, *OF_A_VESSEL)))
    blood = blood.select("subject_id", "time", "code", "text_value").collect(engine="streaming")
    others = gases_with_vessels(blood).drop("vessel").lazy()
    added = (
        events.join(variables_of(labs, "code"), on="code", how="inner", maintain_order="left")
        .join(others, on=["subject_id", "time", "code"], how="anti", maintain_order="left")
        .filter(~implausible(value))
        .with_columns(code=pl.col("vital"), numeric_value=value.cast(pl.Float32))
        .with_columns(text_value=pl.lit(None, pl.String))
        .select(events.collect_schema().names())
        .collect(engine="streaming")
    )
    return added, {"added.labs.vitals": added.height} if added.height else {}


def refill(text: pl.Expr) -> pl.Expr:
    """Capillary refill is charted in words: "Normal <3 secs", "Brisk", "Abnormal >3 Seconds", "Delayed"."""
    first = text.str.to_lowercase().str.extract("^([a-z]+)")
    return pl.when(first.is_in(["normal", "brisk"])).then(0.0).when(first.is_in(["abnormal", "delayed"])).then(1.0)
