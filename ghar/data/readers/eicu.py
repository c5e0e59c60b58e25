"""eICU 2.0 (full and open demo), read into a `Cohort`: a visit is an ICU stay, a group (cohort.py) a hospital stay.

Offsets of more than two years either way are data-entry errors: such a cell is blank ("offset_out_of_range"), and a row
without another time is dropped under the same name.

Time. eICU has no dates, only minutes from the admission to the unit, the hour of the hospital admission and the year
of the hospital discharge. Each hospital admission is put on 1 January of that year (2014 where it is not known), at its
hour; everything of that hospital stay follows by its minutes. So times inside a hospital stay are true, up to the
date, and times of different hospital stays of one patient must not be compared: in one year they have no order, and
here they all begin on the same day (trap 7). The order of ICU stays is by time, then by unitvisitnumber.

One pass per table. A row is kept, or dropped by a rule that is named and counted in `Cohort.counts`, as in mimic4.py:

patient      `died` is death in this unit (unitdischargestatus): the hospital's status is shared by all ICU stays of a
             hospital stay. A blank one is a death only if the hospital stay ended with this ICU stay, by death. A unit
             that says Expired is believed where the hospital says Alive ("expired_but_hospital_says_alive").
             A missing or negative unitdischargeoffset leaves `end` unknown.
diagnosis    a row may hold several codes ("584.9, N17.9"), told apart by their shape: digits, V or E with three digits
             are ICD-9 (a V code of ICD-10 would be a traffic accident), other letters ICD-10. Each becomes an event
             without dot ("added.diagnosis.further_codes"); a row without a code becomes "EICU_DIAGNOSIS/<its path>".
             eICU gives one code to several diagnoses (785.59 to septic and to hypovolemic shock), and a code is named
             by the commonest: where a row's words do not hold that name, the row is "EICU_DIAGNOSIS/<its path>" in
             place of the code ("repaired.diagnosis.code_says_otherwise").
             Rows that repeat another in stay, minute, path and codes are dropped; later mentions of a code are kept.
             Entered during the stay, so known at their own minute, not only at discharge.
treatment    "EICU_TREATMENT/<path>"; in the tasks they are the procedures, since eICU codes none.
medication   orders without a name and cancelled orders are dropped; known when ordered and started.
lab          known when last revised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.readers.columns import open_declared
from ghar.data.readers.eicu_charts import CHARTS, EICU_LABS
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.eicu_stays import (
    at,
    body_measures,
    far_offset,
    read_stays,
    stay_events,
    with_sound_offsets,
    with_stay,
)
from ghar.data.readers.events import (
    LazyRows,
    code_table,
    event,
    finite,
    in_order,
    read_tables,
    source_folder,
    stacked,
    through_cache,
    with_drug_code,
    words,
)
from ghar.data.readers.infusions import read_eicu_infusions
from ghar.data.readers.mimic import COMMON_NAMES
from ghar.data.readers.open_demos import is_open_demo
from ghar.data.readers.tables import find_table, sift, sift_large
from ghar.data.readers.units import converted, with_factor
from ghar.data.readers.vitals import vital_names, vitals_of_labs
from ghar.progress import progress

VERSION = "eicu-4"  # part of the cache key: raise it when a rule changes
TABLES = ("patient", "diagnosis", "treatment", "medication", "lab")
MORE: Mapping[str, tuple[str, ...]] = {"inputs": ("infusiondrug",)}
ICD9 = r"^([0-9]{3}(\.[0-9]{1,2})?|V[0-9]{2}(\.[0-9]{1,2})?|E[0-9]{3}(\.[0-9])?)$"
ICD10 = r"^[A-UW-Z][0-9][0-9A-Z](\.[0-9A-Z]{1,4})?$"
OWN_NAMES = "^(DRUG|ICU_ADMISSION|LAB|INPUT)/"


def read_eicu(root: Path, cache: Path | None = None, *, charts: bool = True, more: Sequence[str] = ()) -> Cohort:
    """Read the folder `root` (tables as csv.gz, csv or parquet, in any letter case), or its copy under `cache`.

    `charts=False` leaves the chart measurements out, which the tasks on visits do not need and which are hundreds of
    millions in the full eICU; `more` (of MORE) reads further tables for systems that read events. The cache is keyed by
    name, size, times of change and of status of the source files.
    `credentialed` is False only for the open demo, known by its ICU stays and its tables' content.
    Raises BadInput for an absent table or column, a file that is cut short, and a cell that is not of its type; lab and
    the chart tables may be absent, which is counted ("absent.lab").
    """
    root = source_folder(root, "patient.csv.gz")
    name = f"eICU tables in {root}"
    files = [find_table(root, table) for table in tables_read(charts, more)]
    version = f"{VERSION}-{charts}" + "".join(f"-{part}" for part in sorted(more))
    return through_cache(lambda work: _read(root, name, charts, more, work), name, cache, "eicu", files, version)


def _read(root: Path, name: str, charts: bool, more: Sequence[str], work: Path) -> Cohort:
    tables = event_tables(charts=charts)
    optional = {*tables} - {*TABLES[:-1]}
    tables |= {"infusiondrug": read_eicu_infusions} if "inputs" in more else {}
    with progress(2 + len(tables), "Read eICU", "steps") as advance:
        stays, counts = read_stays(root)
        advance()
        diagnoses, names, part_counts = read_diagnoses(root, stays)
        counts |= part_counts
        advance()
        readers = {table: partial(read, root, stays, work) for table, read in tables.items()}
        further, part_counts = read_tables(root, readers, optional, advance)
        parts = [diagnoses, *further]
        counts |= part_counts
        events, part_counts = stay_events(stays)
        parts.extend(events)
        counts |= part_counts
        if charts:
            for events, part_counts in (body_measures(stays), vitals_of_labs(stacked(parts), EICU_LABS)):
                parts.append(events)
                counts |= part_counts
        events = in_order(parts, work)
        codes, part_counts = code_table(events, [names, _path_names(events), vital_names(), COMMON_NAMES], OWN_NAMES)
    visits = stays.select("subject_id", "visit_id", "group", "start", "end", "died", "death_time")
    credentialed = not is_open_demo("eicu", root, tables_read(charts, more))
    return Cohort(name, events, codes, visits, credentialed=credentialed, counts=counts | part_counts, stay="ICU")


def event_tables(*, charts: bool) -> dict[str, Callable[[Path, pl.DataFrame, Path], LazyRows]]:
    """How the events of each table are read, of the folder of tables, the ICU stays and a folder for work; diagnoses,
    which also give names, by `read_diagnoses`."""
    always = {"treatment": _treatments, "medication": _medications, "lab": _labs}
    return always | (CHARTS if charts else {})


def tables_read(charts: bool, more: Sequence[str] = ()) -> list[str]:
    """Names of the tables that are looked for."""
    return [*TABLES, *(CHARTS if charts else ()), *(table for part in more for table in MORE[part])]


def read_diagnoses(root: Path, stays: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, int]]:
    """Events, the names of their ICD codes (eICU has no dictionary: the commonest path of each code), and counts."""
    table = open_declared(root, EICU, "diagnosis")
    path = _path("diagnosisstring")
    dotted = pl.element().str.strip_chars().str.to_uppercase()
    vocabulary = pl.when(dotted.str.contains(ICD9)).then(pl.lit("ICD9CM/"))
    vocabulary = vocabulary.when(dotted.str.contains(ICD10)).then(pl.lit("ICD10CM/"))
    code = pl.concat_str(vocabulary, dotted.str.replace_all(".", "", literal=True))
    written = pl.col("icd9code").fill_null("").str.split(",")
    icd = written.list.eval(code).list.drop_nulls().list.unique(maintain_order=True)
    codes = pl.when(icd.list.len() > 0).then(icd)
    codes = codes.when(path.is_not_null()).then(pl.concat_list(pl.concat_str(pl.lit("EICU_DIAGNOSIS/"), path)))
    blank = pl.col("icd9code").fill_null("").str.strip_chars(" ,") == ""
    drops = {
        "unknown_stay": pl.col("subject_id").is_null(),
        **far_offset("diagnosisoffset"),
        "no_time": pl.col("diagnosisoffset").is_null(),
        "blank": codes.is_null(),
        "repeated": ~pl.struct(*table.columns).is_first_distinct(),
    }
    strange = written.list.eval(code.is_null() & (dotted != "")).list.any()
    repairs = {"no_icd_code": blank, "code_of_no_icd_shape": strange}
    time = at(pl.col("diagnosisoffset"))
    result = event(time, codes, time, visit="patientunitstayid")
    rows = with_sound_offsets(with_stay(table.rows, stays), "diagnosisoffset")
    kept, counts = sift(table, rows, drops, repairs, [*result, path.alias("path")])
    each = kept.with_row_index("_row").explode("code")
    often = each.group_by("code", "path").len().sort("code", "len", "path", descending=[False, True, False])
    often = often.filter(pl.col("code").str.starts_with("ICD") & pl.col("path").is_not_null())
    names = often.unique("code", keep="first", maintain_order=True).select("code", description=_name(pl.col("path")))
    events, otherwise = _as_written(each, names)
    if otherwise:
        counts["repaired.diagnosis.code_says_otherwise"] = otherwise
    if events.height > kept.height:
        counts["added.diagnosis.further_codes"] = events.height - kept.height
    return events.drop("path", "_row"), names, counts


def _as_written(each: pl.DataFrame, names: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The codes of rows (`_row`, code, path) that say what their row says, and how many rows have a code that does not:
    its path stands in place of that."""
    rows = each.join(names, on="code", how="left", maintain_order="left")
    more = _words(pl.col("description")).list.set_difference(_words(_name(pl.col("path"))))
    rows = rows.with_columns(_fits=(more.list.len() == 0).fill_null(True)).drop("description")
    own = rows.filter(~pl.col("_fits")).unique("_row", keep="first", maintain_order=True)
    own = own.with_columns(code=pl.concat_str(pl.lit("EICU_DIAGNOSIS/"), "path"))
    events = pl.concat([rows.filter("_fits"), own]).sort("_row", maintain_order=True)
    return events.drop("_fits"), own.height


