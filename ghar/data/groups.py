"""Who a sample's patient is, for numbers by group: rarity of the diseases, age, sex, race, kind of admission, number of
visits, site. Only evaluations read this; no system is shown it.

Age, sex and visits come from the cohort; race, admission and site from the source's own table of stays, where it has
them: MIMIC-III and MIMIC-IV (one hospital, so no site) and eICU (no kind of admission).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort, Sample
from ghar.data.readers.columns import open_declared
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.mimic3_columns import MIMIC3
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.tables import columns_of
from ghar.data.tasks.subsets import rarity_groups

KINDS = ("rarity", "age", "sex", "race", "admission", "visits", "site")
AGES = ((18, "under 18"), (45, "18-44"), (65, "45-64"), (80, "65-79"))  # below so many years; others are 80 and older
RACES = {  # beginnings of what the sources write, in capitals; whatever fits none is "other or unknown"
    "WHITE": "White", "CAUCASIAN": "White", "PORTUGUESE": "White", "BLACK": "Black", "AFRICAN AMERICAN": "Black",
    "HISPANIC": "Hispanic", "SOUTH AMERICAN": "Hispanic", "ASIAN": "Asian",
}  # fmt: skip
ADMISSIONS = {
    "ELECTIVE": "elective", "SURGICAL SAME DAY": "elective", "EMERGENCY": "emergency", "EW EMER": "emergency",
    "DIRECT EMER": "emergency", "URGENT": "urgent", "OBSERVATION": "observation", "EU OBS": "observation",
    "DIRECT OBS": "observation", "AMBULATORY OBS": "observation", "NEWBORN": "newborn",
}  # fmt: skip
STAYS = (  # source, table, columns of the stay, race, admission and site, where there are such
    (MIMIC4, "hosp/admissions", "hadm_id", "race", "admission_type", None),
    (MIMIC4, "hosp/admissions", "hadm_id", "ethnicity", "admission_type", None),  # version 1.0
    (MIMIC3, "admissions", "hadm_id", "ethnicity", "admission_type", None),
    (EICU, "patient", "patientunitstayid", "ethnicity", None, "hospitalid"),
)


def groups_of(
    cohort: Cohort, root: Path | None, train: Sequence[Sample], samples: Sequence[Sample]
) -> dict[str, dict[str, str | None]]:
    """Sample id -> kind of group -> the sample's group, None where no one knows.

    root: folder of the source's tables. train: says how common a disease is. Ages are those of the newest visit that
    the sample shows.
    """
    rarity = {s.sample_id: name for name, own in rarity_groups(train, samples).items() for s in own}
    ages, sexes, stays = _ages(cohort), _sexes(cohort), {} if root is None else _stays(root)
    groups: dict[str, dict[str, str | None]] = {}
    for sample in samples:
        race, admission, site = stays.get(sample.visit_id, (None, None, None))
        n_visits = len(sample.history)
        groups[sample.sample_id] = {
            "rarity": rarity.get(sample.sample_id),
            "age": _age(ages.get(sample.visit_id)),
            "sex": sexes.get(sample.subject_id),
            "race": race,
            "admission": admission,
            "visits": "1" if n_visits <= 1 else "2-3" if n_visits <= 3 else "4 or more",
            "site": site,
        }
    return groups


def _ages(cohort: Cohort) -> Mapping[int, float]:
    """Visit -> years at its start."""
    rows = cohort.scan().filter(pl.col("code") == "AGE").select("visit_id", "numeric_value").drop_nulls().collect()
    return dict(rows.iter_rows())


def _age(years: float | None) -> str | None:
    if years is None:
        return None
    return next((name for limit, name in AGES if years < limit), "80 and older")


def _sexes(cohort: Cohort) -> Mapping[int, str]:
    rows = cohort.scan().filter(pl.col("code").str.starts_with("GENDER/")).select("subject_id", "code").collect()
    words = {"GENDER/F": "female", "GENDER/M": "male"}
    return {subject: words[code] for subject, code in rows.iter_rows() if code in words}


def _stays(root: Path) -> dict[int, tuple[str | None, str | None, str | None]]:
    """Stay -> race, kind of admission, site."""
    for source, name, stay, race, admission, site in STAYS:
        wanted = [column for column in (race, admission, site) if column is not None]
        if not {stay, *wanted} <= columns_of(root, name):
            continue
        table = open_declared(root, source, name, [stay, *wanted])
        rows = table.rows.select(
            stay,
            pl.lit(None, pl.String).alias("r") if race is None else pl.col(race).alias("r"),
            pl.lit(None, pl.String).alias("a") if admission is None else pl.col(admission).alias("a"),
            pl.lit(None, pl.String).alias("s") if site is None else pl.col(site).alias("s"),
        )
        return {
            one: (_named(of, RACES, "other or unknown"), _named(kind, ADMISSIONS, None), where)
            for one, of, kind, where in rows.collect().iter_rows()
        }
    return {}


def _named(text: str | None, names: Mapping[str, str], other: str | None) -> str | None:
    if text is None:
        return None
    return next((name for start, name in names.items() if text.strip().upper().startswith(start)), other)
