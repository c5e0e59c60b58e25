"""Demo visits as MIMIC-IV tables: one polars frame per file, columns and formats of MIMIC-IV 2.2.

Dirt that real tables have and that changes no outcome is put in on purpose: blank marital status, discharge location,
insurance and stop time, "?" as language, NDC "0", lab values "___" without a number, labs without an admission.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity.simulate import DAY, FIRST_ADMISSION, MAX_VISITS, NOBODY, Visits
from ghar.envs.worlds.severity.sources import POINTERS, SourceDraws, omr_table, pointer_rows
from ghar.envs.worlds.severity.vocabulary import WorldVocabulary

COLUMNS: dict[str, str] = {
    "hosp/patients": "subject_id,gender,anchor_age,anchor_year,anchor_year_group,dod",
    "hosp/admissions": "subject_id,hadm_id,admittime,dischtime,deathtime,admission_type,admit_provider_id,"
    "admission_location,discharge_location,insurance,language,marital_status,race,edregtime,edouttime,"
    "hospital_expire_flag",
    "hosp/diagnoses_icd": "subject_id,hadm_id,seq_num,icd_code,icd_version",
    "hosp/procedures_icd": "subject_id,hadm_id,seq_num,chartdate,icd_code,icd_version",
    "hosp/prescriptions": "subject_id,hadm_id,pharmacy_id,poe_id,poe_seq,order_provider_id,starttime,stoptime,"
    "drug_type,drug,formulary_drug_cd,gsn,ndc,prod_strength,form_rx,dose_val_rx,dose_unit_rx,form_val_disp,"
    "form_unit_disp,doses_per_24_hrs,route",
    "hosp/labevents": "labevent_id,subject_id,hadm_id,specimen_id,itemid,order_provider_id,charttime,storetime,value,"
    "valuenum,valueuom,ref_range_lower,ref_range_upper,flag,priority,comments",
    "hosp/d_icd_diagnoses": "icd_code,icd_version,long_title",
    "hosp/d_icd_procedures": "icd_code,icd_version,long_title",
    "hosp/d_labitems": "itemid,label,fluid,category",
    "icu/icustays": "subject_id,hadm_id,stay_id,first_careunit,last_careunit,intime,outtime,los",
}

RACES = ("WHITE", "BLACK/AFRICAN AMERICAN", "HISPANIC OR LATINO", "ASIAN", "OTHER", "UNKNOWN")
RACE_LAW = (0.66, 0.15, 0.06, 0.04, 0.05, 0.04)
INSURANCES = ("Other", "Medicare", "Medicaid", "")
MARITAL = ("MARRIED", "SINGLE", "WIDOWED", "DIVORCED", "")
ADMISSIONS = ("EW EMER.", "OBSERVATION ADMIT", "URGENT", "EU OBSERVATION", "DIRECT EMER.", "ELECTIVE")
ARRIVALS = ("EMERGENCY ROOM", "PHYSICIAN REFERRAL", "TRANSFER FROM HOSPITAL", "CLINIC REFERRAL", "PROCEDURE SITE")
DISCHARGES = ("HOME", "HOME HEALTH CARE", "SKILLED NURSING FACILITY", "REHAB", "CHRONIC/LONG TERM ACUTE CARE", "")
YEAR_GROUPS = ("2008 - 2010", "2011 - 2013", "2014 - 2016", "2017 - 2019")
CARE_UNITS = (
    "Medical Intensive Care Unit (MICU)",
    "Surgical Intensive Care Unit (SICU)",
    "Medical/Surgical Intensive Care Unit (MICU/SICU)",
    "Coronary Care Unit (CCU)",
    "Cardiac Vascular Intensive Care Unit (CVICU)",
)
ICU_FROM_ACUITY = 6
DOSES = ("2.5", "5", "10", "20", "25", "40", "50", "100", "250", "500")
LAB_DELAY_MEDIAN, LAB_DELAY_SIGMA = 66.0, 0.9  # minutes; the MIMIC-IV demo: median 1.1 h, 95th percentile 4.9 h


def chunk_tables(
    rng: np.random.Generator, vocabulary: WorldVocabulary, visits: Visits, labs_per_visit: int
) -> dict[str, pl.DataFrame]:
    """The patient tables of one chunk, keyed as in COLUMNS, with exactly those columns in that order; and hosp/omr
    where patients have a graft."""
    tables = {
        "hosp/patients": _patients(rng, visits),
        "hosp/admissions": _admissions(rng, visits),
        "hosp/diagnoses_icd": _diagnoses(rng, vocabulary, visits),
        "hosp/procedures_icd": _procedures(rng, vocabulary, visits),
        "hosp/prescriptions": _prescriptions(rng, vocabulary, visits),
        "hosp/labevents": _labs(rng, vocabulary, visits, labs_per_visit),
        "icu/icustays": _icu_stays(rng, visits),
    }
    more: dict[str, pl.DataFrame] = {}
    if (visits.past > 0).any():
        first = visits.number == 0
        drawn = SourceDraws(**{name: values[first] for name, values in vars(visits.drawn).items()})
        more["hosp/omr"] = omr_table(
            rng, drawn, visits.subject_id[first], visits.start[first], vocabulary.targets["name"]
        )
    return {name: _in_columns(name, table) for name, table in tables.items()} | more


def dictionary_tables(
    vocabulary: WorldVocabulary, pointers: Mapping[str, str] | None = None
) -> dict[str, pl.DataFrame]:
    """The d_* tables: codes and titles of everything a chunk can mention; `pointers` (names by code) to further sources
    among them."""

    def titles(table: pl.DataFrame) -> pl.DataFrame:
        return table.select(icd_code="code", icd_version=pl.lit(10), long_title="name").sort("icd_code")

    labs = vocabulary.labs.select(itemid="code", label="name", fluid=pl.lit("Blood"), category="category")
    named = vocabulary.conditions.select("code", "name")
    if pointers:
        named = pl.concat([named, pl.DataFrame({"code": list(pointers), "name": list(pointers.values())})])
    tables = {
        "hosp/d_icd_diagnoses": titles(named),
        "hosp/d_icd_procedures": titles(vocabulary.procedures),
        "hosp/d_labitems": labs.sort("itemid"),
    }
    return {name: _in_columns(name, table) for name, table in tables.items()}


def _in_columns(name: str, table: pl.DataFrame) -> pl.DataFrame:
    """Columns in MIMIC's order; the ones we have nothing for are blank."""
    wanted = COLUMNS[name].split(",")
    return table.with_columns(pl.lit(None, pl.String).alias(c) for c in wanted if c not in table.columns).select(wanted)


