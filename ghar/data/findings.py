"""What a chart says of a visit beside its codes: age, sex, kind of admission, unit, day of stay, newest values.

For records of real patients at full length (`ghar.data.views.visits`); every system shows the same. A value is shown
only where it was recorded by the prediction time, also with leakage="paper", and the day of stay only where the outcome
comes later: told at the discharge it would be the length of stay.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort, Sample
from ghar.data.readers.columns import SourceColumns, open_declared
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.flag_ranges import flag_ranges
from ghar.data.readers.lab_copies import without_copies
from ghar.data.readers.meds_files import scan
from ghar.data.readers.mimic import with_fluid
from ghar.data.readers.mimic3_columns import MIMIC3
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.tables import columns_of, find_table
from ghar.data.readers.units import HOUSE, SPELLINGS, unit_factors
from ghar.data.readers.vessels import SPECIMEN_TYPES, vessel_codes
from ghar.data.readers.vitals import VARIABLES
from ghar.data.visit_codes import Visit

TIME = pl.Datetime("us")
DAY = timedelta(days=1)
SEXES = {"GENDER/F": "woman", "GENDER/M": "man"}
STAYS: tuple[tuple[SourceColumns, str, str, str], ...] = (  # table, stay, column of the kind of admission
    (MIMIC4, "hosp/admissions", "hadm_id", "admission_type"),
    (MIMIC3, "admissions", "hadm_id", "admission_type"),
    (EICU, "patient", "patientunitstayid", "unitadmitsource"),
)
LABS: tuple[tuple[SourceColumns, str, str, str], ...] = (  # table, item, unit
    (MIMIC4, "hosp/labevents", "itemid", "valueuom"),
    (MIMIC3, "labevents", "itemid", "valueuom"),
    (EICU, "lab", "labname", "labmeasurenamesystem"),
)
RANGES = ("ref_range_lower", "ref_range_upper")
FLAGGED = ("valuenum", "flag")  # of MIMIC-III, which has no ranges
NO_RESULT = (  # a tube that was kept ("HOLD.  DISCARD GREATER THAN 4 HOURS OLD."), and tests without a result
    r"(?i)^-?$|^(HOLD|UNABLE TO REPORT|AVAILABLE AT)\b|^(NOT ?DONE|DONE|SENT|ERROR|SEE COMMENTS?)$|\bNOT RESULTED\b"
)
LONGEST = 60  # letters of a result in words; remarks of laboratories go on for lines
FLUIDS = (MIMIC4, "hosp/d_labitems"), (MIMIC3, "d_labitems")
# what a laboratory measures, among the vital signs, and the vessel of one draw, which is that of no other's values
NO_VALUES = ("VITAL/glucose", "VITAL/ph", *SPECIMEN_TYPES)
# of MIMIC's items, by label: indices of a serum's haemolysis, icterus and lipaemia, and raw counts of toxicology, which
# are of the measurement and not of the patient
OF_THE_MEASUREMENT = re.compile(r"[HIL]|(STX|UTX|HPE|PAN|EE)\d+")
ITEMS, KINDS = "items", "admissions"  # files of `record_facts`
TEXT, NUMBER = pl.String(), pl.Float64()
ITEM_TYPES = {"code": TEXT, "unit": TEXT, "low": NUMBER, "high": NUMBER, "fluid": TEXT}
# null where a folder was exported before 28 November 2026
OF_A_SEX = {"low_woman": NUMBER, "high_woman": NUMBER, "low_man": NUMBER, "high_man": NUMBER}
KIND_TYPES = {"visit_id": pl.Int64(), "kind": TEXT}
ASKED = {"sample": pl.Int64(), "subject_id": pl.Int64(), "visit_id": pl.Int64(), "start": TIME, "until": TIME}
LOOKED_AT = 5_000_000  # rows of results that tell units and reference ranges of items


@dataclass(frozen=True)
class Item:
    """Unit and reference range of a laboratory item, what is looked at where it is not blood ("Urine"), and the ranges
    of women and of men; null where the source says nothing."""

    unit: str | None = None
    low: float | None = None
    high: float | None = None
    fluid: str | None = None
    low_woman: float | None = None
    high_woman: float | None = None
    low_man: float | None = None
    high_man: float | None = None

    def range_of(self, sex: str | None) -> tuple[float | None, float | None]:
        """Lower and upper end for a "woman" or a "man"; of all results where the sex is unknown or has no range."""
        own = {"woman": (self.low_woman, self.high_woman), "man": (self.low_man, self.high_man)}.get(sex or "")
        return own if own and own != (None, None) else (self.low, self.high)


def with_findings(samples: Sequence[Sample], cohort: Cohort, root: Path | None) -> list[Sample]:
    """The samples with `Visit.about`, `Visit.values` and `Visit.dated`, everything known at their prediction times.

    cohort: with chart measurements, where vital signs are wanted. root: folder of the source's own tables, or a MEDS
    folder with `record_facts`, for kinds of admission, units and reference ranges; None for any other MEDS folder,
    whose events say the first two. Older visits have no values.
    """
    newest = [
        (i, s.subject_id, s.history[-1].visit_id, s.history[-1].start, s.prediction_time)
        for i, s in enumerate(samples)
        if s.history
    ]
    asked = pl.LazyFrame(newest, ASKED, orient="row")
    about = _Descriptions(cohort, _kinds_of_events(cohort) if root is None else _kinds(root))
    sexes = {i: about.sexes.get(visit) for i, _, visit, *_ in newest}
    values = _values(cohort, asked, {} if root is None else lab_items(root), sexes)
    shared: dict[tuple[int, str], tuple[Visit, Visit]] = {}  # by id() and words: many samples show an older visit

    def older(visit: Visit, until: datetime) -> Visit:
        words = about.of(visit, until)
        if (id(visit), words) not in shared:
            shared[id(visit), words] = visit, replace(visit, about=words, dated=about.dated)
        return shared[id(visit), words][1]

    new_samples = []
    for i, sample in enumerate(samples):
        if not sample.history:
            new_samples.append(sample)
            continue
        *before, last = sample.history
        until = sample.prediction_time
        words = about.of(last, until, _day(last, sample))
        current = replace(last, about=words, values=tuple(values.get(i, ())), dated=about.dated)
        new_samples.append(replace(sample, history=(*(older(visit, until) for visit in before), current)))
    return new_samples


class _Descriptions:
    """Who lies where: "66-year-old woman, EMERGENCY admission, MICU, day 3".

    dated: whether the cohort's dates are those of the source; eICU has none."""

    def __init__(self, cohort: Cohort, kinds: Mapping[int, str]):
        events = cohort.scan().select("subject_id", "visit_id", "code", "numeric_value", "recorded")
        ages = events.filter(pl.col("code") == "AGE").select("visit_id", "numeric_value").drop_nulls().collect()
        sexes = events.filter(pl.col("code").is_in(list(SEXES))).select("subject_id", "code").collect()
        has_unit = pl.col("code").str.starts_with("ICU_ADMISSION/") & (pl.col("code") != "ICU_ADMISSION/UNKNOWN")
        units = events.filter(has_unit)
        units = units.select("visit_id", "recorded", "code").drop_nulls().collect().sort("recorded")
        subjects = cohort.visits.select("visit_id", "subject_id")
        self.dated = "group" not in cohort.visits.columns
        self._kinds, self._ages = kinds, dict(ages.iter_rows())
        sex_of = {subject: SEXES[code] for subject, code in sexes.iter_rows()}
        self.sexes = {visit: sex_of.get(subject) for visit, subject in subjects.iter_rows()}
        self._units: dict[int, list[tuple[datetime, str]]] = defaultdict(list)
        for visit, recorded, code in units.iter_rows():
            self._units[visit].append((recorded, code.partition("/")[2]))

    def of(self, visit: Visit, until: datetime, day: str | None = None) -> str:
        """Of a visit as it is known at a time."""
        years, sex = self._ages.get(visit.visit_id), self.sexes.get(visit.visit_id)
        who = " ".join(part for part in (None if years is None else _age(years), sex) if part)
        units = [unit for recorded, unit in self._units.get(visit.visit_id, ()) if recorded <= until]
        parts = (who, self._kinds.get(visit.visit_id), *units[-1:], day)
        return ", ".join(part for part in parts if part)


