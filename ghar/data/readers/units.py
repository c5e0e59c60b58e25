"""One table of laboratory units: which unit an item's values stand in, and how values in another unit are converted.

Sources write units row by row (mimic-code#1922): a haemoglobin of 118 g/L is 11.8 g/dL. Every reader converts by this
table before labels, prompts or features see a value, and counts what it converted. A value in a unit that the table
does not know stays as it is, and is counted as well ("other_unit").
"""

from __future__ import annotations

import polars as pl

GRAMS = {"g/dl": 1.0, "g/l": 0.1, "mg/dl": 0.001, "gm/dl": 1.0, "g/100 ml": 1.0}
QUANTITIES: dict[str, tuple[str, dict[str, float]]] = {  # unit of the house, factor of each unit (in lower case) to it
    "haemoglobin": ("g/dL", {**GRAMS, "mmol/l": 1.611}),
    "protein": ("g/dL", GRAMS),
    "creatinine": ("mg/dL", {"mg/dl": 1.0, "umol/l": 1 / 88.42, "µmol/l": 1 / 88.42, "mmol/l": 1000 / 88.42}),
    "bilirubin": ("mg/dL", {"mg/dl": 1.0, "umol/l": 1 / 17.1, "µmol/l": 1 / 17.1}),
    "glucose": ("mg/dL", {"mg/dl": 1.0, "mmol/l": 18.016}),
    "urea": ("mg/dL", {"mg/dl": 1.0, "mmol/l": 2.801}),
    "calcium": ("mg/dL", {"mg/dl": 1.0, "mmol/l": 4.008}),
    "magnesium": ("mg/dL", {"mg/dl": 1.0, "mmol/l": 2.431}),
    "phosphate": ("mg/dL", {"mg/dl": 1.0, "mmol/l": 3.097}),
    "c-reactive protein": ("mg/L", {"mg/l": 1.0, "mg/dl": 10.0}),
    "cell haemoglobin": ("g/dL", {"g/dl": 1.0, "%": 1.0}),
    "lymphocytes": ("K/uL", {"k/ul": 1.0, "#/ul": 0.001}),
}
ITEMS = {  # house code -> quantity: items of MIMIC, names of eICU, LOINC's mass concentrations in blood
    **dict.fromkeys(("LAB/50811", "LAB/51222", "LAB/51640", "LAB/Hgb", "LOINC/718-7"), "haemoglobin"),
    **dict.fromkeys(("LAB/50862", "LAB/50976", "LAB/albumin", "LAB/total protein"), "protein"),
    **dict.fromkeys(("LAB/50912", "LAB/creatinine", "LOINC/2160-0"), "creatinine"),
    **dict.fromkeys(("LAB/50885", "LAB/total bilirubin", "LOINC/1975-2"), "bilirubin"),
    **dict.fromkeys(("LOINC/1751-7", "LOINC/2885-2"), "protein"),
    **dict.fromkeys(("LOINC/2345-7", "LOINC/2339-0"), "glucose"),
    **{"LOINC/3094-0": "urea", "LOINC/17861-6": "calcium", "LOINC/19123-9": "magnesium", "LOINC/2777-1": "phosphate"},
    **dict.fromkeys(("LAB/50931", "LAB/50809", "LAB/glucose", "LAB/bedside glucose"), "glucose"),
    **dict.fromkeys(("LAB/51006", "LAB/BUN"), "urea"),
    **dict.fromkeys(("LAB/50893", "LAB/calcium"), "calcium"),
    **dict.fromkeys(("LAB/50960", "LAB/magnesium"), "magnesium"),
    **dict.fromkeys(("LAB/50970", "LAB/phosphate"), "phosphate"),
    **{"LAB/50889": "c-reactive protein", "LAB/51249": "cell haemoglobin"},
    # items of one label: EHR-RAG shows them as one trajectory
    **dict.fromkeys(("LAB/51133", "LAB/52769", "LAB/53132"), "lymphocytes"),
    **{"LAB/52546": "creatinine", "LAB/53089": "bilirubin", "LAB/52569": "glucose", "LAB/52647": "urea"},
    **dict.fromkeys(("LAB/53085", "LAB/53096"), "protein"),
}
SPELLINGS = {"seconds": "sec", "uu/ml": "uiu/ml", "log10 cop/ml": "log10 copies/ml"}  # of one unit, in lower case
HOUSE = {code: QUANTITIES[quantity][0] for code, quantity in ITEMS.items()}


def unit_factors() -> pl.DataFrame:
    """_item, _unit (lower case), _factor: one row for each unit that an item of the table may stand in."""
    rows = [
        (code, unit, factor) for code, quantity in ITEMS.items() for unit, factor in QUANTITIES[quantity][1].items()
    ]
    return pl.DataFrame(rows, {"_item": pl.String, "_unit": pl.String, "_factor": pl.Float64}, orient="row")


def with_factor(rows: pl.LazyFrame, item: pl.Expr, unit: pl.Expr) -> pl.LazyFrame:
    """The rows with `_factor`, by which a number becomes one of the house's unit: 1 where no unit is said or the item
    is none of the table; null for a unit that the table does not know."""
    unit_text = unit.str.strip_chars().str.to_lowercase()
    keyed = rows.with_columns(_item=item, _unit=pl.when(unit_text != "").then(unit_text))
    joined = keyed.join(unit_factors().lazy(), on=["_item", "_unit"], how="left", maintain_order="left")
    silent = pl.col("_unit").is_null() | ~pl.col("_item").is_in(list(ITEMS))
    return joined.with_columns(_factor=pl.when(silent).then(1.0).otherwise("_factor")).drop("_item", "_unit")


def converted() -> pl.Expr:
    """Whether a value is converted; `with_factor` comes first."""
    return (pl.col("_factor") != 1.0).fill_null(False)


def in_house_unit(events: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Events with numbers and units of the house, and how many numbers were converted.

    events: code, numeric_value, unit. A value in a unit that the table does not know keeps both.
    """
    rows = with_factor(events.lazy(), pl.col("code"), pl.col("unit")).collect()
    changed = converted() & pl.col("numeric_value").is_not_null()
    count = int(rows.select(changed.sum()).item())
    if not count:
        return events, 0
    house = pl.col("code").replace_strict(HOUSE, default=None, return_dtype=pl.String)
    number = (pl.col("numeric_value").cast(pl.Float64) * pl.col("_factor")).cast(pl.Float32)
    mended = rows.with_columns(
        numeric_value=pl.when(changed).then(number).otherwise("numeric_value"),
        unit=pl.when(changed).then(house).otherwise("unit"),
    )
    return mended.select(events.columns), count
