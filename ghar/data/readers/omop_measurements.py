"""Measurements of the OMOP CDM: number, words and unit in those of the house, by the rules of omop.py."""

from __future__ import annotations

import polars as pl

from ghar.data.readers.events import finite, words
from ghar.data.readers.omop_visits import optional
from ghar.data.readers.tables import SourceTable
from ghar.data.readers.units import HOUSE, converted, with_factor
from ghar.data.readers.vitals import INCH, MIMIC_LABS, POUND, VARIABLES, celsius, fraction, implausible, variables_of

OPERATORS = {  # operator_concept_id; "=" is none
    4171756: "<",
    4171754: "<=",
    4172704: ">",
    4171755: ">=",
}
LABS = {  # laboratory results that are vital signs as well
    **MIMIC_LABS,
    **dict.fromkeys(("LOINC/2345-7", "LOINC/2339-0", "LOINC/41653-7"), "glucose"),
    **dict.fromkeys(("LOINC/2744-1", "LOINC/11558-4"), "ph"),
}
FAHRENHEIT, POUNDS, INCHES = "^(\\[?deg *f|f$|fahrenheit)", "^(\\[?lb|pound)", "^(\\[?in(ch|_|$))"

Measured = tuple[pl.LazyFrame, dict[str, pl.Expr], dict[str, pl.Expr], tuple[pl.Expr, pl.Expr, pl.Expr]]


def measured(rows: pl.LazyFrame, table: SourceTable, concepts: pl.DataFrame, charts: bool) -> Measured:
    """The rows of measurement with what the further rules need; drops; repairs; number, text and unit."""
    names = concepts.lazy().select("concept_id", "name", "local")
    spoken = names.select(_value_id="concept_id", _spoken="name")
    units = names.select(_unit_id="concept_id", _unit_code="local")
    keyed = rows.with_columns(
        _value_id=optional(table, "value_as_concept_id"),
        _unit_id=optional(table, "unit_concept_id"),
        _raw=finite(optional(table, "value_as_number")),
    )
    keyed = keyed.join(spoken, on="_value_id", how="left", maintain_order="left")
    keyed = keyed.join(units, on="_unit_id", how="left", maintain_order="left")
    source_unit = optional(table, "unit_source_value").str.strip_chars()
    keyed = keyed.with_columns(_said_unit=pl.coalesce("_unit_code", pl.when(source_unit != "").then(source_unit)))
    labels = {f"VITAL/{name}": name for name in VARIABLES}
    keyed = with_factor(keyed, pl.col("_code"), pl.col("_said_unit"))
    keyed = keyed.join(variables_of(labels, "_code"), on="_code", how="left", maintain_order="left")
    keyed = keyed.with_columns(_number=_in_house_units(pl.col("_raw"), pl.col("_said_unit")))
    vital, raw = pl.col("variable").is_not_null(), pl.col("_raw")
    sign = optional(table, "operator_concept_id").replace_strict(OPERATORS, default=None, return_dtype=pl.String)
    bounded = sign.is_not_null() & raw.is_not_null()
    written = optional(table, "value_source_value").str.strip_chars()
    text = words(pl.coalesce("_spoken", pl.when(written != "").then(written)), raw)
    text = pl.when(bounded).then(pl.concat_str(sign, raw.cast(pl.String))).otherwise(text)
    number = pl.when(~bounded).then(pl.when(vital).then("_number").otherwise(raw * pl.coalesce("_factor", 1.0)))
    no_number = vital & number.is_null()
    drops = {"charts_not_wanted": vital} if not charts else {"no_value": no_number, "implausible": implausible(number)}
    changed = converted() & raw.is_not_null() & ~vital
    repairs = {
        "not_finite": ~optional(table, "value_as_number").is_finite(),
        "below_or_above": bounded,
        "converted_unit": changed,
        "other_unit": pl.col("_factor").is_null() & raw.is_not_null(),
        "no_value": raw.is_null() & text.is_null(),
    }
    house = pl.col("_code").replace_strict(HOUSE, default=None, return_dtype=pl.String)
    unit = pl.when(~vital).then(pl.when(changed).then(house).otherwise("_said_unit"))
    return keyed, drops, repairs, (number, pl.when(~vital).then(text), unit)


def _in_house_units(number: pl.Expr, unit: pl.Expr) -> pl.Expr:
    """A vital sign in the unit of VARIABLES."""
    written, variable = unit.str.to_lowercase(), pl.col("variable")
    for name, pattern, change in (
        ("temperature", FAHRENHEIT, celsius(number)), ("weight", POUNDS, number * POUND),
        ("height", INCHES, number * INCH),
    ):  # fmt: skip
        theirs = ((variable == name) & written.str.contains(pattern)).fill_null(False)
        number = pl.when(theirs).then(change).otherwise(number)
    return fraction(number)
