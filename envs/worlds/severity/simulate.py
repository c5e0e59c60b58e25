"""Lives of demo patients: the story of story.py played out for one chunk of patients, vectorised."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity.sources import Chunk, Phenotypes, SourceDraws
from ghar.envs.worlds.severity.story import Severities
from ghar.envs.worlds.severity.vocabulary import WorldVocabulary

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
    rare: int64 [n, 2], the rare condition and the rare drug, as numbers of the tail's entities (conditions first, then
        drugs), NOBODY where none.
    common_acuity: highest severity of the common entities; acuity: of all.
    past, chain, slope, asks, tells: what the visit has of further sources (`sources.SourceDraws`).
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
    past: np.ndarray
    chain: np.ndarray
    slope: np.ndarray
    asks: np.ndarray
    tells: np.ndarray
    common_acuity: np.ndarray
    acuity: np.ndarray
    los: np.ndarray
    died: np.ndarray
    read: np.ndarray

    def __len__(self) -> int:
        return len(self.patient)

    @property
    def drawn(self) -> SourceDraws:
        """Of further sources."""
        return SourceDraws(self.past, self.chain, self.slope, self.asks, self.tells)


@dataclass(frozen=True)
class RareEntities:
    """The rare entities that a chunk of patients is given, in the order in which it is given them.

    conditions, drugs: numbers of the tail, each its own shuffled share; when a chunk is through, it starts over.
    size: of the whole tail, of each kind. two_steps: share of visits with a rare drug.
    """

    conditions: np.ndarray
    drugs: np.ndarray
    size: int
    two_steps: float


def tail_of(rng: np.random.Generator, first: int, patients: int, of: int, size: int, two_steps: float) -> RareEntities:
    """The share of patients number `first` .. `first + patients - 1` of a world `of` so many."""
    count = story.patient_tail(of, two_steps)
    own = np.arange(count * first // of, max(count * (first + patients) // of, count * first // of + 1))
    return RareEntities(rng.permutation(own), rng.permutation(own), size, two_steps)


def simulate(
    rng: np.random.Generator,
    vocabulary: WorldVocabulary,
    severities: Severities,
    tail: RareEntities,
    first: int,
    patients: int,
    further: tuple[Chunk, Phenotypes] | None = None,
) -> Visits:
    """Play the visits of patients number `first` .. `first + patients - 1` of the world.

    further: what these patients have of further sources, with random numbers of its own; None where nothing.
    """
    given = np.zeros(2, dtype=np.int64)  # rare conditions and drugs so far
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
        rare = draw_rare(rng, len(active), tail, given)
        given += (rare != NOBODY).sum(axis=0)
        visits = _one_round(rng, severities, active, carried[active], clock[active], rare, further)
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
    rng: np.random.Generator,
    severities: Severities,
    active: np.ndarray,
    carried: np.ndarray,
    start: np.ndarray,
    rare: np.ndarray,
    further: tuple[Chunk, Phenotypes] | None,
) -> Visits:
    """One visit for each active patient; ids and the readmission are filled in by the caller."""
    n = len(active)
    rare_drugs = (rare[:, 1] != NOBODY).astype(np.int64)
    n_conditions = rng.integers(story.CONDITION_COUNTS[0], story.CONDITION_COUNTS[1] + 1, n)
    n_drugs = np.maximum(rng.integers(story.DRUG_COUNTS[0], story.DRUG_COUNTS[1] + 1, n) - rare_drugs, 0)
    conditions = _draw_common(rng, carried, n_conditions)
    drugs = _draw_common(rng, np.zeros((n, story.N_COMMON_DRUGS), dtype=bool), n_drugs)
    empty = np.full(n, NOBODY)
    none = np.zeros(n, dtype=np.int64)
    drawn, more = SourceDraws(none, empty, none, empty, empty), none
    if further is not None:
        chunk, phenotypes = further
        drawn = chunk.draw(active)
        mask = phenotypes.shows(np.maximum(drawn.asks, drawn.tells))
        conditions = np.where(np.any(mask, axis=1, keepdims=True), mask, conditions)
        more = np.maximum(drawn.past, np.where(drawn.asks != NOBODY, phenotypes.grade[drawn.asks], 0))
    common_acuity = np.maximum(
        (conditions * severities.conditions[: story.N_COMMON_CONDITIONS]).max(axis=1),
        (drugs * severities.drugs[: story.N_COMMON_DRUGS]).max(axis=1),
    )
    rare_severity = np.append(severities.rare, 0)
    own = rare_severity[rare].max(axis=1)  # NOBODY = -1 picks the last entry, 0
    acuity = np.maximum.reduce([common_acuity, own, more])
    los = (rng.random((n, 1)) > story.los_matrix().cumsum(axis=1)[acuity]).sum(axis=1).clip(max=story.GRADES - 1)
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
        past=drawn.past,
        chain=drawn.chain,
        slope=drawn.slope,
        asks=drawn.asks,
        tells=drawn.tells,
        common_acuity=common_acuity,
        acuity=acuity,
        los=los,
        died=(rng.random(n) < story.death_probability()[acuity]).astype(np.int64),
        read=empty,
    )


def draw_rare(rng: np.random.Generator, n: int, tail: RareEntities, given: np.ndarray) -> np.ndarray:
    """The rare condition and the rare drug of n visits, int64 [n, 2]: the next ones of the tail after those `given`."""
    has = rng.random((n, 2)) < (story.RARE_CONDITION, tail.two_steps)
    turn = has.cumsum(axis=0) - 1 + given
    pick = [own[turn[:, kind] % len(own)] for kind, own in enumerate((tail.conditions, tail.drugs))]
    return np.where(has, np.stack([pick[0], pick[1] + tail.size], axis=1), NOBODY)


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
