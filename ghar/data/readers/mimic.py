"""The tables that MIMIC-III and MIMIC-IV have in common, with the rules of both readers (see mimic4.py, mimic3.py)."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from ghar.data.readers.columns import SourceColumns, open_declared
from ghar.data.readers.deaths import WHOLE_DAY
from ghar.data.readers.events import (
    F64,
    I64,
    TIME,
    CountedRows,
    LazyRows,
    dictionary,
    event,
    finite,
    with_drug_code,
    words,
)
from ghar.data.readers.tables import SourceTable, sift, sift_large
from ghar.data.readers.units import converted, with_factor
from ghar.data.readers.vessels import vessel_titles
from ghar.errors import BadInput

WARDS = {"last_careunit", "first_wardid", "last_wardid"}
MOVED = "after a transfer"


def join_visits(table: SourceTable, visits: pl.DataFrame) -> pl.LazyFrame:
    """Rows with `start` and `end` of their visit, null where patient and admission do not belong together."""
    spans = visits.lazy().select(pl.col("visit_id").alias("hadm_id"), "start", "end", _owner="subject_id")
    theirs = pl.col("subject_id") == pl.col("_owner")  # a join on one key and a look is cheaper than one on two
    rows = table.rows.join(spans, on="hadm_id", how="left", maintain_order="left")
    return rows.with_columns(pl.when(theirs).then(pl.col("start", "end"))).drop("_owner")


def read_patients(root: Path, source: SourceColumns, name: str) -> CountedRows:
    """The columns that `source` declares of the table `name`, a row a patient; subject_id and dod are among them."""
    table = open_declared(root, source, name)
    drops = {"no_id": pl.col("subject_id").is_null(), "repeated": ~pl.col("subject_id").is_first_distinct()}
    frame, counts = sift(table, table.rows, drops, {}, [pl.col(column) for column in table.columns])
    if frame.is_empty():
        raise BadInput(f"{table.path} lists no patient: copy the table again.")
    return frame, counts


def read_visits(root: Path, source: SourceColumns, name: str, patients: pl.DataFrame) -> CountedRows:
    """`Cohort.visits` from the table of admissions."""
    table = open_declared(root, source, name)
    subjects = patients.lazy().select("subject_id", "dod", known=True)
    start, end, died_at, flag = (pl.col(c) for c in ("admittime", "dischtime", "deathtime", "hospital_expire_flag"))
    died = pl.coalesce(flag == 1, died_at.is_not_null())
    sound_end = pl.when(end >= start).then(end)
    # A date of death stands for the whole day: its last second, but not after the discharge.
    dod = pl.min_horizontal(pl.col("dod") + WHOLE_DAY, sound_end)
    death = pl.max_horizontal(pl.coalesce(died_at, dod, start), start)
    drops = {
        "no_id": pl.col("hadm_id").is_null(),
        "repeated": ~pl.col("hadm_id").is_first_distinct(),
        "unknown_patient": pl.col("known").is_null(),
        "no_admission_time": start.is_null(),
    }
    repairs = {
        "no_discharge_time": end.is_null(),
        "discharge_before_admission": end < start,
        "no_death_time": died & died_at.is_null(),
        "death_before_admission": died & (died_at < start),
        "death_time_of_survivor": ~died & died_at.is_not_null(),
    }
    result = [
        pl.col("subject_id"),
        pl.col("hadm_id").alias("visit_id"),
        start.alias("start"),
        sound_end.alias("end"),
        died.alias("died"),
        pl.when(died).then(death).alias("death_time"),
    ]
    rows = table.rows.join(subjects, on="subject_id", how="left", maintain_order="left")
    visits, counts = sift(table, rows, drops, repairs, result)
    if visits.is_empty():
        raise BadInput(f"{table.path} has no admission of a patient in the table of patients: copy both tables again.")
    return visits.sort("subject_id", "start", "visit_id"), counts


def icd_code(column: str) -> pl.Expr:
    """A code as MIMIC writes it: without blanks and dots, in upper case."""
    return pl.col(column).str.strip_chars().str.replace(".", "", literal=True).str.to_uppercase()


def icd_repairs(column: str) -> dict[str, pl.Expr]:
    """Rules of `sift` for codes written otherwise, and for those that lost zeros (`with_lost_zeros`)."""
    other = pl.col(column).str.strip_chars() != icd_code(column)
    return {"code_with_dot_or_in_lower_case": other, "leading_zeros_lost": pl.col("whole").is_not_null()}


def with_lost_zeros(rows: pl.LazyFrame, code: pl.Expr, titles: pl.DataFrame) -> pl.LazyFrame:
    """`rows` with the column `whole`: the known code that `code` is when lost leading zeros are put back, else null.

    titles: names of ICD-9 codes ("ICD9CM/0090"). A code of digits that is known as it stands lost nothing.
    """
    codes = titles.select(whole=pl.col("code").str.replace("^[^/]*/", ""))
    zeros = codes.filter(pl.col("whole").str.contains("^0{1,2}[1-9][0-9]*$"))
    lost = (
        zeros.with_columns(stripped=pl.col("whole").str.strip_chars_start("0"))
        .join(codes, left_on="stripped", right_on="whole", how="anti")
        .filter(pl.col("stripped").is_unique())
    )
    return rows.join(lost.lazy(), left_on=code, right_on="stripped", how="left", maintain_order="left")


def once(rows: pl.DataFrame, name: str) -> CountedRows:
    """Rows of the table `name` without those that repeat another in every column, and their count."""
    kept = rows.unique(keep="first", maintain_order=True)
    repeats = rows.height - kept.height
    return kept, {f"dropped.{name}.repeated": repeats} if repeats else {}


def read_icu(root: Path, source: SourceColumns, name: str, visits: pl.DataFrame) -> CountedRows:
    """ICU stays: an event at the start, which does not carry the end, and one of its own at the end (trap 5).

    Counts the latter as "added.icustays.discharges"; an end that is missing or before the start has none. Where the
    table has wards (MIMIC-III), the end of a stay that changed its unit or ward says so (MOVED), counted as
    "marked.icustays.transfers".
    """
    table = open_declared(root, source, name)
    wards = set(table.columns) >= WARDS
    unit, enters, leaves = pl.col("first_careunit").str.strip_chars(), pl.col("intime"), pl.col("outtime")
    drops = {"unknown_admission": pl.col("start").is_null(), "no_intime": enters.is_null()}
    code = pl.concat_str(pl.lit("ICU_ADMISSION/"), unit.fill_null("UNKNOWN"))
    repairs = {"no_careunit": unit.is_null(), "no_outtime": leaves.is_null(), "outtime_before_intime": leaves < enters}
    moved = pl.lit(False)
    if wards:
        moved = (pl.col("first_careunit") != pl.col("last_careunit")) | (
            pl.col("first_wardid") != pl.col("last_wardid")
        )
    result = [*event(enters, code, enters), leaves.alias("leaves"), moved.fill_null(True).alias("moved")]
    stays, counts = sift(table, join_visits(table, visits), drops, repairs, result)
    ended = stays.filter(pl.col("leaves") >= pl.col("time")).with_columns(
        code=pl.lit("ICU_DISCHARGE"),
        time="leaves",
        recorded="leaves",
        text_value=pl.when("moved").then(pl.lit(MOVED)),
    )
    counts |= {"marked.icustays.transfers": int(ended["moved"].sum())} if wards else {}
    counts |= {"added.icustays.discharges": ended.height} if ended.height else {}
    return pl.concat([stays, ended]).drop("leaves", "moved"), counts


def read_labs(
    root: Path, source: SourceColumns, name: str, visits: pl.DataFrame, patients: pl.DataFrame, work: Path
) -> LazyRows:
    """Laboratory results, known when stored, where the table says it (trap 4), else when drawn.

    Numbers are in the house's units (units.py). Where neither a value nor a number stands in the row, the result is in
    the comments ("NEG.", "<0.01"), if anywhere: rows without either are counted as "no_value".
    """
    table = open_declared(root, source, name)
    stored = "storetime" in table.columns
    drawn = pl.col("charttime")
    code = pl.concat_str(pl.lit("LAB/"), pl.col("itemid").cast(pl.String))
    raw_unit = pl.col("valueuom") if "valueuom" in table.columns else pl.lit(None, pl.String)
    remark = _filled(pl.col("comments")) if "comments" in table.columns else pl.lit(None, pl.String)
    number = finite(pl.col("valuenum")) * pl.coalesce("_factor", 1.0)
    value, unread = _filled(pl.col("value")), pl.col("valuenum").is_null()
    unit = pl.when(converted() & unread).then(raw_unit)  # "<118" is no number: it keeps its unit
    text = pl.concat_str(value, unit, separator=" ", ignore_nulls=True)
    text = pl.when(value.is_not_null()).then(text).otherwise(pl.when(unread).then(remark))
    recorded = pl.col("storetime") if stored else drawn
    drops = {
        "unknown_patient": ~pl.col("subject_id").is_in(patients["subject_id"].implode()).fill_null(False),
        "unknown_admission": pl.col("hadm_id").is_not_null() & pl.col("start").is_null(),
        "no_item": pl.col("itemid").is_null(),
        "no_time": drawn.is_null() & recorded.is_null(),
    }
    late = {"no_storetime": recorded.is_null(), "stored_before_drawn": recorded < drawn}
    repairs = {"no_charttime": drawn.is_null(), "not_finite": ~pl.col("valuenum").is_finite()}
    repairs |= late if stored else {}
    repairs |= {
        "converted_unit": converted() & ~unread,
        "other_unit": pl.col("_factor").is_null() & ~unread,
        "result_in_comments": unread & value.is_null() & remark.is_not_null(),
        "no_value": unread & value.is_null() & remark.is_null(),
    }
    value_text = words(text, finite(pl.col("valuenum")))
    result = event(pl.coalesce(drawn, recorded), code, pl.max_horizontal(recorded, drawn), number, value_text)
    return sift_large(table, with_factor(join_visits(table, visits), code, raw_unit), drops, repairs, result, work)


def lab_titles(root: Path, source: SourceColumns, name: str) -> pl.DataFrame:
    """Names of laboratory items: the label, with what is looked at where that is not blood and the label is silent; and
    of their codes that say a vessel (vessels.py).

    14 labels of the MIMIC-IV demo stand for numbers of several fluids: to whoever reads names, the pH of blood and that
    of urine would be one item.
    """
    table = open_declared(root, source, name)
    titles = dictionary(table, pl.concat_str(pl.lit("LAB/"), pl.col("itemid").cast(pl.String)), "label")
    if "fluid" not in table.columns:
        return pl.concat([titles, vessel_titles(titles)])
    fluids = {f"LAB/{item}": fluid for item, fluid in table.rows.select("itemid", "fluid").collect().iter_rows()}
    named = [with_fluid(label, fluids.get(code)) for code, label in titles.iter_rows()]
    titles = titles.with_columns(description=pl.Series(named, dtype=pl.String))
    return pl.concat([titles, vessel_titles(titles)])


def with_fluid(label: str, fluid: str | None) -> str:
    """ "pH (urine)"; the label alone of blood, of no fluid, and where it names the fluid itself ("Sodium, Urine")."""
    bare = (fluid or "").partition("(")[0].strip()
    if bare.lower() in ("", "blood") or re.search(rf"\b{re.escape(bare)}\b", label, re.IGNORECASE):
        return label
    return f"{label} ({bare.lower()})"


def _filled(text: pl.Expr) -> pl.Expr:
    """A text that says something: not blank, and not "___", which stands for what was taken out."""
    bare = text.str.strip_chars()
    return pl.when((bare != "") & (bare != "___")).then(bare)


DILUENT = "DILUENT"  # vocabulary of bags, vials and solutions, in which drugs are given


def with_order_code(rows: pl.LazyFrame) -> pl.LazyFrame:
    """`with_drug_code` of the column drug; where drug_type is BASE, the code of a diluent, which is no medication."""
    rows = with_drug_code(rows, "drug")
    if "drug_type" not in rows.collect_schema():
        return rows.with_columns(_base=pl.lit(False))
    base = (pl.col("drug_type").str.strip_chars().str.to_uppercase() == "BASE").fill_null(False)
    other = pl.col("drug_code").str.replace("^DRUG/", f"{DILUENT}/")
    return rows.with_columns(_base=base, drug_code=pl.when(base).then(other).otherwise("drug_code"))


def demographics(patients: pl.DataFrame, visits: pl.DataFrame, age: pl.Expr) -> CountedRows:
    """Events "GENDER/F" (static) and "AGE" (whole years, at each admission).

    `age` in years from the columns of `patients` and the visit's start. Both databases hide ages above 89 (MIMIC-III
    by a birth 300 years before the first admission, MIMIC-IV as an anchor age of 91): all of them are 90 here.
    """
    gender = pl.col("gender").str.strip_chars().str.to_uppercase()
    never = pl.lit(None, TIME)
    static = patients.with_columns(visit_id=pl.lit(None, I64)).filter(gender != "")
    genders = static.select(event(never, pl.concat_str(pl.lit("GENDER/"), gender), never, visit="visit_id"))
    aged = visits.join(patients, on="subject_id", how="left", maintain_order="left").with_columns(age=age.floor())
    years = pl.when(pl.col("age") > 89).then(90).otherwise(pl.col("age"))
    valid_rows = aged.filter(pl.col("age") >= 0)
    start = pl.col("start")
    ages = valid_rows.select(event(start, pl.lit("AGE"), start, years, visit="visit_id"))
    counts = {
        "repaired.patients.no_gender": patients.height - genders.height,
        "repaired.admissions.no_age": visits.height - ages.height,
        "repaired.admissions.age_over_89": valid_rows.select((pl.col("age") > 89).sum()).item(),
    }
    return pl.concat([genders, ages]), {rule: n for rule, n in counts.items() if n}


def whole_years(born: pl.Expr, now: pl.Expr) -> pl.Expr:
    """Whole years between two dates."""
    day, birthday = (time.dt.month().cast(I64) * 100 + time.dt.day() for time in (now, born))
    return (now.dt.year() - born.dt.year() - (day < birthday).cast(I64)).cast(F64)


COMMON_NAMES = pl.DataFrame(
    [
        ("AGE", "age at admission in years, 90 for all above 89"),
        ("MEDS_BIRTH", "birth"),
        ("MEDS_DEATH", "death"),
        ("GENDER/F", "female"),
        ("GENDER/M", "male"),
        ("ICU_DISCHARGE", "end of the ICU stay"),
    ],
    {"code": pl.String, "description": pl.String},
    orient="row",
)