def _age(years: float) -> str:
    return "90 or older," if years >= 90 else f"{years:.0f}-year-old"


def _day(visit: Visit, sample: Sample) -> str | None:
    """Day of the stay that is predicted from; none where it would be the outcome, or the stay is another one."""
    is_before_outcome = sample.outcome_time is not None and sample.prediction_time < sample.outcome_time
    if not is_before_outcome or visit.visit_id != sample.visit_id or sample.prediction_time < visit.start:
        return None
    return f"day {(sample.prediction_time - visit.start) // DAY + 1}"


def _values(
    cohort: Cohort, asked: pl.LazyFrame, items: Mapping[str, Item], sexes: Mapping[int, str | None]
) -> dict[int, list[str]]:
    """Number of the sample -> newest value of each item: results out of range, vital signs, other results.

    A result that its source gives to no stay is one of the stay in which it was taken: of MIMIC-IV's demo 796 are such.
    sexes: of the sample's patient, by the same number.
    """
    measured = pl.col("code").str.contains("^(LAB|VITAL|LOINC)/") & ~pl.col("code").is_in(NO_VALUES)
    words = pl.col("text_value").str.strip_chars(" _.")  # "___" stands for what was taken out
    has_value = pl.col("numeric_value").is_not_null() | ~words.str.contains(NO_RESULT)
    events = cohort.scan()
    unit = pl.col("unit") if "unit" in events.collect_schema() else pl.lit(None, pl.String)  # of a MEDS folder
    columns = ("subject_id", "visit_id", "time", "code", "recorded", "numeric_value", "text_value")
    taken = without_copies(events.filter(measured & has_value)).select(*columns, unit=unit)
    placed = taken.join(asked.drop("subject_id"), on="visit_id", how="inner", maintain_order="left")
    spans = asked.join(cohort.visits.lazy().select("visit_id", "end"), on="visit_id", how="left").drop("visit_id")
    loose = taken.filter(pl.col("visit_id").is_null()).drop("visit_id")
    loose = loose.join(spans, on="subject_id", how="inner", maintain_order="left")
    inside = pl.col("time").is_between("start", pl.coalesce("end", "until"))
    rows = (
        pl.concat([placed, loose.filter(inside)], how="diagonal")
        .filter((pl.col("recorded") <= pl.col("until")) & (pl.col("time") <= pl.col("until")))
        .group_by("sample", "code")
        .agg(
            pl.col("numeric_value", "text_value", "unit", "time", "recorded")
            .sort_by("time", "recorded", maintain_order=True)
            .last()
        )
        .collect(engine="streaming")
        .sort("sample", "code")
    )
    entries = defaultdict[int, list[tuple[int, str]]](list)
    for sample, place, text in _by_name(rows, cohort.names(), items, sexes):
        entries[sample].append((place, text))
    ordered = {sample: sorted(rows, key=lambda row: row[0]) for sample, rows in entries.items()}
    return {sample: [text for _, text in rows] for sample, rows in ordered.items()}


