"""Venous blood gases under codes and names of their own, of MIMIC-III and MIMIC-IV, in their tables, MEDS and OMOP.

MIMIC has one item for the pO2 of arteries and of veins, and says the vessel in a row "Specimen Type" of the same draw:
ART., VEN., MIX. or CENTRAL VENOUS. A pO2 of 35 is usual in a vein and deadly in an artery. So a venous one is
"LAB/50821/venous", "pO2 (venous)"; without a type, or with two at one time, it stays as it is. Base excess, total CO2,
lactate and electrolytes of the same draws agree between vessels and stay one item. No venous gas becomes a vital sign
(vitals.py). In OMOP the items may be concepts of LOINC, by MIMIC's own map (d_labitems_to_loinc); LOINC's codes for
blood of a vein alone stay as they are.

A saturation that was measured without a pO2 is a check of venous blood: of the 94 in the open demos of MIMIC-III and
MIMIC-IV whose draw has a type, 2 are arterial. The 29 others without a pO2 have no type, and a median of 70%. They are
"Oxygen Saturation (vessel not stated)", and no vital sign. In OMOP this holds for a LOINC saturation only of patients
with a specimen type of LOINC: other sources than MIMIC may measure it otherwise.
"""

from __future__ import annotations

import polars as pl

SPECIMEN_TYPES = ("LAB/50800", "LAB/52033", "LOINC/66746-9")
SATURATION, LOINC_SATURATION = "LAB/50817", "LOINC/20564-1"
PRESSURES = ("LAB/50821", "LOINC/11556-8")  # pO2
OF_A_VESSEL = (  # with pCO2, pH and pO2
    *(SATURATION, "LAB/50818", "LAB/50820", "LAB/50821"),
    *(LOINC_SATURATION, "LOINC/11557-6", "LOINC/11558-4", "LOINC/11556-8"),
)
VESSELS = {"VEN": "venous", "MIX": "mixed venous", "CENTRAL VENOUS": "central venous"}
NOT_STATED = "vessel not stated"
DRAW = ["subject_id", "time"]


def vessel_codes(code: str) -> dict[str, str]:
    """Map the codes of an item that say a vessel to it; empty for an item that is one of all vessels."""
    unstated = [NOT_STATED] if code in (SATURATION, LOINC_SATURATION) else []
    return {f"{code}/{vessel}": vessel for vessel in (*VESSELS.values(), *unstated)} if code in OF_A_VESSEL else {}


MARKED = tuple(code for item in OF_A_VESSEL for code in vessel_codes(item))
VENOUS = tuple(code for code in MARKED if not code.endswith(NOT_STATED))


def gases_with_vessels(rows: pl.DataFrame) -> pl.DataFrame:
    """Return subject_id, time, code and vessel of gases that are not arterial, each once.

    rows: events of some patients, with all of their specimen types and blood gases.
    """
    written = pl.col("text_value").str.strip_chars(" .").str.to_uppercase()
    types = rows.filter(pl.col("code").is_in(SPECIMEN_TYPES)).select(*DRAW, _type=written).unique()
    vessel = pl.col("_type").replace_strict(VESSELS, default=None, return_dtype=pl.String)
    draws = types.filter(pl.len().over(DRAW) == 1).select(*DRAW, vessel=vessel).drop_nulls()
    gases = rows.filter(pl.col("code").is_in(OF_A_VESSEL)).select(*DRAW, "code").unique()
    return pl.concat([gases.join(draws, on=DRAW), _unstated(rows, gases, types)])


def _unstated(rows: pl.DataFrame, gases: pl.DataFrame, types: pl.DataFrame) -> pl.DataFrame:
    """Saturations of draws without a type and without a pO2, as `gases_with_vessels` returns them."""
    loinc = rows.filter(pl.col("code") == SPECIMEN_TYPES[-1]).select("subject_id", _loinc=True).unique()
    alone = gases.filter(pl.col("code").is_in((SATURATION, LOINC_SATURATION)))
    alone = alone.join(loinc, on="subject_id", how="left").filter((pl.col("code") == SATURATION) | pl.col("_loinc"))
    others = pl.concat([types.select(DRAW), gases.filter(pl.col("code").is_in(PRESSURES)).select(DRAW)])
    return alone.join(others, on=DRAW, how="anti").select(*DRAW, "code", vessel=pl.lit(NOT_STATED))


def with_vessels(rows: pl.DataFrame) -> pl.DataFrame:
    """Give gases that are not arterial their codes. rows: all events of some patients, whose order stays."""
    marked = gases_with_vessels(rows)
    if marked.is_empty():
        return rows
    places = rows.select(*DRAW, "code").with_row_index("_place").join(marked, on=[*DRAW, "code"])
    codes = places.select(pl.concat_str("code", pl.lit("/"), "vessel").alias("code"))["code"]
    return rows.with_columns(rows["code"].scatter(places["_place"], codes))


def count_vessels(events: pl.LazyFrame, table: str = "labevents") -> dict[str, int]:
    """Count results with a code that says a vessel, where there are any: "marked.<table>.venous", and
    "marked.<table>.vessel_not_stated"."""
    codes = events.select(pl.col("code").filter(pl.col("code").is_in(MARKED))).collect(engine="streaming")["code"]
    return marked_counts(codes, table)


def marked_counts(codes: pl.Series, table: str) -> dict[str, int]:
    """The counts of `count_vessels` from the codes of some events."""
    venous = int(codes.is_in(VENOUS).sum())
    unstated = int(codes.is_in(MARKED).sum()) - venous
    counts = {f"marked.{table}.venous": venous, f"marked.{table}.vessel_not_stated": unstated}
    return {rule: count for rule, count in counts.items() if count}


def vessel_titles(titles: pl.DataFrame) -> pl.DataFrame:
    """Return code and description of the `MARKED` codes of the items in `titles`."""
    rows = [
        (code, f"{label} ({vessel})")
        for item, label in titles.filter(pl.col("code").is_in(OF_A_VESSEL)).select("code", "description").iter_rows()
        for code, vessel in vessel_codes(item).items()
    ]
    return pl.DataFrame(rows, {"code": pl.String, "description": pl.String}, orient="row")