def _patients(rng: np.random.Generator, visits: Visits) -> pl.DataFrame:
    firsts, lasts = _first_and_last(visits)
    n = len(firsts)
    # One survivor in ten dies at home, long enough after the last discharge to touch no task.
    home_death = rng.random(n) < 0.1
    later = visits.end[lasts] + rng.integers(60 * DAY, 365 * DAY, n)
    dod = np.where(visits.died[lasts] == 1, visits.end[lasts], later)
    return pl.DataFrame(
        {
            "subject_id": visits.subject_id[firsts],
            "gender": _pick(rng, ("F", "M"), n, (0.53, 0.47)),
            "anchor_age": rng.normal(62, 18, n).round().clip(18, 91).astype(np.int64),
            "anchor_year": _times(visits.start[firsts]).dt.year(),
            "anchor_year_group": _pick(rng, YEAR_GROUPS, n),
            "dod": _blank_where(~home_death & (visits.died[lasts] == 0), _times(dod).dt.date()),
        }
    )


def _admissions(rng: np.random.Generator, visits: Visits) -> pl.DataFrame:
    n = len(visits)
    # Race is the patient's, the rest may change between visits.
    firsts, _ = _first_and_last(visits)
    race = rng.choice(len(RACES), len(firsts), p=RACE_LAW)[np.cumsum(visits.number == 0) - 1]
    emergency = rng.random(n) < 0.55
    registered = visits.start - rng.integers(30, 8 * 60, n)
    left = registered + rng.integers(60, 12 * 60, n)
    died = visits.died == 1
    return pl.DataFrame(
        {
            "subject_id": visits.subject_id,
            "hadm_id": visits.hadm_id,
            "admittime": _times(visits.start),
            "dischtime": _times(visits.end),
            "deathtime": _blank_where(~died, _times(visits.end)),
            "admission_type": _pick(rng, ADMISSIONS, n),
            "admit_provider_id": _providers(rng, n),
            "admission_location": pl.Series(np.where(emergency, ARRIVALS[0], _pick(rng, ARRIVALS[1:], n).to_numpy())),
            "discharge_location": _blank_text(
                np.where(died, "DIED", _pick(rng, DISCHARGES, n, (0.36, 0.28, 0.16, 0.07, 0.05, 0.08)).to_numpy())
            ),
            "insurance": _blank_text(_pick(rng, INSURANCES, n, (0.5, 0.38, 0.1, 0.02)).to_numpy()),
            "language": _pick(rng, ("ENGLISH", "?"), n, (0.92, 0.08)),
            "marital_status": _blank_text(_pick(rng, MARITAL, n, (0.42, 0.33, 0.12, 0.08, 0.05)).to_numpy()),
            "race": _names(RACES, race),
            "edregtime": _blank_where(~emergency, _times(registered)),
            "edouttime": _blank_where(~emergency, _times(left)),
            "hospital_expire_flag": visits.died,
        }
    )