def _words(text: pl.Expr) -> pl.Expr:
    return text.str.to_lowercase().str.extract_all("[a-z0-9]+")


def _treatments(root: Path, stays: pl.DataFrame, work: Path) -> LazyRows:
    table = open_declared(root, EICU, "treatment")
    path, offset = _path("treatmentstring"), pl.col("treatmentoffset")
    drops = {"unknown_stay": pl.col("subject_id").is_null(), **far_offset("treatmentoffset")}
    drops |= {"no_time": offset.is_null(), "blank": path.is_null()}
    result = event(at(offset), pl.concat_str(pl.lit("EICU_TREATMENT/"), path), at(offset), visit="patientunitstayid")
    rows = with_sound_offsets(with_stay(table.rows, stays), "treatmentoffset")
    return sift_large(table, rows, drops, {}, result, work)


def _medications(root: Path, stays: pl.DataFrame, work: Path) -> LazyRows:
    table = open_declared(root, EICU, "medication")
    ordered, started, code = pl.col("drugorderoffset"), pl.col("drugstartoffset"), pl.col("drug_code")
    drops = {
        "unknown_stay": pl.col("subject_id").is_null(),
        "blank_drug": code.is_null(),
        "cancelled": pl.col("drugordercancelled").str.strip_chars().str.to_lowercase() == "yes",
        **far_offset("drugorderoffset", "drugstartoffset"),
        "no_time": ordered.is_null() & started.is_null(),
    }
    repairs = {"offset_out_of_range": pl.col("_far"), "no_start": started.is_null(), "no_order_time": ordered.is_null()}
    recorded = at(pl.max_horizontal(ordered, started))
    result = event(at(pl.coalesce(started, ordered)), code, recorded, visit="patientunitstayid")
    rows = with_drug_code(with_stay(table.rows, stays), "drugname")
    rows = with_sound_offsets(rows, "drugorderoffset", "drugstartoffset")
    return sift_large(table, rows, drops, repairs, result, work)


