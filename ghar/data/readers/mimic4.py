"""MIMIC-IV (2.2, 3.1 and the open demo) and everything in its file layout, read into a `Cohort`.

One pass per table. A row is kept, or dropped by a rule that is named and counted in `Cohort.counts`:
"rows.T" = kept + sum of "dropped.T.*"; "repaired.T.*" counts kept rows that a rule changed. The rules:

admissions     a discharge that is missing or earlier than the admission is unknown (`end` null: such a visit is shown
               as history, counts as a readmission, and is never predicted); a death recorded as a date, or before the
               admission, is not earlier than the admission (trap 6, docs/traps.md).
ICD codes      diagnoses stand by seq_num, procedures by chartdate; (version, code) is the key, in upper
               case without blanks and dots ("code_with_dot_or_in_lower_case"); an ICD-9 code of digits that is not in
               the dictionary, but is with one or two zeros before it, lost them and gets them back
               ("leading_zeros_lost"); known from the discharge on (trap 2). Rows that repeat another in every column
               read are dropped; those of other tables stay, for two doses of a drug or two tubes of blood may look the
               same.
prescriptions  the drug's name in lower case; a missing start is the admission time, known at discharge; a start before
               the admission or after the discharge stays as it is (trap 3). A row of drug_type BASE is a bag or a
               solution: "DILUENT/<name>", which is no medication of a visit ("diluent"). Drugs of one start stand in
               the order in which they were ordered (poe_seq), then by name.
labevents      known when stored, not when drawn (trap 4); rows without an admission keep `visit_id` null. Values are in
               one unit an item (units.py); where value is blank the result is in the comments.
chartevents    the 17 variables of vitals.py, known when stored, not when charted.
icustays       an event at the start which does not carry the end, and one at the end (trap 5).
patients       "GENDER/F" (static) and "AGE" at each admission: anchor_age and the years since anchor_year; 90 above 89.
               A dod after the last discharge is an event "MEDS_DEATH" (deaths.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.readers.columns import open_declared
from ghar.data.readers.deaths import deaths_after_discharge
from ghar.data.readers.events import (
    CountedRows,
    LazyRows,
    code_table,
    dictionary,
    event,
    in_order,
    rank,
    read_tables,
    source_folder,
    stacked,
    through_cache,
)
from ghar.data.readers.mimic import (
    COMMON_NAMES,
    demographics,
    icd_code,
    icd_repairs,
    join_visits,
    lab_titles,
    once,
    read_icu,
    read_labs,
    read_patients,
    read_visits,
    with_lost_zeros,
    with_order_code,
)
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.mimic4_more import MORE, more_tables
from ghar.data.readers.open_demos import is_open_demo
from ghar.data.readers.tables import find_table, sift, sift_large
from ghar.data.readers.vessels import count_vessels, with_vessels
from ghar.data.readers.vitals import MIMIC_LABS, mimic_charts, vital_names, vitals_of_labs
from ghar.progress import progress
from ghar.provenance import signed_mark
from ghar.seal import SEAL

VERSION = "mimic4-12"  # part of the cache key: raise it when a rule changes
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
    "icu/chartevents",
)
OPTIONAL = ("icu/icustays", "hosp/labevents", "icu/chartevents")  # most tasks do with hosp/ alone
OWN_NAMES = (
    "^(DRUG|DILUENT|ICU_ADMISSION|GIVEN|HOME_DRUG|INPUT|OUTPUT|TRANSFER|SERVICE|NOTE|OMR|MICROBIOLOGY|ED|ED_[A-Z]+)/"
)
AGE = pl.col("anchor_age") + pl.col("start").dt.year() - pl.col("anchor_year")
VOCABULARY = {
    "diagnoses_icd": {9: "ICD9CM", 10: "ICD10CM"},
    "procedures_icd": {9: "ICD9PROC", 10: "ICD10PCS"},
}


def read_mimic4(root: Path, cache: Path | None = None, *, charts: bool = True, more: Sequence[str] = ()) -> Cohort:
    """Read the folder `root` (hosp/*, icu/* as csv.gz, csv or parquet), or its copy under `cache`.

    `charts=False` leaves icu/chartevents out, the largest table by far, which the tasks on visits do not need;
    `more` reads further tables for systems that read events (mimic4_more.py). The cache is keyed by name, size,
    change and status times of the files. `generated` holds for what this machine's GHAR has generated and signed;
    `credentialed` is False for that and for the open demo, known by its content.
    Raises BadInput for an absent table or column, a file that is cut short, and a cell that is not of its type. Only
    labevents (with d_labitems), icustays and chartevents may be absent, which is counted ("absent.labevents"), and of
    `more` the parts of the emergency department but its stays.
    """
    root = source_folder(root, "hosp/ and icu/")
    name = f"MIMIC-IV tables in {root}"
    files = [root / SEAL, *(find_table(root, table) for table in tables_read(charts, more))]
    version = f"{VERSION}-{charts}" + "".join(f"-{part}" for part in sorted(more))
    return through_cache(
        lambda work: _read(root, name, charts, sorted(more), work), name, cache, "mimic4", files, version
    )


def _read(root: Path, name: str, charts: bool, more: Sequence[str], work: Path) -> Cohort:
    with progress(9 + charts + len(more), "Read MIMIC-IV", "steps") as advance:
        patients, counts = read_patients(root, MIMIC4, "hosp/patients")
        advance()
        visits, part_counts = read_visits(root, MIMIC4, "hosp/admissions", patients)
        counts |= part_counts
        advance()
        titles = [read_titles(root, name) for name in ("diagnoses_icd", "procedures_icd")]
        further = more_tables(root, visits, patients, work)
        readers = event_tables(root, visits, patients, titles, work, charts=charts)
        parts, part_counts = read_tables(root, readers | {part: further[part] for part in more}, OPTIONAL, advance)
        counts |= part_counts
        events, part_counts = deaths_after_discharge(patients, visits)
        parts.append(events)
        counts |= part_counts
        if charts:
            events, part_counts = vitals_of_labs(stacked(parts), MIMIC_LABS)
            parts.append(events)
            counts |= part_counts
        events = in_order(parts, work, with_vessels)
        counts |= count_vessels(events)
        codes, part_counts = _codes(root, events, titles)
        advance()
    generated = signed_mark(root).generated
    credentialed = not (generated or is_open_demo("mimic4", root, tables_read(charts, more)))
    return Cohort(name, events, codes, visits, generated, credentialed, counts | part_counts)


def tables_read(charts: bool, more: Sequence[str] = ()) -> list[str]:
    """Names of the tables that are looked for."""
    further = [table for part in more for table in MORE[part]]
    return [*(table for table in TABLES if charts or table != "icu/chartevents"), *further]


def event_tables(
    root: Path,
    visits: pl.DataFrame,
    patients: pl.DataFrame,
    titles: Sequence[pl.DataFrame],
    work: Path,
    *,
    charts: bool,
) -> dict[str, Callable[[], LazyRows | CountedRows]]:
    """How the events of each table are read, in the order in which those of one time stand: diagnoses by seq_num,
    procedures, drugs, ICU stays, age, labs, charts. titles: names of the codes of diagnoses and of procedures."""
    readers: dict[str, Callable[[], LazyRows | CountedRows]] = {
        "hosp/diagnoses_icd": partial(_icd, root, visits, "diagnoses_icd", titles[0]),
        "hosp/procedures_icd": partial(_icd, root, visits, "procedures_icd", titles[1]),
        "hosp/prescriptions": partial(_prescriptions, root, visits, work),
        "icu/icustays": partial(read_icu, root, MIMIC4, "icu/icustays", visits),
        "hosp/patients": partial(demographics, patients, visits, AGE),
        "hosp/labevents": partial(read_labs, root, MIMIC4, "hosp/labevents", visits, patients, work),
    }
    if charts:
        readers["icu/chartevents"] = partial(mimic_charts, root, MIMIC4, "icu/chartevents", visits, patients, work)
    return readers


def _icd(root: Path, visits: pl.DataFrame, name: str, titles: pl.DataFrame) -> CountedRows:
    """diagnoses_icd (in the order of seq_num) or procedures_icd (of chartdate). titles: of its codes."""
    table = open_declared(root, MIMIC4, f"hosp/{name}")
    dated = "chartdate" in table.columns
    version, code = pl.col("icd_version"), icd_code("icd_code")
    recorded = pl.coalesce("end", "start")
    drops = {
        "unknown_admission": pl.col("start").is_null(),
        "blank_code": code.is_null() | (code == ""),
        "unknown_version": ~version.is_in([9, 10]) | version.is_null(),
    }
    repairs = icd_repairs("icd_code") | ({"no_chartdate": pl.col("chartdate").is_null()} if dated else {})
    prefix = version.replace_strict(VOCABULARY[name], default=None, return_dtype=pl.String)
    time = pl.coalesce("chartdate", recorded) if dated else recorded
    result = event(time, pl.concat_str(prefix, pl.lit("/"), pl.coalesce("whole", code)), recorded)
    order = "chartdate" if dated else "seq_num"
    nine = pl.when(version == 9).then(code)
    rows = with_lost_zeros(join_visits(table, visits), nine, titles.filter(pl.col("code").str.starts_with("ICD9")))
    kept, counts = sift(table, rows, drops, repairs, [*result, pl.col("seq_num"), pl.col(order).alias("order")])
    kept, repeats = once(kept, name)
    return kept.sort("order", maintain_order=True, nulls_last=True).drop("order", "seq_num"), counts | repeats


def _prescriptions(root: Path, visits: pl.DataFrame, work: Path) -> LazyRows:
    """Read each ordered drug, by the chart's word for it (column drug)."""
    table = open_declared(root, MIMIC4, "hosp/prescriptions")
    rows, code = with_order_code(join_visits(table, visits)), pl.col("drug_code")
    drops = {"unknown_admission": pl.col("start").is_null(), "blank_drug": code.is_null()}
    repairs = {"no_starttime": pl.col("starttime").is_null(), "diluent": pl.col("_base")}
    time = pl.coalesce("starttime", "start")
    recorded = pl.coalesce("starttime", "end", "start")  # a drug whose start is not known must not be shown early
    number = [rank("poe_seq")] if "poe_seq" in table.columns else []
    return sift_large(table, rows, drops, repairs, [*event(time, code, recorded), *number], work)


def read_titles(root: Path, name: str) -> pl.DataFrame:
    """Names of the codes of diagnoses_icd or procedures_icd."""
    table = open_declared(root, MIMIC4, f"hosp/d_icd_{name.removesuffix('_icd')}")
    prefix = pl.col("icd_version").replace_strict(VOCABULARY[name], default=None, return_dtype=pl.String)
    return dictionary(table, pl.concat_str(prefix, pl.lit("/"), icd_code("icd_code")), "long_title")


def _codes(root: Path, events: pl.LazyFrame, titles: Sequence[pl.DataFrame]) -> CountedRows:
    """Codes that occur, sorted, with the names of the dictionaries; without one, a code is its own name."""
    parts = [vital_names(), COMMON_NAMES, *titles]
    if find_table(root, "hosp/labevents") is not None:
        parts.append(lab_titles(root, MIMIC4, "hosp/d_labitems"))
    return code_table(events, parts, OWN_NAMES)