def _diagnoses(rng: np.random.Generator, vocabulary: WorldVocabulary, visits: Visits) -> pl.DataFrame:
    visit, entity = np.nonzero(visits.conditions)
    rare_visit = np.flatnonzero(visits.rare[:, 0] != NOBODY)
    visit = np.concatenate([visit, rare_visit])
    entity = np.concatenate([entity, story.N_COMMON_CONDITIONS + visits.rare[rare_visit, 0]])
    pointing, pointer = pointer_rows(visits.drawn)
    visit = np.concatenate([visit, pointing])
    entity = np.concatenate([entity, vocabulary.conditions.height + pointer])
    visit, entity, position = _shuffled_within(rng, visit, entity)
    codes = pl.concat([vocabulary.conditions["code"], pl.Series(list(POINTERS), dtype=pl.String)])
    return pl.DataFrame(
        {
            "subject_id": visits.subject_id[visit],
            "hadm_id": visits.hadm_id[visit],
            "seq_num": position,
            "icd_code": codes.gather(entity),
            "icd_version": np.full(len(visit), 10),
        }
    )


def _procedures(rng: np.random.Generator, vocabulary: WorldVocabulary, visits: Visits) -> pl.DataFrame:
    count = rng.choice(3, len(visits), p=(0.45, 0.35, 0.20))
    visit = np.repeat(np.arange(len(visits)), count)
    size = vocabulary.procedures.height
    position = np.arange(len(visit)) - np.repeat(np.cumsum(count) - count, count)
    base = rng.integers(0, size, len(visits))[visit]
    other = (base + rng.integers(1, size, len(visit))) % size
    day = (visits.start[visit] + (visits.end - visits.start)[visit] * rng.random(len(visit))).astype(np.int64)
    return pl.DataFrame(
        {
            "subject_id": visits.subject_id[visit],
            "hadm_id": visits.hadm_id[visit],
            "seq_num": position + 1,
            "chartdate": _times(day).dt.date(),
            "icd_code": vocabulary.procedures["code"].gather(np.where(position == 0, base, other)),
            "icd_version": np.full(len(visit), 10),
        }
    )


def _prescriptions(rng: np.random.Generator, vocabulary: WorldVocabulary, visits: Visits) -> pl.DataFrame:
    visit, entity = np.nonzero(visits.drugs)
    rare_visit = np.flatnonzero(visits.rare[:, 1] != NOBODY)
    visit = np.concatenate([visit, rare_visit])
    rare_drug = visits.rare[rare_visit, 1] - vocabulary.tail
    entity = np.concatenate([entity, story.N_COMMON_DRUGS + rare_drug])
    visit, entity, position = _shuffled_within(rng, visit, entity)
    n = len(visit)
    length = visits.end[visit] - visits.start[visit]
    begin = (visits.start[visit] + length * rng.beta(1, 4, n)).astype(np.int64)
    stop = (begin + (visits.end[visit] - begin) * rng.beta(4, 1, n)).astype(np.int64)
    order = (visits.hadm_id[visit] - FIRST_ADMISSION) * 16 + position
    orders = order % (16 * MAX_VISITS)  # numbered per patient
    person = visits.subject_id[visit]
    return pl.DataFrame(
        {
            "subject_id": person,
            "hadm_id": visits.hadm_id[visit],
            "pharmacy_id": 30_000_000 + order,
            "poe_id": pl.select(pl.format("{}-{}", pl.Series(person), pl.Series(orders))).to_series(),
            "poe_seq": orders,
            "order_provider_id": _providers(rng, n),
            "starttime": _times(begin),
            "stoptime": _blank_where(rng.random(n) < 0.01, _times(stop)),
            "drug_type": _pick(rng, ("MAIN",), n),
            "drug": vocabulary.drugs["name"].gather(entity),
            "ndc": _pick(rng, ("0",), n),
            "dose_val_rx": _pick(rng, DOSES, n),
            "dose_unit_rx": _pick(rng, ("mg",), n),
            "route": _pick(rng, ("PO", "IV", "PO/NG", "SC"), n, (0.55, 0.25, 0.12, 0.08)),
        }
    )


