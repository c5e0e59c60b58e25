"""MIMIC-IV (2.2, 3.1 and the open demo) and everything in its file layout, read into a `Cohort`.

One pass per table. A row is kept, or dropped by a rule that is named and counted in `Cohort.counts`:
"rows.T" = kept + sum of "dropped.T.*"; "repaired.T.*" counts kept rows that a rule changed. The rules:

admissions     a discharge that is missing or earlier than the admission is unknown (`end` null: such a visit is shown
               as history, counts as a readmission, and is never predicted); a death recorded as a date, or before the
               admission, is not earlier than the admission (trap 6, EHR.md).
ICD codes      (version, code) is the key, blanks stripped; known from the discharge on (trap 2).
prescriptions  the drug's name in lower case; a missing start is the admission time, known at discharge; a start before
               the admission or after the discharge stays as it is (trap 3).
labevents      known when stored, not when drawn (trap 4); rows without an admission keep `visit_id` null.
icustays       an event at the start which does not carry the end (trap 5).
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from ghar.data.cache import load_cohort, save_cohort
from ghar.data.cohort import Cohort
from ghar.data.tables import Table, find_table, fingerprint, open_table, sift
from ghar.errors import BadInput
from ghar.progress import progress

VERSION = "mimic4-1"  # part of the cache key: raise it when a rule changes
TABLES = (
    "hosp/patients",
    "hosp/admissions",
    "hosp/diagnoses_icd",
    "hosp/procedures_icd",
    "hosp/prescriptions",
    "hosp/labevents",
    "hosp/d_icd_diagnoses",
    "hosp/d_icd_procedures",
    "hosp/d_labitems",
    "icu/icustays",
)
I64, F64, TEXT, TIME = pl.Int64(), pl.Float64(), pl.String(), pl.Datetime("us")
KEYS = {"subject_id": I64, "hadm_id": I64}
VOCABULARY = {
    "diagnoses_icd": {9: "ICD9CM", 10: "ICD10CM"},
    "procedures_icd": {9: "ICD9PROC", 10: "ICD10PCS"},
}
Found = tuple[pl.DataFrame, dict[str, int]]


def read_mimic4(root: Path, cache: Path | None = None) -> Cohort:
    """Read the folder `root` (hosp/*, icu/icustays as csv.gz, csv or parquet), or its copy under `cache`.

    The cache is keyed by name, size and modification time of the source files. `generated` is what root/manifest.json
    says; `credentialed` is False for generated patients and for the open demo (all patients in demo_subject_id.csv).
    Raises BadInput for an absent table or column, a file that is cut short, and a cell that is not of its type. Only
    labevents and d_labitems may be absent, which is counted as "absent.labevents".
    """
    root = Path(root)
    name = f"MIMIC-IV tables in {root}"
    if not root.is_dir():
        raise BadInput(f"There is no folder {root}: point data.root to the folder that contains hosp/ and icu/.")
    if cache is None:
        return _read(root, name)
    marks = [root / "manifest.json", root / "demo_subject_id.csv"]
    files = [path for path in (*(find_table(root, table) for table in TABLES), *marks) if path and path.exists()]
    folder = Path(cache) / f"mimic4-{fingerprint(files, VERSION)}"
    if not folder.exists():
        save_cohort(_read(root, name), folder)
    return load_cohort(folder, name)


def _read(root: Path, name: str) -> Cohort:
    with progress(len(TABLES) - 2, "Read MIMIC-IV") as advance:
        patients, counts = _patients(root)
        advance()
        visits, more = _visits(root, patients)
        counts |= more
        advance()
        parts = []
        for read in (_icd("diagnoses_icd", "seq_num"), _icd("procedures_icd", "chartdate"), _prescriptions, _icu):
            events, more = read(root, visits)
            parts.append(events)
            counts |= more
            advance()
        if find_table(root, "hosp/labevents") is None:
            counts["absent.labevents"] = 1
        else:
            events, more = _labs(root, visits, patients)
            parts.append(events)
            counts |= more
        advance()
        # Stable: at one time diagnoses come first, in seq_num order, then procedures, drugs, ICU stays, labs.
        # Two stable sorts of one key take half the time of one sort by two keys.
        events = pl.concat(parts).sort("time", maintain_order=True).sort("subject_id", maintain_order=True)
        codes, more = _codes(root, events)
        advance()
    generated = _generated(root)
    credentialed = not (generated or _open_demo(root, patients))
    return Cohort(name, events, codes, visits, generated, credentialed, counts | more)


def _patients(root: Path) -> Found:
    table = open_table(root, "hosp/patients", {"subject_id": I64, "dod": TIME})
    drops = {"no_id": pl.col("subject_id").is_null(), "repeated": ~pl.col("subject_id").is_first_distinct()}
    frame, counts = sift(table, table.rows, drops, {}, [pl.col("subject_id"), pl.col("dod")])
    if frame.is_empty():
        raise BadInput(f"{table.path} lists no patient: copy the table again.")
    return frame, counts


def _visits(root: Path, patients: pl.DataFrame) -> Found:
    columns = {**KEYS, "admittime": TIME, "dischtime": TIME, "deathtime": TIME, "hospital_expire_flag": I64}
    table = open_table(root, "hosp/admissions", columns)
    known = patients.lazy().with_columns(known=True)
    start, end, died_at, flag = (pl.col(c) for c in ("admittime", "dischtime", "deathtime", "hospital_expire_flag"))
    died = pl.coalesce(flag == 1, died_at.is_not_null())
    sound_end = pl.when(end >= start).then(end)
    # A date of death stands for the whole day: its last second, but not after the discharge.
    dod = pl.min_horizontal(pl.col("dod") + pl.duration(hours=23, minutes=59, seconds=59), sound_end)
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
    rows = table.rows.join(known, on="subject_id", how="left", maintain_order="left")
    visits, counts = sift(table, rows, drops, repairs, result)
    if visits.is_empty():
        raise BadInput(f"{table.path} has no admission of a patient in hosp/patients: copy both tables again.")
    return visits.sort("subject_id", "start", "visit_id"), counts


def _icd(name: str, order: str):
    """Reader of diagnoses_icd (in seq_num order) or procedures_icd (in chartdate order)."""

    def read(root: Path, visits: pl.DataFrame) -> Found:
        dated = order == "chartdate"
        columns = {**KEYS, order: TIME if dated else I64, "icd_code": TEXT, "icd_version": I64}
        table = open_table(root, f"hosp/{name}", columns)
        version, code = pl.col("icd_version"), pl.col("icd_code").str.strip_chars()
        known = pl.coalesce("end", "start")
        drops = {
            "unknown_admission": pl.col("start").is_null(),
            "blank_code": code.is_null() | (code == ""),
            "unknown_version": ~version.is_in([9, 10]) | version.is_null(),
        }
        repairs = {"no_chartdate": pl.col("chartdate").is_null()} if dated else {}
        prefix = version.replace_strict(VOCABULARY[name], default=None, return_dtype=pl.String)
        time = pl.coalesce("chartdate", known) if dated else known
        result = _event(time, pl.concat_str(prefix, pl.lit("/"), code), known)
        kept, counts = sift(table, _join(table, visits), drops, repairs, [*result, pl.col(order).alias("order")])
        return kept.sort("order", maintain_order=True, nulls_last=True).drop("order"), counts

    return read


def _prescriptions(root: Path, visits: pl.DataFrame) -> Found:
    table = open_table(root, "hosp/prescriptions", {**KEYS, "starttime": TIME, "drug": TEXT})
    drug = pl.col("drug").str.strip_chars().str.to_lowercase()
    drops = {"unknown_admission": pl.col("start").is_null(), "blank_drug": drug.is_null() | (drug == "")}
    repairs = {"no_starttime": pl.col("starttime").is_null()}
    time = pl.coalesce("starttime", "start")
    known = pl.coalesce("starttime", "end", "start")  # a drug whose start is not known must not be shown early
    result = _event(time, pl.concat_str(pl.lit("DRUG/"), drug), known)
    return sift(table, _join(table, visits), drops, repairs, result)


def _icu(root: Path, visits: pl.DataFrame) -> Found:
    table = open_table(root, "icu/icustays", {**KEYS, "first_careunit": TEXT, "intime": TIME})
    unit = pl.col("first_careunit").str.strip_chars()
    drops = {"unknown_admission": pl.col("start").is_null(), "no_intime": pl.col("intime").is_null()}
    code = pl.concat_str(pl.lit("ICU_ADMISSION/"), unit.fill_null("UNKNOWN"))
    repairs = {"no_careunit": unit.is_null()}
    return sift(table, _join(table, visits), drops, repairs, _event(pl.col("intime"), code, pl.col("intime")))


def _labs(root: Path, visits: pl.DataFrame, patients: pl.DataFrame) -> Found:
    columns = {**KEYS, "itemid": I64, "charttime": TIME, "storetime": TIME, "value": TEXT, "valuenum": F64}
    table = open_table(root, "hosp/labevents", columns)
    drawn, stored, value, number = (pl.col(c) for c in ("charttime", "storetime", "value", "valuenum"))
    drops = {
        "unknown_patient": pl.col("known").is_null(),
        "unknown_admission": pl.col("hadm_id").is_not_null() & pl.col("start").is_null(),
        "no_item": pl.col("itemid").is_null(),
        "no_time": drawn.is_null() & stored.is_null(),
    }
    repairs = {
        "no_charttime": drawn.is_null(),
        "no_storetime": stored.is_null(),
        "stored_before_drawn": stored < drawn,
    }
    code = pl.concat_str(pl.lit("LAB/"), pl.col("itemid").cast(pl.String))
    # Most texts repeat the number; only the others are worth their memory.
    text = pl.when((value.cast(pl.Float64, strict=False) != number).fill_null(True)).then(value)
    result = _event(pl.coalesce(drawn, stored), code, pl.max_horizontal(stored, drawn), number.cast(pl.Float32), text)
    known = patients.lazy().select("subject_id", known=True)
    rows = _join(table, visits).join(known, on="subject_id", how="left", maintain_order="left")
    return sift(table, rows, drops, repairs, result)


def _join(table: Table, visits: pl.DataFrame) -> pl.LazyFrame:
    """Rows with `start` and `end` of their visit, null where patient and admission do not belong together."""
    spans = visits.lazy().select("subject_id", pl.col("visit_id").alias("hadm_id"), "start", "end")
    return table.rows.join(spans, on=["subject_id", "hadm_id"], how="left", maintain_order="left")


def _event(
    time: pl.Expr, code: pl.Expr, recorded: pl.Expr, number: pl.Expr | None = None, text: pl.Expr | None = None
) -> list[pl.Expr]:
    """Columns of `Cohort.events`."""
    return [
        pl.col("subject_id"),
        time.alias("time"),
        code.alias("code"),
        (pl.lit(None, pl.Float32) if number is None else number).alias("numeric_value"),
        (pl.lit(None, pl.String) if text is None else text).alias("text_value"),
        pl.col("hadm_id").alias("visit_id"),
        recorded.alias("recorded"),
    ]


def _codes(root: Path, events: pl.DataFrame) -> Found:
    """Codes that occur, sorted, with the names of the dictionaries; without one, a code is its own name."""
    parts = []
    for name, vocabulary in (("d_icd_diagnoses", "diagnoses_icd"), ("d_icd_procedures", "procedures_icd")):
        table = open_table(root, f"hosp/{name}", {"icd_code": TEXT, "icd_version": I64, "long_title": TEXT})
        prefix = pl.col("icd_version").replace_strict(VOCABULARY[vocabulary], default=None, return_dtype=pl.String)
        code = pl.concat_str(prefix, pl.lit("/"), pl.col("icd_code").str.strip_chars())
        parts.append(_names(table, code, "long_title"))
    if find_table(root, "hosp/labevents") is not None:
        table = open_table(root, "hosp/d_labitems", {"itemid": I64, "label": TEXT})
        parts.append(_names(table, pl.concat_str(pl.lit("LAB/"), pl.col("itemid").cast(pl.String)), "label"))
    names = pl.concat(parts).unique("code", keep="first", maintain_order=True)
    codes = events.select(pl.col("code").unique().sort()).join(names, on="code", how="left", maintain_order="left")
    own = pl.col("code").str.replace("^[^/]*/", "")
    plain = pl.col("code").str.contains("^(DRUG|ICU_ADMISSION)/")
    nameless = codes.select((pl.col("description").is_null() & ~plain).sum()).item()
    empty = pl.lit([], dtype=pl.List(pl.String))
    return codes.with_columns(pl.col("description").fill_null(own), parents=empty), {"codes_without_name": nameless}


def _names(table: Table, code: pl.Expr, title: str) -> pl.DataFrame:
    name = pl.col(title).str.strip_chars()
    drops = {"no_code": code.is_null(), "no_name": name.is_null() | (name == "")}
    return sift(table, table.rows, drops, {}, [code.alias("code"), name.alias("description")])[0]


def _generated(root: Path) -> bool:
    path = root / "manifest.json"
    if not path.exists():
        return False
    try:
        return json.loads(path.read_text())["generated"] is True
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f'{path} does not say "generated": true or false ({error}): correct or delete it.') from error


def _open_demo(root: Path, patients: pl.DataFrame) -> bool:
    """Whether every patient is in the list that comes with the open demo; the list alone could lie in any folder."""
    path = root / "demo_subject_id.csv"
    if not path.exists():
        return False
    listed = pl.scan_csv(path, schema={"subject_id": pl.Int64}).collect()["subject_id"]
    return bool(patients["subject_id"].is_in(listed.implode()).all())