def _labs(root: Path, stays: pl.DataFrame, work: Path) -> LazyRows:
    offsets = ("labresultoffset", "labresultrevisedoffset")
    table = open_declared(root, EICU, "lab")
    first, revised, name = *(pl.col(offset) for offset in offsets), pl.col("labname").str.strip_chars()
    unit = pl.col("labmeasurenamesystem") if "labmeasurenamesystem" in table.columns else pl.lit(None, pl.String)
    number, text = finite(pl.col("labresult")), pl.col("labresulttext")
    drops = {
        "unknown_stay": pl.col("subject_id").is_null(),
        "no_name": name.is_null() | (name == ""),
        **far_offset(*offsets),
        "no_time": first.is_null() & revised.is_null(),
    }
    repairs = {
        "offset_out_of_range": pl.col("_far"),
        "no_result_time": first.is_null(),
        "revised_before_result": revised < first,
        "not_finite": ~pl.col("labresult").is_finite(),
        "converted_unit": converted() & number.is_not_null(),
        "other_unit": pl.col("_factor").is_null() & number.is_not_null(),
    }
    code, recorded = pl.concat_str(pl.lit("LAB/"), name), at(pl.max_horizontal(first, revised))
    time, value = at(pl.coalesce(first, revised)), number * pl.coalesce("_factor", 1.0)
    result = event(time, code, recorded, value, words(text, number), "patientunitstayid")
    rows = with_factor(with_sound_offsets(with_stay(table.rows, stays), *offsets), code, unit)
    return sift_large(table, rows, drops, repairs, result, work)


def _path(column: str) -> pl.Expr:
    """A path such as "endocrine|glucose metabolism|diabetes mellitus", null if blank."""
    path = pl.col(column).str.strip_chars()
    return pl.when(path != "").then(path)


def _name(path: pl.Expr) -> pl.Expr:
    """What a path says below its organ system and category, which alone would be no name."""
    parts = path.str.split("|")
    return pl.when(parts.list.len() > 2).then(parts.list.slice(2)).otherwise(parts.list.tail(1)).list.join(", ")


def _path_names(events: pl.LazyFrame) -> pl.DataFrame:
    codes = events.select("code").unique().filter(pl.col("code").str.starts_with("EICU_"))
    return codes.select("code", description=_name(pl.col("code").str.replace("^[^/]*/", ""))).collect()
