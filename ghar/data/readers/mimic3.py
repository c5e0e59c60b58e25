"""MIMIC-III 1.4 (full and open demo), read into a `Cohort`.

One pass per table. A row is kept, or dropped by a rule that is named and counted in `Cohort.counts`, as in mimic4.py,
whose rules for admissions, ICU stays and drugs' names hold here too. What is different in MIMIC-III:

codes          all diagnoses and procedures are ICD-9, known from the discharge on (trap 2). A code that the dictionary
               lacks is named by those that it was divided into, a dropped procedure by the residual code beside it,
               and three that were narrowed in 2008 as before (code_families.py).
prescriptions  have dates only: the time is the day's midnight, as in the source, and a drug counts as known at the last
               second of that day (trap 3), at discharge where there is no date.
labevents      say when a sample was drawn and not when its result was stored: `recorded` is the former, so a cut by
               recording time is up to some hours too generous (trap 4: median 1.1 h in MIMIC-IV).
chartevents    the 17 variables of vitals.py, known when stored; rows marked as an error by the staff are dropped.
ages           of patients above 89 are 90; the source moved their birth 300 years back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.readers.code_families import earlier_titles, family_names, residual_names
from ghar.data.readers.columns import open_declared
from ghar.data.readers.deaths import deaths_after_discharge
from ghar.data.readers.events import (
    CountedRows,
    LazyRows,
    code_table,
    dictionary,
    event,
    in_order,
    read_tables,
    source_folder,
    stacked,
    through_cache,
)
from ghar.data.readers.infusions import read_mimic3_inputs
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
    whole_years,
    with_lost_zeros,
    with_order_code,
)
from ghar.data.readers.mimic3_columns import MIMIC3
from ghar.data.readers.mimic_care import read_outputs, read_services, read_transfers
from ghar.data.readers.note_events import read_noteevents
from ghar.data.readers.open_demos import is_open_demo
from ghar.data.readers.tables import find_table, sift, sift_large
from ghar.data.readers.vessels import count_vessels, with_vessels
from ghar.data.readers.vitals import MIMIC_LABS, mimic_charts, vital_names, vitals_of_labs
from ghar.progress import progress

DIAGNOSIS, PROCEDURE = 3, 2  # characters of the shortest code
VERSION = "mimic3-12"  # part of the cache key: raise it when a rule changes
TABLES = (
    "patients",
    "admissions",
    "diagnoses_icd",
    "procedures_icd",
    "prescriptions",
    "icustays",
    "labevents",
    "chartevents",
    "d_icd_diagnoses",
    "d_icd_procedures",
    "d_labitems",
)
OPTIONAL = ("labevents", "chartevents")
MORE: Mapping[str, tuple[str, ...]] = {
    "inputs": ("inputevents_cv", "inputevents_mv", "d_items"),
    "outputs": ("outputevents", "d_items"),
    "transfers": ("transfers",),
    "services": ("services",),
    "notes": ("noteevents",),
}
OWN_NAMES = "^(DRUG|DILUENT|ICU_ADMISSION|INPUT|OUTPUT|TRANSFER|SERVICE|NOTE)/"


def read_mimic3(root: Path, cache: Path | None = None, *, charts: bool = True, more: Sequence[str] = ()) -> Cohort:
    """Read the folder `root` (tables as csv.gz, csv or parquet, in any letter case), or its copy under `cache`.

    `charts=False` leaves chartevents out, the largest table by far, which the tasks on visits do not need;
    `more` (of MORE) reads further tables for systems that read events. The cache is keyed by name, size,
    times of change and of status of the source files. `credentialed` is False only for the open
    demo, known by its ids and its tables' content. Raises BadInput for an absent table or column, a
    file that is cut short, and a cell that is not of its type; labevents and chartevents may be absent, which is
    counted ("absent.labevents").
    """
    root = source_folder(root, "ADMISSIONS.csv.gz")
    name = f"MIMIC-III tables in {root}"
    files = [find_table(root, table) for table in tables_read(charts, more)]
    version = f"{VERSION}-{charts}" + "".join(f"-{part}" for part in sorted(more))
    return through_cache(lambda work: _read(root, name, charts, more, work), name, cache, "mimic3", files, version)


def _read(root: Path, name: str, charts: bool, more: Sequence[str], work: Path) -> Cohort:
    with progress(7 + charts + len(more), "Read MIMIC-III", "steps") as advance:
        patients, counts = read_patients(root, MIMIC3, "patients")
        visits, part_counts = read_visits(root, MIMIC3, "admissions", patients)
        counts |= part_counts
        advance()
        names = read_titles(root)
        if find_table(root, "labevents") is not None:
            names.append(lab_titles(root, MIMIC3, "d_labitems"))
        readers = event_tables(root, visits, patients, names, work, charts=charts)
        others = _more_tables(root, visits, patients, work)
        parts, part_counts = read_tables(root, readers | {part: others[part] for part in more}, OPTIONAL, advance)
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
        further = _names_of_other_years(events, names[0], names[1])
        codes, part_counts = code_table(events, [*names, vital_names(), COMMON_NAMES, *further], OWN_NAMES)
    credentialed = not is_open_demo("mimic3", root, tables_read(charts, more))
    return Cohort(name, events, codes, visits, credentialed=credentialed, counts=counts | part_counts)


def _names_of_other_years(
    events: pl.LazyFrame, diagnoses: pl.DataFrame, procedures: pl.DataFrame
) -> list[pl.DataFrame]:
    """Names of codes that the dictionaries lack: of divided ones by what they became, of dropped procedures by
    the residual code beside them."""
    performed = pl.col("code").str.starts_with("ICD9PROC/")
    codes = events.select("code").filter(performed).unique().collect(engine="streaming")["code"].sort()
    families = [family_names(diagnoses, DIAGNOSIS), family_names(procedures, PROCEDURE)]
    return [*families, residual_names(codes.to_list(), procedures, PROCEDURE)]


def event_tables(
    root: Path,
    visits: pl.DataFrame,
    patients: pl.DataFrame,
    titles: Sequence[pl.DataFrame],
    work: Path,
    *,
    charts: bool,
) -> dict[str, Callable[[], LazyRows | CountedRows]]:
    """How the events of each table are read, in the order in which those of one time stand. titles: names of the codes
    of diagnoses and of procedures."""
    birthday = whole_years(pl.col("dob"), pl.col("start"))
    readers: dict[str, Callable[[], LazyRows | CountedRows]] = {
        "diagnoses_icd": partial(_icd, root, visits, "diagnoses_icd", "ICD9CM", titles[0]),
        "procedures_icd": partial(_icd, root, visits, "procedures_icd", "ICD9PROC", titles[1]),
        "prescriptions": partial(_prescriptions, root, visits, work),
        "icustays": partial(read_icu, root, MIMIC3, "icustays", visits),
        "patients": partial(demographics, patients, visits, birthday),
        "labevents": partial(read_labs, root, MIMIC3, "labevents", visits, patients, work),
    }
    if charts:
        readers["chartevents"] = partial(mimic_charts, root, MIMIC3, "chartevents", visits, patients, work)
    return readers


def _more_tables(
    root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path
) -> dict[str, Callable[[], LazyRows]]:
    """How each of MORE is read; BadInput of the first table where it is absent."""
    people = (visits, patients, work)
    return {
        "inputs": partial(read_mimic3_inputs, root, *people),
        "outputs": partial(read_outputs, root, MIMIC3, "outputevents", "d_items", *people),
        "transfers": partial(read_transfers, root, MIMIC3, "transfers", *people),
        "services": partial(read_services, root, MIMIC3, "services", *people),
        "notes": partial(read_noteevents, root, *people),
    }


def tables_read(charts: bool, more: Sequence[str] = ()) -> list[str]:
    """Names of the tables that are looked for."""
    further = [table for part in more for table in MORE[part]]
    return [*(table for table in TABLES if charts or table != "chartevents"), *further]


def read_titles(root: Path) -> list[pl.DataFrame]:
    """Names of the codes of diagnoses and of procedures."""
    return [earlier_titles(_titles(root, "diagnoses_icd", "ICD9CM")), _titles(root, "procedures_icd", "ICD9PROC")]


def _titles(root: Path, name: str, vocabulary: str) -> pl.DataFrame:
    table = open_declared(root, MIMIC3, f"d_icd_{name.removesuffix('_icd')}")
    code = pl.concat_str(pl.lit(f"{vocabulary}/"), icd_code("icd9_code"))
    return dictionary(table, code, "long_title")


def _icd(root: Path, visits: pl.DataFrame, name: str, vocabulary: str, titles: pl.DataFrame) -> CountedRows:
    """Codes of a visit in the order of seq_num."""
    table = open_declared(root, MIMIC3, name)
    written, recorded = icd_code("icd9_code"), pl.coalesce("end", "start")
    drops = {
        "unknown_admission": pl.col("start").is_null(),
        "blank_code": written.is_null() | (written == ""),
    }
    code = pl.concat_str(pl.lit(f"{vocabulary}/"), pl.coalesce("whole", written))
    rows = with_lost_zeros(join_visits(table, visits), written, titles)
    result = [*event(recorded, code, recorded), pl.col("seq_num")]
    kept, counts = sift(table, rows, drops, icd_repairs("icd9_code"), result)
    kept, repeats = once(kept, name)
    return kept.sort("seq_num", maintain_order=True, nulls_last=True).drop("seq_num"), counts | repeats


def _prescriptions(root: Path, visits: pl.DataFrame, work: Path) -> LazyRows:
    table = open_declared(root, MIMIC3, "prescriptions")
    rows, code, day = with_order_code(join_visits(table, visits)), pl.col("drug_code"), pl.col("startdate")
    drops = {"unknown_admission": pl.col("start").is_null(), "blank_drug": code.is_null()}
    repairs = {"no_startdate": day.is_null(), "diluent": pl.col("_base")}
    last_second = day.dt.truncate("1d") + pl.duration(hours=23, minutes=59, seconds=59)
    recorded = pl.coalesce(last_second, "end", "start")  # a drug whose start is not known must not be shown early
    result = event(pl.coalesce(day, "start"), code, recorded)
    return sift_large(table, rows, drops, repairs, result, work)
