"""eICU's table patient: ICU stays on a timeline, and what it says of the patient (rules: eicu.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from ghar.data.readers.columns import open_declared
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.events import F64, I64, TEXT, TIME, CountedRows, event
from ghar.data.readers.tables import sift
from ghar.data.readers.vitals import implausible, variables_of
from ghar.errors import BadInput

# Minutes from the admission to the unit that can be true: two years either way. Data-entry errors reach 190 years.
OFFSETS = (-1_051_200, 1_051_200)
EPOCH = 2014  # the year of a hospital stay of unknown year; eICU holds 2014 and 2015
GROWN = {"VITAL/height": 100.0, "VITAL/weight": 20.0}  # cm, kg: the least of who is `ADULT` years old or more
ADULT = 15
BODY = {"admissionheight": "height", "admissionweight": "weight", "dischargeweight": "weight"}


def read_stays(root: Path) -> CountedRows:
    """`Cohort.visits` with `group`, and gender, age, unit and body measures as the source has them.

    subject_id is the patient's name as a number: "002-1039" is 20001039.
    """
    table = open_declared(root, EICU, "patient")
    offsets = ("hospitaladmitoffset", "hospitaldischargeoffset", "unitdischargeoffset")
    table = replace(table, rows=with_sound_offsets(table.rows, *offsets))
    patient = pl.col("uniquepid").str.strip_chars().str.extract_groups(r"^([0-9]{3})-([1-9][0-9]{0,6})$")
    clock = pl.col("hospitaladmittime24").str.to_time("%H:%M:%S", strict=False)
    year, since, stay = (pl.col(c) for c in ("hospitaldischargeyear", "hospitaladmitoffset", "unitdischargeoffset"))
    minutes = clock.dt.hour().cast(I64) * 60 + clock.dt.minute() - since.fill_null(0)
    start = pl.datetime(year.fill_null(EPOCH), 1, 1).cast(TIME) + pl.duration(
        minutes=pl.coalesce(minutes, -since, pl.lit(0))
    )
    unit, hospital = (
        pl.col(f"{place}dischargestatus").str.to_lowercase() == "expired" for place in ("unit", "hospital")
    )
    blank = pl.col("unitdischargestatus").fill_null("").str.strip_chars() == ""
    leaves = pl.col("hospitaldischargeoffset")
    died = pl.when(blank).then(hospital & (leaves <= stay)).otherwise(unit).fill_null(False)
    drops = {
        "no_id": pl.col("patientunitstayid").is_null(),
        "repeated": ~pl.col("patientunitstayid").is_first_distinct(),
        "no_patient": patient.struct.field("1").is_null(),
        "no_hospital_stay": pl.col("patienthealthsystemstayid").is_null(),
        "impossible_year": ~year.is_between(1900, 2200),
    }
    repairs = {
        "no_discharge_year": year.is_null(),
        "no_admission_hour": clock.is_null(),
        "no_admission_offset": since.is_null(),
        "no_discharge_offset": stay.is_null(),
        "offset_out_of_range": pl.col("_far"),
        "discharge_before_admission": stay < 0,
        "no_unit_status": blank,
        "expired_but_hospital_says_alive": unit & (pl.col("hospitaldischargestatus").str.to_lowercase() == "alive"),
    }
    end = pl.when(stay >= 0).then(start + pl.duration(minutes=stay))
    death = pl.coalesce(end, start + pl.duration(minutes=pl.max_horizontal(leaves, 0)), start)
    left, right = (patient.struct.field(field).cast(I64, strict=False) for field in ("1", "2"))
    result = [
        (left * 10_000_000 + right).alias("subject_id"),
        pl.col("patientunitstayid").alias("visit_id"),
        pl.col("patienthealthsystemstayid").alias("group"),
        start.alias("start"),
        end.alias("end"),
        died.alias("died"),
        pl.when(died).then(death).alias("death_time"),
        *(pl.col(c) for c in ("unitvisitnumber", "gender", "age", "unittype", *BODY)),
    ]
    stays, counts = sift(table, table.rows, drops, repairs, result)
    if stays.is_empty():
        raise BadInput(f"{table.path} has no ICU stay of a patient: copy the table again.")
    stays = stays.sort("subject_id", "group", "start", "unitvisitnumber", "visit_id")
    number = pl.col("unitvisitnumber")
    against = stays.select((number < number.shift().over("subject_id", "group")).sum()).item()
    return stays, counts | ({"repaired.patient.visit_number_not_in_time_order": against} if against else {})


def with_stay(rows: pl.LazyFrame, stays: pl.DataFrame) -> pl.LazyFrame:
    """Rows with subject_id, `start` and `end` of their ICU stay, null where there is no such stay."""
    spans = stays.lazy().select("subject_id", "start", "end", patientunitstayid="visit_id")
    return rows.join(spans, on="patientunitstayid", how="left", maintain_order="left")


def with_sound_offsets(rows: pl.LazyFrame, *names: str) -> pl.LazyFrame:
    """The rows with offsets (minutes) outside of `OFFSETS` as null, and the column `_far`: whether one was."""
    far = [~pl.col(name).is_between(*OFFSETS) for name in names]
    sound = [pl.when(~one).then(pl.col(name)).alias(name) for name, one in zip(names, far, strict=True)]
    return rows.with_columns(*sound, _far=pl.any_horizontal(one.fill_null(False) for one in far))


def far_offset(*names: str) -> dict[str, pl.Expr]:
    """The rule of `sift` for rows that have no time but one out of range; `with_sound_offsets` comes first."""
    return {"offset_out_of_range": pl.col("_far") & pl.all_horizontal(pl.col(name).is_null() for name in names)}


def at(minutes: pl.Expr) -> pl.Expr:
    """The time of an offset, null without one; needs the stay's `start`."""
    return pl.col("start") + pl.duration(minutes=minutes)


