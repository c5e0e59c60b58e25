"""OMOP CDM 5.4 and 5.3 (csv, csv.gz, Athena's tab-separated files, parquet), read into a `Cohort`.

One pass per table. A row is kept, or dropped by a rule that is named and counted in `Cohort.counts`, as in mimic4.py.

concepts      omop_concepts.py says what each becomes; "concepts_not_listed" counts those that the folder's own table
              concept does not have. A row without any concept is named by the source's value ("no_concept").
visits        visit_occurrence of inpatients: 9201, 262, 8717 and what stands below them. Others are no visits, counted
              by kind ("emergency", "outpatient", "other_kind", "no_kind"); their facts stay, in no visit. An end before
              the start is unknown.
dates         where a datetime is missing, or is of another day than the date beside it ("datetime_of_another_day"), or
              a table's datetimes are all at midnight, the day is all that is said: a fact is known at its last second,
              and a visit ends with it.
deaths        the table death and a discharge to death (by concept or by word); one death a patient (deaths.py).
conditions,   of a visit are coded when it ends, and known from then on (trap 2). OMOP has no time of storing:
procedures    measurements are known when they were made, some hours too early, as in MIMIC-III (trap 4), but for a
              code of ICD, which may stand in any table.
observations  are read where the source coded them in ICD or CPT4, as many a diagnosis is put there; the others have no
              reader yet ("not_a_code").
visit_detail  intensive care (32037, 581379): an event at the start, and one at the end (trap 5).
person        "GENDER/F" (static) and "AGE" at each visit; 90 above 89. A birthday is 1 January where a year alone is
              given ("year_of_birth_alone").
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.readers.columns import open_declared
from ghar.data.readers.events import LazyRows, code_table, event, in_order, source_folder, stacked, through_cache
from ghar.data.readers.meds_visits import with_deaths
from ghar.data.readers.mimic import COMMON_NAMES
from ghar.data.readers.omop_columns import OMOP
from ghar.data.readers.omop_concepts import KINDS, ancestors, codes_of, concept_names, parents_of, read_concepts
from ghar.data.readers.omop_measurements import LABS, measured
from ghar.data.readers.omop_visits import (
    deaths_outside,
    moment,
    of_people,
    optional,
    read_deaths,
    read_demographics,
    read_intensive_care,
    read_people,
    read_visits,
)
from ghar.data.readers.tables import SourceTable, find_table, sift_large
from ghar.data.readers.vessels import MARKED, count_vessels, vessel_titles, with_vessels
from ghar.data.readers.vitals import vital_names, vitals_of_labs
from ghar.data.visit_codes import kinds_of
from ghar.errors import BadInput
from ghar.progress import progress

VERSION = "omop-4"  # part of the cache key: raise it when a rule changes
REQUIRED = ("person", "visit_occurrence", "condition_occurrence", "concept")
FACTS = {  # table -> beginnings of the columns of its concepts and of its dates
    "condition_occurrence": ("condition", "condition_start"),
    "procedure_occurrence": ("procedure", "procedure"),
    "drug_exposure": ("drug", "drug_exposure_start"),
    "measurement": ("measurement", "measurement"),
    "observation": ("observation", "observation"),
}
CODED_AT_THE_END = ("condition_occurrence", "procedure_occurrence", "observation")
OWN_NAMES = "^(DRUG|ICU_ADMISSION|CONDITION|PROCEDURE)/"
CODED = r"^(ICD\w+|CPT4|HCPCS)/"  # what observations are read for


def read_omop(root: Path, cache: Path | None = None, *, charts: bool = True) -> Cohort:
    """Read the folder `root` (tables as csv, csv.gz or parquet, in any letter case), or its copy under `cache`.

    `charts=False` leaves vital signs out, which the tasks on visits do not need. The cache is keyed by name, size,
    change and status times of the files. Every folder counts as credentialed. Raises BadInput for an absent table of
    REQUIRED, an absent column, a file that is cut short, a cell that is not of its type, and a folder without a person.
    """
    root = source_folder(root, "person.csv")
    name = f"OMOP tables in {root}"
    files = [find_table(root, table) for table in OMOP.tables]
    version = f"{VERSION}-{charts}"
    return through_cache(partial(_read, root, name, charts), name, cache, "omop", files, version)


def _read(root: Path, name: str, charts: bool, work: Path) -> Cohort:
    with progress(4 + len(FACTS), "Read OMOP", "steps") as advance:
        people, counts = read_people(root)
        concepts, part_counts = read_concepts(root)
        counts |= part_counts
        above = ancestors(root, concepts)
        advance()
        every, part_counts = read_visits(root, people, concepts, above)
        counts |= part_counts
        deaths, part_counts = read_deaths(root, people, every)
        counts |= part_counts
        visits = with_deaths(every.filter("inpatient").with_columns(_key="visit_id"), deaths).drop("_key")
        advance()
        parts, kinds = [], {}
        for table in FACTS:
            if table not in REQUIRED and find_table(root, table) is None:
                counts[f"absent.{table}"] = 1
            else:
                events, part_counts = _facts(root, table, people, every, concepts, charts, work)
                kinds |= {code: KINDS[table][1] for code in _codes_in(events) if code not in kinds}
                parts.append(events)
                counts |= part_counts
            advance()
        further = [read_intensive_care(root, every, concepts, above), read_demographics(people, visits)]
        for events, part_counts in (*further, deaths_outside(deaths, visits)):
            parts.append(events)
            counts |= part_counts
        if charts:
            events, part_counts = vitals_of_labs(stacked(parts), LABS)
            parts.append(events)
            counts |= part_counts
        advance()
        events = in_order(parts, work, with_vessels)
        counts |= count_vessels(events, "measurement")
        names = concept_names(concepts, list(FACTS))
        names = [vital_names(), COMMON_NAMES, names, vessel_titles(names)]
        codes, part_counts = code_table(events, names, OWN_NAMES)
        codes = _with_parents(_with_kinds(codes, kinds), parents_of(root, concepts, above))
        advance()
    counts |= {"absent.concept_ancestor": 1} if find_table(root, "concept_ancestor") is None else {}
    return Cohort(name, events, codes, visits, counts=counts | part_counts)


def require_inpatients(cohort: Cohort, root: Path) -> Cohort:
    """The cohort; BadInput where it has no visit, for whoever shows visits."""
    if cohort.visits.height:
        return cohort
    others = {rule.rpartition(".")[2]: n for rule, n in cohort.counts.items() if "dropped.visit_occurrence" in rule}
    seen = ", ".join(f"{rule} {n:,}" for rule, n in others.items()) or "it is empty"
    raise BadInput(
        f"{find_table(root, 'visit_occurrence')} has no visit of inpatients (visit_concept_id 9201 or 262; {seen}): "
        "map its visits to standard concepts, or use system=ehr_rag, which reads events and needs no stays."
    )


def _facts(
    root: Path,
    name: str,
    people: pl.DataFrame,
    visits: pl.DataFrame,
    concepts: pl.DataFrame,
    charts: bool,
    work: Path,
) -> LazyRows:
    """Events of a table of FACTS."""
    table = open_declared(root, OMOP, name)
    concept, date = FACTS[name]
    when, code = moment(table, date), pl.col("_code")
    rows = _in_visits(table, people, visits)
    rows = _with_codes(rows, table, concept, concepts)
    missing = {"not_a_code": ~code.str.contains(CODED).fill_null(False)} if name == "observation" else {}
    drops = {
        "unknown_person": pl.col("known").is_null(),
        "visit_of_another_person": pl.col("_owner") != pl.col("subject_id"),
        "no_date": when.time.is_null(),
        **missing,
        "no_code": code.is_null(),
    }
    repairs = {
        "datetime_of_another_day": when.moved,
        "no_visit": pl.col("_asked").is_null(),
        "unknown_visit": pl.col("_asked").is_not_null() & pl.col("_owner").is_null(),
        "visit_of_another_kind": ~pl.col("_inpatient"),
        "no_concept": pl.col("_concept").is_null(),
    }
    late = pl.lit(name in CODED_AT_THE_END) | code.str.starts_with("ICD")
    recorded = pl.when(late & (when.time <= pl.col("_end")).fill_null(False)).then("_end").otherwise(when.last)
    if name == "measurement":
        rows, more_drops, more_repairs, values = measured(rows, table, concepts, charts)
        result = [*event(when.time, code, recorded, *values[:2], visit="_visit"), values[2].alias("unit")]
        return sift_large(table, rows, {**drops, **more_drops}, {**repairs, **more_repairs}, result, work)
    return sift_large(table, rows, drops, repairs, event(when.time, code, recorded, visit="_visit"), work)


def _in_visits(table: SourceTable, people: pl.DataFrame, visits: pl.DataFrame) -> pl.LazyFrame:
    """Rows with subject_id, known, the visit that they name (_asked, its patient _owner), and that visit where it is
    one of inpatients (_visit, its end _end)."""
    spans = visits.lazy().select(
        _asked="visit_id", _owner="subject_id", _inpatient="inpatient", _end=pl.when("inpatient").then("end")
    )
    rows = of_people(table, people).with_columns(subject_id="person_id", _asked=optional(table, "visit_occurrence_id"))
    rows = rows.join(spans, on="_asked", how="left", maintain_order="left")
    return rows.with_columns(_visit=pl.when("_inpatient").then("_asked"))


def _with_codes(rows: pl.LazyFrame, table: SourceTable, name: str, concepts: pl.DataFrame) -> pl.LazyFrame:
    """Rows with `_code`, and `_concept`, the code of a concept alone: of the source where it is ICD, else the standard
    one, else the source's."""
    codes = codes_of(concepts, table.name).lazy()
    standard = codes.select(_id="concept_id", _standard="code")
    own = codes.select(_own_id="concept_id", _own="code", _first="first")
    rows = rows.with_columns(_id=pl.col(f"{name}_concept_id"), _own_id=optional(table, f"{name}_source_concept_id"))
    rows = rows.join(standard, on="_id", how="left", maintain_order="left")
    rows = rows.join(own, on="_own_id", how="left", maintain_order="left")
    concept = pl.coalesce(pl.when("_first").then("_own"), "_standard", "_own")
    text = optional(table, f"{name}_source_value").str.strip_chars()
    text = pl.when(text != "").then(text.str.to_lowercase() if table.name == "drug_exposure" else text)
    if table.name == "measurement":  # a number alone may be an item of MIMIC, and is none here
        text = pl.when(text.str.contains(r"^\d+$")).then(pl.concat_str(pl.lit("item "), text)).otherwise(text)
    rows = rows.with_columns(_concept=concept)
    by_text = pl.concat_str(pl.lit(f"{KINDS[table.name][0]}/"), text)
    return rows.with_columns(_code=pl.coalesce("_concept", by_text))


def _codes_in(events: pl.DataFrame | pl.LazyFrame) -> list[str]:
    return events.lazy().select(pl.col("code").unique()).collect(engine="streaming")["code"].to_list()


def _with_parents(codes: pl.DataFrame, parents: pl.DataFrame) -> pl.DataFrame:
    """`Cohort.codes` with their parents; a code that says a vessel has those of its item."""
    item = pl.when(pl.col("code").is_in(MARKED)).then(pl.col("code").str.extract("^([^/]*/[^/]*)")).otherwise("code")
    codes = codes.drop("parents").with_columns(_item=item)
    codes = codes.join(parents.rename({"code": "_item"}), on="_item", how="left", maintain_order="left").drop("_item")
    return codes.with_columns(pl.col("parents").fill_null([]))


def _with_kinds(codes: pl.DataFrame, kinds: Mapping[str, str | None]) -> pl.DataFrame:
    """`Cohort.codes` with the kind that the first table of a code gives it, where its vocabulary gives none."""
    kind = pl.col("code").replace_strict(kinds, default=None, return_dtype=pl.String)
    return codes.with_columns(kind=pl.when(kinds_of(codes).is_null()).then(kind))