def _by_name(
    rows: pl.DataFrame, names: Mapping[str, str], items: Mapping[str, Item], sexes: Mapping[int, str | None]
) -> Iterator[tuple[int, int, str]]:
    """Sample, place and words of each value, of items with one name and unit the newest alone.

    MIMIC measures haemoglobin and glucose in blood gases, too: without their times an old one and a new one of one name
    contradict each other, and a budget may keep the old one.
    """
    newest: dict[tuple[int, str, str | None], tuple[tuple[datetime, datetime], int, str]] = {}
    for sample, code, number, text, unit, time, recorded in rows.iter_rows():
        item, label = items.get(code) or Item(unit), names.get(code) or code
        if OF_THE_MEASUREMENT.fullmatch(label):
            continue
        name = with_fluid(label, item.fluid)
        key, when = (sample, name, item.unit), (time, recorded)
        if key not in newest or newest[key][0] <= when:
            newest.pop(key, None)  # the place among other items is that of the newer one
            newest[key] = when, *_describe_value(code, name, number, text, item, sexes[sample])
    for (sample, *_), (_, place, text) in newest.items():
        yield sample, place, text


def _describe_value(
    code: str, name: str, number: float | None, text: str | None, item: Item, sex: str | None
) -> tuple[int, str]:
    """Where a value stands (0: out of range, 1: vital sign, 2: other result), and how it is put.

    name: of the item, with its fluid.
    """
    kind, _, local = code.partition("/")
    words = _shorten(" ".join((text or "").strip(" _").split()), name)
    value = words or f"{number:.{4 if kind == 'VITAL' else 6}g}"
    if kind == "VITAL":
        unit = VARIABLES[local].unit if local in VARIABLES and not words else None
        return 1, " ".join(part for part in (local, value, unit) if part)
    low, high = map(_as_stored, item.range_of(sex))
    is_low = number is not None and low is not None and number < low
    is_high = number is not None and high is not None and number > high
    flag = "(low)" if is_low else "(high)" if is_high else None
    unit = None if words else item.unit
    return 0 if flag else 2, " ".join(part for part in (name, value, unit, flag) if part)


def _as_stored(bound: float | None) -> float | None:
    """The end of a range in the precision of `Cohort.events`: an INR of 1.1 is there 1.10000002, and not above 1.1."""
    return None if bound is None else float(np.float32(bound))