def _labs(rng: np.random.Generator, vocabulary: WorldVocabulary, visits: Visits, labs_per_visit: int) -> pl.DataFrame:
    """Values scatter around the reference range whatever the patient has: labs tell nothing about the outcome."""
    visit = np.repeat(np.arange(len(visits)), labs_per_visit)
    n = len(visit)
    item = rng.integers(0, vocabulary.labs.height, n)
    low_text, high_text = vocabulary.labs["low"], vocabulary.labs["high"]
    low, high = low_text.cast(pl.Float64).to_numpy()[item], high_text.cast(pl.Float64).to_numpy()[item]
    whole = ~low_text.str.contains(".", literal=True).to_numpy()[item]
    value = (low + high) / 2 + (high - low) * 0.45 * rng.standard_normal(n)
    value = np.maximum(np.where(whole, value.round(), value.round(1)), low / 2)
    drawn = (visits.start[visit] + (visits.end - visits.start)[visit] * rng.random(n)).astype(np.int64)
    stored = drawn + np.exp(np.log(LAB_DELAY_MEDIAN) + LAB_DELAY_SIGMA * rng.standard_normal(n)).astype(np.int64) + 1
    number = (visits.hadm_id[visit] - FIRST_ADMISSION) * labs_per_visit
    number = number + np.tile(np.arange(labs_per_visit), len(visits))
    redacted = rng.random(n) < 0.02
    text = pl.Series(np.where(whole, np.char.mod("%d", value.astype(np.int64)), np.char.mod("%.1f", value)))
    return pl.DataFrame(
        {
            "labevent_id": number + 1,
            "subject_id": visits.subject_id[visit],
            "hadm_id": _blank_where(rng.random(n) < 0.03, pl.Series(visits.hadm_id[visit])),
            "specimen_id": 50_000_000 + number,
            "itemid": vocabulary.labs["code"].gather(item),
            "order_provider_id": _blank_where(rng.random(n) < 0.3, _providers(rng, n)),
            "charttime": _times(drawn),
            "storetime": _blank_where(rng.random(n) < 0.01, _times(stored)),
            "value": pl.select(pl.when(pl.Series(redacted)).then(pl.lit("___")).otherwise(text)).to_series(),
            "valuenum": _blank_where(redacted, pl.Series(value)),
            "valueuom": vocabulary.labs["unit"].gather(item),
            "ref_range_lower": low_text.gather(item),
            "ref_range_upper": high_text.gather(item),
            "flag": _blank_text(np.where((value < low) | (value > high), "abnormal", "")),
            "priority": _blank_text(_pick(rng, ("ROUTINE", "STAT", ""), n, (0.6, 0.3, 0.1)).to_numpy()),
        }
    )


def _icu_stays(rng: np.random.Generator, visits: Visits) -> pl.DataFrame:
    visit = np.flatnonzero(visits.acuity >= ICU_FROM_ACUITY)
    n = len(visit)
    length = visits.end[visit] - visits.start[visit]
    begin = (visits.start[visit] + length * 0.2 * rng.random(n)).astype(np.int64)
    end = (begin + (visits.end[visit] - begin) * (0.3 + 0.7 * rng.random(n))).astype(np.int64)
    unit = rng.integers(0, len(CARE_UNITS), n)
    moved = np.where(rng.random(n) < 0.1, rng.integers(0, len(CARE_UNITS), n), unit)
    return pl.DataFrame(
        {
            "subject_id": visits.subject_id[visit],
            "hadm_id": visits.hadm_id[visit],
            "stay_id": visits.hadm_id[visit] - FIRST_ADMISSION + 30_000_000,
            "first_careunit": _names(CARE_UNITS, unit),
            "last_careunit": _names(CARE_UNITS, moved),
            "intime": _times(begin),
            "outtime": _times(end),
            "los": (end - begin) / DAY,
        }
    )


def _first_and_last(visits: Visits) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of each patient's first and last visit."""
    firsts = np.flatnonzero(visits.number == 0)
    return firsts, np.append(firsts[1:], len(visits)) - 1


def _shuffled_within(
    rng: np.random.Generator, visit: np.ndarray, entity: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows grouped by visit in random order, and their position in the visit from 1."""
    order = np.lexsort((rng.random(len(visit)), visit))
    visit, entity = visit[order], entity[order]
    first = np.searchsorted(visit, visit)
    return visit, entity, np.arange(len(visit)) - first + 1


def _times(minutes: np.ndarray) -> pl.Series:
    return pl.Series(minutes * 60_000_000, dtype=pl.Int64).cast(pl.Datetime("us"))


def _names(names: tuple[str, ...], index: np.ndarray) -> pl.Series:
    return pl.Series(names, dtype=pl.String).gather(index)


def _pick(rng: np.random.Generator, names: tuple[str, ...], n: int, law: tuple[float, ...] | None = None) -> pl.Series:
    return _names(names, rng.choice(len(names), n, p=law))


def _providers(rng: np.random.Generator, n: int) -> pl.Series:
    return _names(tuple(f"P{number:05d}" for number in range(400)), rng.integers(0, 400, n))


def _blank_where(mask: np.ndarray, values: pl.Series) -> pl.Series:
    return pl.select(pl.when(~pl.Series(mask, dtype=pl.Boolean)).then(values)).to_series()


def _blank_text(values: np.ndarray) -> pl.Series:
    return _blank_where(values == "", pl.Series(values, dtype=pl.String))
