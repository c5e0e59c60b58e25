"""Further tables of MIMIC-IV for systems that read events (data.more): outpatient measures, microbiology, drugs given,
infusions (infusions.py), the course of a stay (mimic_care.py), and the emergency department (MIMIC-IV-ED 2.2, its
folder ed/ beside hosp/).

No event here is a code of a visit, so that visits show what they show without them. Rules, counted as in mimic4.py:

omr           "VITAL/weight", "VITAL/height" and the two blood pressures in the units of vitals.py
              ("added.omr.second_pressure"), any other measure as "OMR/<name>". It has dates only: known at the last
              second of the day.
microbiology  "MICROBIOLOGY/<test>", with specimen, organism, antibiotic and interpretation as text ("specimen URINE"
              alone is no result: no organism was named); known when stored.
              What was never stored is known at the end of its stay, else of its day ("no_storetime").
emar          "GIVEN/<drug>", of rows that say it was given; the others are "not_given".
ed            "ED_ADMISSION/<transport>" and "ED_DISCHARGE/<disposition>" at their times; triage at the arrival: vital
              signs, "ED/acuity" and "ED/chief complaint"; vital signs when charted; "GIVEN/<drug>" of pyxis,
              "HOME_DRUG/<name>" of medrecon; diagnoses as "ED_DIAGNOSIS/<title>", known at the discharge from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from ghar.data.readers.columns import open_declared
from ghar.data.readers.events import F64, I64, LazyRows, event, stacked
from ghar.data.readers.infusions import read_inputs
from ghar.data.readers.mimic import join_visits
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.mimic_care import read_outputs, read_services, read_transfers
from ghar.data.readers.note_events import read_radiology
from ghar.data.readers.tables import find_table, sift, sift_large
from ghar.data.readers.vitals import INCH, POUND, celsius, implausible, variables_of

MORE: Mapping[str, tuple[str, ...]] = {  # data.more -> its tables
    "ed": ("ed/edstays", "ed/triage", "ed/vitalsign", "ed/diagnosis", "ed/medrecon", "ed/pyxis"),
    "omr": ("hosp/omr",),
    "microbiology": ("hosp/microbiologyevents",),
    "emar": ("hosp/emar",),
    "inputs": ("icu/inputevents", "icu/d_items"),
    "outputs": ("icu/outputevents", "icu/d_items"),
    "transfers": ("hosp/transfers",),
    "services": ("hosp/services",),
    "notes": ("note/radiology",),
}
LAST_SECOND = pl.duration(hours=23, minutes=59, seconds=59)
PRESSURE = r"^\s*([0-9]{1,3})\s*/\s*([0-9]{1,3})\s*$"
SYSTOLIC, DIASTOLIC = "systolic blood pressure", "diastolic blood pressure"
MEASURES = {"weight (lbs)": "weight", "height (inches)": "height"}
# Words of `event_txt` anywhere: "Delayed Not Started" and "Confirmed, not given" are no drug given.
GIVEN = r"\b(administered|started|restarted|applied|given|bolus)\b"
NOT_GIVEN = r"\b(not|hold|held|stopped|refused|cancell?ed)\b"
SIGNS = {
    "temperature": "temperature",
    "heartrate": "heart rate",
    "resprate": "respiratory rate",
    "o2sat": "oxygen saturation",
    "sbp": SYSTOLIC,
    "dbp": DIASTOLIC,
}
HOTTEST = 60.0  # degrees Celsius; above, a temperature is in Fahrenheit
Reader = Callable[[Path, pl.DataFrame, pl.DataFrame, Path], LazyRows]


def more_tables(
    root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path
) -> dict[str, Callable[[], LazyRows]]:
    """How each of MORE is read; BadInput of the first table where it is absent."""
    readers: dict[str, Reader] = {"ed": _ed, "omr": _omr, "microbiology": _microbiology, "emar": _emar}
    readers |= {"notes": read_radiology}
    people, items = (visits, patients, work), "icu/d_items"
    return {name: partial(read, root, *people) for name, read in readers.items()} | {
        "inputs": partial(read_inputs, root, MIMIC4, "icu/inputevents", items, *people),
        "outputs": partial(read_outputs, root, MIMIC4, "icu/outputevents", items, *people),
        "transfers": partial(read_transfers, root, MIMIC4, "hosp/transfers", *people),
        "services": partial(read_services, root, MIMIC4, "hosp/services", *people),
    }


def _join_patients(rows: pl.LazyFrame, patients: pl.DataFrame) -> pl.LazyFrame:
    """Rows with `known`: true where the patient is in the table of patients."""
    subjects = patients.lazy().select("subject_id", known=True)
    return rows.join(subjects, on="subject_id", how="left", maintain_order="left")


def _named(column: str, prefix: str) -> pl.Expr:
    """A code of what a column says in lower case; null for a blank."""
    name = pl.col(column).str.strip_chars().str.to_lowercase()
    return pl.when(name != "").then(pl.concat_str(pl.lit(prefix), name))


def _omr(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> LazyRows:
    table = open_declared(root, MIMIC4, "hosp/omr")
    name, text, day = pl.col("_name"), pl.col("result_value").str.strip_chars(), pl.col("chartdate")
    first = pl.when(name.str.contains("^omr/blood pressure")).then(pl.lit(SYSTOLIC))
    labels = {**{f"omr/{name}": variable for name, variable in MEASURES.items()}, SYSTOLIC: SYSTOLIC}
    number = pl.coalesce(text.str.extract(PRESSURE, 1), text).cast(F64, strict=False)
    number = pl.when(pl.col("_key") == "omr/weight (lbs)").then(number * POUND).otherwise(number)
    number = pl.when(pl.col("_key") == "omr/height (inches)").then(number * INCH).otherwise(number)
    rows = _join_patients(table.rows, patients)
    rows = rows.with_columns(_name=_named("result_name", "omr/"), hadm_id=pl.lit(None, I64))
    rows = rows.with_columns(_key=first.otherwise(name))
    rows = rows.join(variables_of(labels, "_key"), on="_key", how="left", maintain_order="left")
    rows = rows.with_columns(_value=number, _second=text.str.extract(PRESSURE, 2).cast(F64, strict=False))
    drops = {
        "unknown_patient": pl.col("known").is_null(),
        "no_name": name.is_null(),
        "no_date": day.is_null(),
        "no_value": text.is_null() | (text == ""),
        "not_a_number": pl.col("variable").is_not_null() & pl.col("_value").is_null(),
        "implausible": implausible(pl.col("_value")),
    }
    code = pl.coalesce("vital", pl.concat_str(pl.lit("OMR/"), name.str.slice(4)))
    value = pl.col("_value")
    result = event(day, code, day.dt.truncate("1d") + LAST_SECOND, value, pl.when(value.is_null()).then(text))
    kept, counts = sift_large(table, rows, drops, {}, [*result, pl.col("_second").cast(pl.Float32)], work)
    below = kept.filter(pl.col("_second").is_between(5, 300) & (pl.col("code") == f"VITAL/{SYSTOLIC}"))
    below = below.with_columns(code=pl.lit(f"VITAL/{DIASTOLIC}"), numeric_value="_second")
    added = below.select(pl.len()).collect(engine="streaming").item()
    return pl.concat([kept, below]).drop("_second"), counts | ({"added.omr.second_pressure": added} if added else {})


def _microbiology(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> LazyRows:
    table = open_declared(root, MIMIC4, "hosp/microbiologyevents")
    taken = pl.coalesce("charttime", "chartdate")
    stored = pl.coalesce("storetime", pl.col("storedate").dt.truncate("1d") + LAST_SECOND)
    recorded = pl.coalesce(stored, "end", taken.dt.truncate("1d") + LAST_SECOND)
    code = _named("test_name", "MICROBIOLOGY/")
    words = ("spec_type_desc", "org_name", "ab_name", "interpretation")
    blank = {name: pl.when(pl.col(name).str.strip_chars() != "").then(pl.col(name).str.strip_chars()) for name in words}
    result_of = pl.concat_str([blank["ab_name"], blank["interpretation"]], separator=" ", ignore_nulls=True)
    specimen = pl.concat_str(pl.lit("specimen "), blank["spec_type_desc"])  # null where blank
    parts = [specimen, blank["org_name"], pl.when(result_of != "").then(result_of)]
    drops = {
        "unknown_patient": pl.col("known").is_null(),
        "unknown_admission": pl.col("hadm_id").is_not_null() & pl.col("start").is_null(),
        "no_test": code.is_null(),
        "no_time": taken.is_null(),
    }
    repairs = {"no_charttime": pl.col("charttime").is_null(), "no_storetime": stored.is_null()}
    text = pl.concat_str(parts, separator=", ", ignore_nulls=True)
    result = event(taken, code, pl.max_horizontal(recorded, taken), text=text)
    return sift_large(table, _join_patients(join_visits(table, visits), patients), drops, repairs, result, work)


def _emar(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> LazyRows:
    table = open_declared(root, MIMIC4, "hosp/emar")
    code, event_text, time = _named("medication", "GIVEN/"), pl.col("event_txt").str.to_lowercase(), pl.col("charttime")
    given = event_text.str.contains(GIVEN) & ~event_text.str.contains(NOT_GIVEN)
    drops = {
        "unknown_patient": pl.col("known").is_null(),
        "unknown_admission": pl.col("hadm_id").is_not_null() & pl.col("start").is_null(),
        "not_given": ~given.fill_null(False),
        "blank_drug": code.is_null(),
        "no_time": time.is_null(),
    }
    late = {"no_storetime": pl.col("storetime").is_null(), "stored_before_charted": pl.col("storetime") < time}
    result = event(time, code, pl.max_horizontal("storetime", time))
    return sift_large(table, _join_patients(join_visits(table, visits), patients), drops, late, result, work)


def _ed(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> LazyRows:
    """All of the emergency department; its stays must be there, other tables may be absent ("absent.triage")."""
    stays, counts = _ed_stays(root, visits, patients)
    left = pl.coalesce("outtime", "intime")
    came = stays.select(event(pl.col("intime"), _or(pl.col("_by"), "ED_ADMISSION/"), pl.col("intime")))
    gone = stays.filter(pl.col("outtime") >= pl.col("intime"))
    gone = gone.select(event(pl.col("outtime"), _or(pl.col("_to"), "ED_DISCHARGE/"), pl.col("outtime")))
    counts |= {"added.edstays.discharges": gone.height} if gone.height else {}
    parts: list[pl.DataFrame | pl.LazyFrame] = [came, gone]
    at = pl.col("charttime")
    readers: dict[str, Callable[[], LazyRows]] = {
        "ed/triage": partial(_ed_signs, root, "ed/triage", stays, work, pl.col("intime")),
        "ed/vitalsign": partial(_ed_signs, root, "ed/vitalsign", stays, work, at),
        "ed/diagnosis": partial(_ed_words, root, "ed/diagnosis", "icd_title", "ED_DIAGNOSIS/", stays, work, left),
        "ed/medrecon": partial(_ed_words, root, "ed/medrecon", "name", "HOME_DRUG/", stays, work, at),
        "ed/pyxis": partial(_ed_words, root, "ed/pyxis", "name", "GIVEN/", stays, work, at),
    }
    for name, read in readers.items():
        if find_table(root, name) is None:
            counts[f"absent.{name[3:]}"] = 1
            continue
        events, part_counts = read()
        parts.append(events)
        counts |= part_counts
    if find_table(root, "ed/triage") is not None:
        for column, code in (("acuity", "ED/acuity"), ("chiefcomplaint", "ED/chief complaint")):
            parts.append(_read_triage_column(root, column, code, stays))
    return stacked(parts), counts


def _or(name: pl.Expr, prefix: str) -> pl.Expr:
    return pl.concat_str(pl.lit(prefix), name.fill_null("UNKNOWN"))


def _ed_stays(root: Path, visits: pl.DataFrame, patients: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """subject_id, hadm_id (null where no admission followed), stay_id, intime, outtime, _by, _to."""
    table = open_declared(root, MIMIC4, "ed/edstays")
    drops = {
        "no_id": pl.col("stay_id").is_null(),
        "repeated": ~pl.col("stay_id").is_first_distinct(),
        "unknown_patient": pl.col("known").is_null(),
        "no_time": pl.col("intime").is_null(),
    }
    lost = pl.col("hadm_id").is_not_null() & pl.col("start").is_null()
    late = pl.col("outtime") < pl.col("intime")
    repairs = {"unknown_admission": lost, "no_outtime": pl.col("outtime").is_null(), "outtime_before_intime": late}
    how = [pl.col(name).str.strip_chars().str.to_uppercase() for name in ("arrival_transport", "disposition")]
    result = [
        *(pl.col(name) for name in ("subject_id", "stay_id", "intime")),
        pl.when(~lost).then("hadm_id").alias("hadm_id"),
        pl.when(~late).then("outtime").alias("outtime"),
        how[0].alias("_by"),
        how[1].alias("_to"),
    ]
    return sift(table, _join_patients(join_visits(table, visits), patients), drops, repairs, result)


def _of_stay(rows: pl.LazyFrame, stays: pl.DataFrame) -> pl.LazyFrame:
    """Rows with patient, admission and times of their stay in the emergency department."""
    about = stays.lazy().select("stay_id", "subject_id", "hadm_id", "intime", "outtime")
    return rows.join(about, on="stay_id", how="left", maintain_order="left")


def _ed_signs(root: Path, name: str, stays: pl.DataFrame, work: Path, time: pl.Expr) -> LazyRows:
    """Vital signs, a column each, as cells; temperatures in Fahrenheit become Celsius."""
    table = open_declared(root, MIMIC4, name)
    index = [column for column in ("stay_id", "charttime") if column in table.columns]
    cells = table.rows.unpivot(list(SIGNS), index=index, variable_name="label")
    hot = (pl.col("label") == "temperature") & (pl.col("value") > HOTTEST)
    cells = cells.with_columns(_value=pl.when(hot).then(celsius(pl.col("value"))).otherwise("value"))
    rows = _of_stay(cells.join(variables_of(SIGNS, "label"), on="label", how="left", maintain_order="left"), stays)
    value = pl.col("_value")
    drops = {
        "no_value": value.is_null(),
        "unknown_stay": pl.col("subject_id").is_null(),
        "no_time": time.is_null(),
        "implausible": implausible(value),
    }
    whole = replace(table, cells=len(SIGNS))
    return sift_large(whole, rows, drops, {}, event(time, pl.col("vital"), time, value), work)


def _ed_words(
    root: Path, name: str, column: str, prefix: str, stays: pl.DataFrame, work: Path, time: pl.Expr
) -> LazyRows:
    """A code of what `column` says, at `time`."""
    table = open_declared(root, MIMIC4, name)
    code = _named(column, prefix)
    drops = {"unknown_stay": pl.col("subject_id").is_null(), "blank": code.is_null(), "no_time": time.is_null()}
    return sift_large(table, _of_stay(table.rows, stays), drops, {}, event(time, code, time), work)


def _read_triage_column(root: Path, column: str, code: str, stays: pl.DataFrame) -> pl.DataFrame:
    """How urgent, and why the patient came; cells that say nothing are no events."""
    table = open_declared(root, MIMIC4, "ed/triage")
    text = pl.col(column).str.strip_chars()
    number = text.cast(F64, strict=False)
    rows = _of_stay(table.rows, stays).filter(pl.col("subject_id").is_not_null() & (text != ""))
    at = pl.col("intime")
    return rows.select(event(at, pl.lit(code), at, number, pl.when(number.is_null()).then(text))).collect()