def stay_events(stays: pl.DataFrame) -> tuple[list[pl.DataFrame], dict[str, int]]:
    """ICU admissions, ages (90 for "> 89"), and the static gender of each patient."""
    start, never = pl.col("start"), pl.lit(None, TIME)
    unit = pl.col("unittype").str.strip_chars()
    unit = pl.when(unit != "").then(unit).otherwise(pl.lit("UNKNOWN"))
    admissions = stays.select(event(start, pl.concat_str(pl.lit("ICU_ADMISSION/"), unit), start, visit="visit_id"))
    text = pl.col("age").str.strip_chars()
    years = pl.when(text.str.contains("^> ?89$")).then(90.0).otherwise(text.cast(F64, strict=False))
    aged = stays.with_columns(years=pl.when(years > 89).then(90.0).otherwise(years)).filter(pl.col("years") >= 0)
    ages = aged.select(event(start, pl.lit("AGE"), start, pl.col("years"), visit="visit_id"))
    letter = (
        pl.col("gender")
        .str.strip_chars()
        .str.to_lowercase()
        .replace_strict({"female": "F", "male": "M"}, default=None, return_dtype=TEXT)
    )
    patients = stays.with_columns(letter=letter).sort("letter", nulls_last=True, maintain_order=True)
    patients = patients.unique("subject_id", keep="first", maintain_order=True).sort("subject_id")
    rows = patients.filter(pl.col("letter").is_not_null()).with_columns(visit_id=pl.lit(None, I64))
    genders = rows.select(event(never, pl.concat_str(pl.lit("GENDER/"), pl.col("letter")), never, visit="visit_id"))
    counts = {
        "repaired.patient.no_age": stays.height - ages.height,
        "repaired.patient.age_over_89": aged.select((pl.col("years") == 90).sum()).item(),
        "repaired.patient.no_gender": patients.height - genders.height,
    }
    return [genders, ages, admissions], {rule: n for rule, n in counts.items() if n}


def body_measures(stays: pl.DataFrame) -> CountedRows:
    """Height and weights of the table patient as vital events; rows are counted as those of "patient_body".

    A height of an adult below a metre is one in inches or of another field (66 cm, 0.3 cm): implausible, as a weight
    of 0.5 kg is.
    """
    index = ["subject_id", "visit_id", "start", "end", "age"]
    cells = stays.unpivot(list(BODY), index=index, variable_name="field")
    cells = cells.join(variables_of(BODY, "field").collect(), on="field", maintain_order="left")
    value = pl.col("value")
    time = pl.when(pl.col("field") == "dischargeweight").then(pl.coalesce("end", "start")).otherwise("start")
    years = pl.col("age").str.strip_chars("> ").cast(F64, strict=False)
    small = value < pl.col("vital").replace_strict(GROWN, default=None, return_dtype=F64)
    wrong = (implausible(value) | ((years >= ADULT) & small)).fill_null(False)
    kept = cells.filter(value.is_not_null() & ~wrong)
    counts = {
        "rows.patient_body": cells.height,
        "dropped.patient_body.no_value": cells["value"].null_count(),
        "dropped.patient_body.implausible": cells.select(wrong.sum()).item(),
    }
    events = kept.select(event(time, pl.col("vital"), time, value, visit="visit_id"))
    return events, {rule: n for rule, n in counts.items() if n}
