"""Charted measurements of a MEDS folder as the 17 variables of vitals.py, in their units, as the readers of tables do.

Known by the items of MIMIC's chartevents (LAB//220045//bpm of MIMIC_IV_MEDS, MIMIC_IV_ITEM/220045 of meds_etl) and by
the columns of eICU's monitors (VITALS//PERIODIC//HEARTRATE of eICU-MEDS). An event with an implausible value, or none,
stays what it was: a folder's events are kept. Where a folder has such charts, what its laboratory measures of the 17 is
copied, as in the readers of tables ("added.labs.vitals").
"""

from __future__ import annotations

import polars as pl

from ghar.data.readers.eicu_charts import APERIODIC, EICU_LABS, PERIODIC
from ghar.data.readers.events import F64, I64
from ghar.data.readers.vitals import (
    MIMIC_ITEMS,
    MIMIC_LABS,
    VARIABLES,
    fraction,
    implausible,
    in_house_units,
    refill,
    variables_of,
    vital_names,
    vitals_of_labs,
)

CHARTS = {f"CHART/{item}": variable for variable, items in MIMIC_ITEMS.items() for item in items}
CHARTS |= {f"VITALS//PERIODIC//{column.upper()}": variable for column, variable in PERIODIC.items()}
CHARTS |= {f"VITALS//APERIODIC//{column.upper()}": variable for column, variable in APERIODIC.items()}
UNITS = {f"VITAL/{name}": about.unit for name, about in VARIABLES.items()}


def has_charts(codes: pl.Series) -> bool:
    """Whether one of the codes (of the house) is a charted measurement of the 17."""
    return bool(_key(codes).is_in(list(CHARTS)).any())


def with_vitals(events: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """`events` in their order, those of the 17 variables under their codes, with the copies of laboratory values.

    events: with the column unit. Counts "marked.meds.charts_as_vitals" and "added.labs.vitals".
    """
    text = pl.col("text_value").str.strip_chars()
    rows = events.with_columns(_chart=_key(pl.col("code"))).join(
        variables_of(CHARTS, "_chart").collect(), on="_chart", how="left", maintain_order="left"
    )
    number = pl.coalesce(pl.col("numeric_value").cast(F64), text.cast(F64, strict=False), refill(text))
    item = pl.col("_chart").str.extract(r"^CHART/(\d+)$").cast(I64)
    rows = rows.with_columns(_value=fraction(in_house_units(item, number)))
    vital = (pl.col("vital").is_not_null() & ~implausible(pl.col("_value"))).fill_null(False)
    in_words = pl.col("variable").str.contains("^(glasgow|capillary)")
    rows = rows.with_columns(_vital=vital).with_columns(
        code=pl.when("_vital").then("vital").otherwise("code"),
        numeric_value=pl.when("_vital").then(pl.col("_value").cast(pl.Float32)).otherwise("numeric_value"),
        text_value=pl.when(~pl.col("_vital") | in_words).then("text_value"),
        unit=pl.when("_vital").then(pl.col("vital").replace(UNITS)).otherwise("unit"),
    )
    counts = {"marked.meds.charts_as_vitals": int(rows["_vital"].sum())}
    rows = rows.select(events.columns)
    copies, added = vitals_of_labs(rows.lazy(), MIMIC_LABS | EICU_LABS)
    copies = copies.with_columns(unit=pl.col("code").replace(UNITS))
    return pl.concat([rows, copies]).sort("subject_id", "time", maintain_order=True), counts | added


def vital_codes() -> pl.DataFrame:
    """Rows of `Cohort.codes` of the 17 variables."""
    empty = pl.lit([], dtype=pl.List(pl.String))
    return vital_names().with_columns(parents=empty, kind=pl.lit(None, pl.String))


def _key(code: pl.Expr | pl.Series) -> pl.Expr | pl.Series:
    """The code as CHARTS has it: eICU's columns come in any case, and with a unit behind them."""
    return code.str.replace(r"(?i)^(VITALS//A?PERIODIC//[a-z0-9]+).*$", "$1").str.to_uppercase()