def _shorten(remark: str, name: str) -> str:
    """A result in words in at most about `LONGEST` letters. A longer one begins after the item's own name, where it has
    that ("Using this patient's age ... Estimated GFR = 44"), and is its first sentence, or is cut."""
    if len(remark) <= LONGEST:
        return remark
    own = name.partition("(")[0].strip().lower()
    place = remark.lower().find(own) if own else -1
    rest = remark[place + len(own) :].strip() if place > 0 else remark
    sentence = rest.partition(". ")[0]
    if len(sentence) <= LONGEST:
        return sentence if sentence == rest else f"{sentence}."
    return f"{rest[:LONGEST].rstrip()}..."


def record_facts(root: Path) -> dict[str, pl.DataFrame]:
    """What records say of the tables in `root` beside codes, for a MEDS folder (`write_meds`): items and admissions."""
    items = [(code, *astuple(item)) for code, item in sorted(lab_items(root).items())]
    kinds = sorted(_kinds(root).items())
    types = {ITEMS: ITEM_TYPES | OF_A_SEX, KINDS: KIND_TYPES}
    return {name: pl.DataFrame(rows, types[name], orient="row") for name, rows in ((ITEMS, items), (KINDS, kinds))}


def has_facts(root: Path) -> bool:
    """Whether a MEDS folder has `record_facts`."""
    return (root / f"{ITEMS}.parquet").is_file() and (root / f"{KINDS}.parquet").is_file()


def lab_items(root: Path) -> dict[str, Item]:
    """Code -> the unit of an item's results, and the medians of their reference ranges, those of women and of men too.

    An item of the table of units (units.py) is in the house's unit, and only results in that unit count for its range;
    of one without a unit (INR) all of them do. Where the results of any other item stand in several units, a number
    alone does not tell in which: no unit is said, and no range but one that all of them have. MIMIC-III marks results
    as abnormal, and the ranges are those that its marks tell (flag_ranges.py); eICU has neither. None is of venous
    blood: MIMIC-IV gives it those of arterial.
    """
    if has_facts(root):
        rows = scan(root / f"{ITEMS}.parquet", ITEM_TYPES, OF_A_SEX).collect()
        return {code: Item(*about) for code, *about in rows.iter_rows()}
    sources = [row for row in LABS if find_table(root, row[1]) is not None]
    if not sources:
        return {}
    # MIMIC-III's table is found as MIMIC-IV's, too: its own declaration knows more of its columns
    source, table, item, unit = max(sources, key=lambda row: len(_there(root, row[0], row[1])))
    there = _there(root, source, table)
    further = [column for column in (unit, "subject_id", *RANGES, *FLAGGED) if column in there]
    opened = open_declared(root, source, table, [item, *further])
    ranges = [pl.col(c) if c in opened.columns else pl.lit(None, pl.Float64).alias(c) for c in RANGES]
    raw_unit = pl.col(unit).str.strip_chars() if unit in opened.columns else pl.lit(None, pl.String)
    code = pl.concat_str(pl.lit("LAB/"), pl.col(item).cast(pl.String).str.strip_chars())
    has_ranges, has_flags = ({"subject_id", *some} <= set(opened.columns) for some in (RANGES, FLAGGED))
    has_flags = has_flags and not has_ranges
    sexes = _sexes(root, source) if has_ranges or has_flags else {}
    sex = pl.col("subject_id").replace_strict(sexes, default=None, return_dtype=TEXT) if sexes else pl.lit(None, TEXT)
    flags = [pl.col("valuenum").alias("value"), pl.col("flag")] if has_flags else []
    wanted = (code.alias("code"), raw_unit.alias("unit"), *ranges, sex.alias("sex"), *flags)
    rows = opened.rows.head(LOOKED_AT).select(*wanted).drop_nulls("code")
    house = pl.col("code").replace_strict(HOUSE, default=None, return_dtype=pl.String)
    same = house.is_null() | (house.str.to_lowercase() == pl.col("unit").str.to_lowercase())
    of_a_sex = [pl.col(c).filter(pl.col("sex") == word).median() for word in SEXES.values() for c in RANGES]
    sound = rows.with_columns(pl.col("unit").fill_null("")).filter(same.fill_null(False))
    counted = (
        sound.group_by("code", "unit")
        .agg(
            pl.len(),
            *(pl.col(column).median() for column in RANGES),
            *(end.alias(name) for name, end in zip(OF_A_SEX, of_a_sex, strict=True)),
        )
        .sort("code", pl.col("unit") == "", "len", "unit", descending=[False, False, True, False])
        .collect(engine="streaming")
    )
    if has_flags:
        of_flags = flag_ranges(sound, {None: RANGES, "woman": list(OF_A_SEX)[:2], "man": list(OF_A_SEX)[2:]})
        bare = counted.drop(*RANGES, *OF_A_SEX)
        counted = bare.join(of_flags, on=["code", "unit"], how="left", maintain_order="left")
    fluids = _fluids(root)
    items = {code: Item(HOUSE[code]) for code in _converted(rows)}
    items |= {
        code: Item(unit or None, low, high, None, *own) for code, unit, low, high, *own in _sure(counted).iter_rows()
    }
    items = {code: replace(items.get(code, Item()), fluid=fluids.get(code)) for code in {*items, *fluids}}
    return items | {venous: Item(item.unit) for code, item in items.items() for venous in vessel_codes(code)}


