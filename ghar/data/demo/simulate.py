"""Lives of demo patients: the story of story.py played out for one chunk of patients, vectorised."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from ghar.data.demo import story
from ghar.data.demo.story import Severities
from ghar.data.demo.vocabulary import Vocabulary

DAY = 24 * 60
FIRST_SUBJECT, FIRST_ADMISSION = 10_000_000, 20_000_000
MAX_VISITS = len(story.VISIT_COUNT_LAW)
NOBODY = -1
MINUTES_FROM_1970_TO_2110 = int((np.datetime64("2110-01-01", "m") - np.datetime64("1970-01-01", "m")).astype(int))


@dataclass(frozen=True)
class Visits:
    """One row per visit, sorted by patient and time. All int64 [n] unless said otherwise; times in minutes since 1970.

    patient: row of the patient in this chunk; number: 0 for a patient's first visit.
    conditions, drugs: bool [n, common] (which common ones the visit has).
    rare: int64 [n, 2], numbers of rare entities (conditions first, then drugs), NOBODY where none.
    common_acuity: highest severity of the common entities; acuity: of all.
    los: class 0..9; read: 1, 0, or NOBODY where there is no next visit.
    """

    patient: np.ndarray
    number: np.ndarray
    subject_id: np.ndarray
    hadm_id: np.ndarray
    start: np.ndarray
    end: np.ndarray
    conditions: np.ndarray
    drugs: np.ndarray
    rare: np.ndarray
    common_acuity: np.ndarray
    acuity: np.ndarray
    los: np.ndarray
    died: np.ndarray
    read: np.ndarray

    def __len__(self) -> int:
        return len(self.patient)


def simulate(
    rng: np.random.Generator, vocabulary: Vocabulary, severities: Severities, first: int, patients: int
) -> Visits:
    """Play the visits of patients number `first` .. `first + patients - 1` of the world."""
    planned = 1 + rng.choice(MAX_VISITS, patients, p=story.VISIT_COUNT_LAW)
    # MIMIC's admission ids are in no time order; readers that sort by id must be caught by this world too.
    id_order = rng.permuted(np.tile(np.arange(MAX_VISITS), (patients, 1)), axis=1)
    lasting = vocabulary.conditions["lasting"].to_numpy()[: story.N_COMMON_CONDITIONS] == "1"
    carried = np.zeros((patients, story.N_COMMON_CONDITIONS), dtype=bool)
    clock = MINUTES_FROM_1970_TO_2110 + rng.integers(0, 80 * 365 * DAY, patients)
    active = np.arange(patients)
    rounds: list[Visits] = []
    for number in range(MAX_VISITS):
        active = active[planned[active] > number]
        if not len(active):
            break
        visits = _one_round(rng, severities, active, carried[active], clock[active])
        comes_back = (visits.died == 0) & (planned[active] > number + 1)
        read, gap = _next_admission(rng, visits.acuity, comes_back)
        person = first + active
        rounds.append(
            replace(
                visits,
                number=np.full(len(active), number),
                subject_id=FIRST_SUBJECT + 1 + person,
                hadm_id=FIRST_ADMISSION + person * MAX_VISITS + id_order[active, number],
                read=read,
            )
        )
        carried[active] = visits.conditions & lasting & (rng.random(visits.conditions.shape) < story.CARRY_OVER)
        clock[active] = visits.end + gap
        active = active[comes_back]
    merged = {f.name: np.concatenate([getattr(r, f.name) for r in rounds]) for f in fields(Visits)}
    order = np.lexsort((merged["number"], merged["patient"]))
    return Visits(**{name: values[order] for name, values in merged.items()})


def _one_round(
    rng: np.random.Generator, severities: Severities, active: np.ndarray, carried: np.ndarray, start: np.ndarray
) -> Visits:
    """One visit for each active patient; ids and the readmission are filled in by the caller."""
    n = len(active)
    rare = draw_rare(rng, n)
    rare_drugs = (rare >= story.N_RARE_CONDITIONS).sum(axis=1)
    n_conditions = rng.integers(story.CONDITION_COUNTS[0], story.CONDITION_COUNTS[1] + 1, n)
    n_drugs = np.maximum(rng.integers(story.DRUG_COUNTS[0], story.DRUG_COUNTS[1] + 1, n) - rare_drugs, 0)
    conditions = _draw_common(rng, carried, n_conditions)
    drugs = _draw_common(rng, np.zeros((n, story.N_COMMON_DRUGS), dtype=bool), n_drugs)
    common_acuity = np.maximum(
        (conditions * severities.conditions[: story.N_COMMON_CONDITIONS]).max(axis=1),
        (drugs * severities.drugs[: story.N_COMMON_DRUGS]).max(axis=1),
    )
    rare_severity = np.concatenate(
        [severities.conditions[story.N_COMMON_CONDITIONS :], severities.drugs[story.N_COMMON_DRUGS :], [0]]
    )
    acuity = np.maximum(common_acuity, rare_severity[rare].max(axis=1))  # NOBODY = -1 picks the last entry, 0
    los = (rng.random((n, 1)) > story.los_matrix().cumsum(axis=1)[acuity]).sum(axis=1).clip(max=story.GRADES - 1)
    empty = np.full(n, NOBODY)
    return Visits(
        patient=active,
        number=empty,
        subject_id=empty,
        hadm_id=empty,
        start=start,
        end=start + _stay_minutes(rng, los),
        conditions=conditions,
        drugs=drugs,
        rare=rare,
        common_acuity=common_acuity,
        acuity=acuity,
        los=los,
        died=(rng.random(n) < story.death_probability()[acuity]).astype(np.int64),
        read=empty,
    )


def draw_rare(rng: np.random.Generator, n: int) -> np.ndarray:
    """Rare entities of n visits, int64 [n, 2]: per kind uniform, two of a visit always different."""
    count = rng.choice(len(story.RARE_COUNT_LAW), n, p=story.RARE_COUNT_LAW)
    is_drug = rng.random((n, 2)) < story.RARE_IS_DRUG
    size = np.where(is_drug, story.N_RARE_DRUGS, story.N_RARE_CONDITIONS)
    pick = rng.integers(0, size)
    same_kind = is_drug[:, 0] == is_drug[:, 1]
    step = rng.integers(1, size[:, 1])  # from the first one to any other of its kind, equally likely
    pick[:, 1] = np.where(same_kind, (pick[:, 0] + step) % size[:, 1], pick[:, 1])
    rare = pick + np.where(is_drug, story.N_RARE_CONDITIONS, 0)
    return np.where(np.arange(2) < count[:, None], rare, NOBODY)


def _draw_common(rng: np.random.Generator, kept: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Sets of `count` common entities, bool [n, size]: those `kept` first, the rest Zipf-like without replacement."""
    n, size = kept.shape
    weight = -np.log(np.arange(size) + story.ZIPF_SHIFT)
    key = weight + rng.gumbel(size=(n, size)) + np.where(kept, 1e3, 0.0)  # Gumbel top-k = weighted sampling
    rank = np.argsort(np.argsort(-key, axis=1), axis=1)
    return rank < count[:, None]


def _stay_minutes(rng: np.random.Generator, los: np.ndarray) -> np.ndarray:
    """Minutes of a stay of each class. Class 8 ends at 14 days sharp, so `> 14 days` and floor() agree on class 9."""
    shortest = np.where(los == 0, 180, np.where(los == 9, 15 * DAY, los * DAY))
    longest = np.where(los == 8, 14 * DAY, np.where(los == 9, 40 * DAY, (los + 1) * DAY - 1))
    return rng.integers(shortest, longest + 1)


def _next_admission(
    rng: np.random.Generator, acuity: np.ndarray, comes_back: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(readmitted within 15 days: 1, 0 or NOBODY; minutes from discharge to the next admission)."""
    soon = rng.random(len(acuity)) < story.readmission_probability()[acuity]
    gap = np.where(
        soon, rng.integers(DAY, 15 * DAY + 1, len(acuity)), rng.integers(30 * DAY, 400 * DAY + 1, len(acuity))
    )
    return np.where(comes_back, soon.astype(np.int64), NOBODY), gap