def lab_units(root: Path) -> dict[str, str]:
    """Code -> the unit of a laboratory item's numbers, where it has one; vital signs have theirs in their names."""
    return {code: item.unit for code, item in lab_items(root).items() if item.unit}


def _converted(rows: pl.LazyFrame) -> list[str]:
    """The items with results in a unit that the table of units knows."""
    unit = pl.col("unit").str.to_lowercase()
    units = rows.join(unit_factors().lazy(), left_on=["code", unit], right_on=["_item", "_unit"], how="semi")
    return units.select(pl.col("code").unique()).collect(engine="streaming")["code"].to_list()


def _sure(counted: pl.DataFrame) -> pl.DataFrame:
    """code, unit, ends of the ranges: of each item the commonest unit, where there are no two of them.

    counted: a row for each code and unit, the commonest of a code first."""
    spelled = pl.when(pl.col("unit") != "").then(pl.col("unit").str.to_lowercase().replace(SPELLINGS))
    mixed = spelled.drop_nulls().n_unique().over("code") > 1
    ranges = [
        pl.when(~mixed | (pl.col(end).drop_nulls().n_unique().over("code") <= 1)).then(pl.col(end)).alias(end)
        for end in (*RANGES, *OF_A_SEX)
    ]
    rows = counted.select("code", pl.when(~mixed).then("unit"), *ranges)
    return rows.unique("code", keep="first", maintain_order=True)


def _sexes(root: Path, source: SourceColumns) -> dict[int, str]:
    """Patient -> "woman" or "man", of MIMIC-III or MIMIC-IV."""
    name = "hosp/patients" if source is MIMIC4 else "patients"
    rows = open_declared(root, source, name, ["subject_id", "gender"]).rows.drop_nulls().collect()
    words = ((patient, SEXES.get(f"GENDER/{sex.strip()}")) for patient, sex in rows.iter_rows())
    return {patient: word for patient, word in words if word}


def _fluids(root: Path) -> dict[str, str]:
    """Code -> what a laboratory item is measured in, for those that are not of blood."""
    for source, name in FLUIDS:
        if "fluid" in _there(root, source, name):
            rows = open_declared(root, source, name, ["itemid", "fluid"]).rows.drop_nulls().collect()
            fluids = ((f"LAB/{item}", fluid.partition("(")[0].strip()) for item, fluid in rows.iter_rows())
            return {code: fluid for code, fluid in fluids if fluid.lower() not in ("", "blood")}
    return {}


def _there(root: Path, source: SourceColumns, table: str) -> set[str]:
    """The declared columns that a table has."""
    return columns_of(root, table) & set(source.tables[table].types)


def _kinds_of_events(cohort: Cohort) -> dict[int, str]:
    """Stay -> kind of admission by the codes of MIMIC_IV_MEDS, "HOSPITAL_ADMISSION//EW EMER.//EMERGENCY ROOM"."""
    kind = pl.col("code").str.extract(r"^HOSPITAL_ADMISSION//([^/]+)")
    rows = cohort.scan().select("visit_id", kind=kind).drop_nulls().collect(engine="streaming")
    return {visit: _admission(kind) for visit, kind in rows.iter_rows()}


def _kinds(root: Path) -> dict[int, str]:
    """Stay -> kind of admission in the source's words ("EW EMER. admission"), in eICU where the patient came from."""
    if has_facts(root):
        return dict(scan(root / f"{KINDS}.parquet", KIND_TYPES, {}).collect().iter_rows())
    for source, name, stay, kind in STAYS:
        if kind not in _there(root, source, name):
            continue
        rows = open_declared(root, source, name, [stay, kind]).rows.drop_nulls().collect()
        words = "from {}".format if source is EICU else _admission
        return {one: words(" ".join(text.split())) for one, text in rows.iter_rows() if text.strip()}
    return {}


def _admission(kind: str) -> str:
    """The kind in words: "EW EMER." says less of what it is than "SURGICAL SAME DAY ADMISSION"."""
    return kind if kind.lower().endswith("admission") else f"{kind} admission"
