"""Two further sources of knowledge in the demo world: the patient's own distant past, and other patients' reports.

A third and a fourth part of the story (envs/worlds/severity/story.py), in the shares of `MIXES` (data.mix) or others
(`SourceShares`); without them the world is the same to the byte. Each has a code of its own in the
record, which says where to ask and nothing about the grade, so that no source can stand in for another:

    own past    "earlier graft": years before the first visit an outpatient row (hosp/omr) gave the grade of its course,
                uniform over 1..9, a patient's own and no one else's. For the share `chained` of patients the row names
                a protein instead, and only the graph, asked for that protein, states its grade. A later row gives a
                grade of pain, which says nothing.
                "failing graft" for the share `slopes`, in its place: no row states a grade. A number was measured once
                in about ten months for six years (hosp/omr); the grade is by how much a year it fell over the last
                four values. It fell otherwise before.
    reports     "unnamed syndrome": it runs as the three common conditions beside it have it, a phenotype that is met
                unrecognised once in the whole world. Two other patients (on average) had the same three and were
                treated in time ("early syndrome"): nothing in their stay shows it, but the summary of their stay says
                which course it was going to take. So labels tell nothing of a phenotype, and only the text of the right
                patients' reports does; stays that share two of the three had another phenotype.

The acuity of a visit is the highest of all its severities, these among them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import polars as pl

from ghar.envs.worlds.severity import story

NONE = (0.0, 0.0, 0.0, 0.0)
MIXES = {  # data.mix -> share of visits that take two steps in the graph, and `SourceShares`
    "graph": (story.TWO_STEPS, NONE),
    "four": (0.25, (0.25, 0.2, 0.33, 0.33)),
    "four_mostly_graph": (0.4, (0.1, 0.07, 0.33, 0.33)),
    "four_mostly_patients": (0.1, (0.4, 0.3, 0.33, 0.33)),
}
NOBODY = -1
DAY = 24 * 60
TOLD_BY = 2  # stays in time for each unrecognised one
YEARS_BEFORE = (4, 13)  # the first visit: when the past that counts was written down
PAIN_YEARS = (1, 3)
MEASURED, LATELY = 8, 4  # values of a failing graft's number; the last ones, whose slope is its grade
SPACED = 300  # days between two of them, and the last one before the first visit; give or take `JITTER`
JITTER, LOWEST, SCATTER = 40, (20, 60), 0.02  # days; range of the last value; standard deviation about the line
POINTERS = {  # code -> name; U49 is left free by ICD-10
    "U490000": "earlier graft",
    "U490001": "unnamed syndrome",
    "U490002": "early syndrome",
    "U490003": "failing graft",
}
PAST, ASKS, _, FAILING = POINTERS
MEASURE = f"{POINTERS[FAILING].capitalize()} clearance"
SENTENCE = "The unnamed syndrome was on its way to a grade {grade} course and was treated in time."


@dataclass(frozen=True)
class SourceShares:
    """past: of patients with a graft, in every visit of theirs. reports: of visits whose syndrome no one recognised.
    Of the grafts, chained: a row names what only the graph grades; slopes: numbers alone tell."""

    past: float
    reports: float
    chained: float
    slopes: float = 0.0

    @property
    def any(self) -> bool:
        return self.past > 0 or self.reports > 0

    @property
    def pointers(self) -> dict[str, str]:
        """Those of POINTERS that a record can show."""
        return {code: name for code, name in POINTERS.items() if code != FAILING or self.slopes > 0}


@dataclass(frozen=True, eq=False)
class Phenotypes:
    """Sets of three common conditions (int64 [n, 3]), and the grade of each (int64 [n])."""

    conditions: np.ndarray
    grade: np.ndarray

    def shows(self, numbers: np.ndarray) -> np.ndarray:
        """bool [visits, common conditions] of phenotypes by number; NOBODY shows nothing."""
        table = np.zeros((len(numbers), story.N_COMMON_CONDITIONS), dtype=bool)
        rows = np.flatnonzero(numbers != NOBODY)
        table[rows[:, None], self.conditions[numbers[rows]]] = True
        return table


def draw_phenotypes(rng: np.random.Generator) -> Phenotypes:
    """All sets of three common conditions in random order, each grade 1..9 as often as any other up to one."""
    sets = np.array(list(combinations(range(story.N_COMMON_CONDITIONS), 3)), dtype=np.int64)
    grades = np.resize(rng.permutation(np.arange(1, story.GRADES)), len(sets))
    return Phenotypes(rng.permutation(sets), rng.permutation(grades))


@dataclass(frozen=True)
class SourceDraws:
    """What some visits have of it, int64 [visits]: grade of the past (0: none), its tail number where it is chained,
    whether numbers alone tell it (0, 1), the phenotype that asks, the phenotype that tells; NOBODY where none."""

    past: np.ndarray
    chain: np.ndarray
    slope: np.ndarray
    asks: np.ndarray
    tells: np.ndarray


@dataclass(eq=False)
class Chunk:
    """Whom a chunk of patients gives what to, and how many phenotypes it has used.

    past, chain, slope: by patient of the chunk. phenotypes: its own numbers, as many as it may need.
    """

    rng: np.random.Generator
    shares: SourceShares
    past: np.ndarray
    chain: np.ndarray
    slope: np.ndarray
    phenotypes: np.ndarray
    used: dict[str, int] = field(default_factory=lambda: {"asks": 0, "tells": 0})

    def draw(self, patients: np.ndarray) -> SourceDraws:
        """For one visit of each of `patients` (rows of the chunk)."""
        kind = self.rng.random(len(patients))
        asks = kind < self.shares.reports
        tells = ~asks & (kind < self.shares.reports * (1 + TOLD_BY))
        past, chain, slope = (values[patients] for values in (self.past, self.chain, self.slope))
        return SourceDraws(past, chain, slope, self._next("asks", asks), self._next("tells", tells))

    def _next(self, name: str, has: np.ndarray) -> np.ndarray:
        turn = self.used[name] + has.cumsum() - 1
        self.used[name] += int(has.sum())
        return np.where(has, self.phenotypes[turn % len(self.phenotypes)], NOBODY)


def chunk_of(
    rng: np.random.Generator,
    shares: SourceShares,
    first: int,
    patients: int,
    of: int,
    tail_grades: np.ndarray,
    spare: int,
) -> Chunk:
    """The chunk of patients number `first` .. `first + patients - 1` of a world `of` so many.

    tail_grades: of the tail's drugs, whose numbers from `spare` on no visit has: chained pasts name their proteins.
    """
    visits = sum(n * p for n, p in enumerate(story.VISIT_COUNT_LAW, 1))
    total = math.comb(story.N_COMMON_CONDITIONS, 3)
    wanted = min(total, max(8, math.ceil(of * visits * shares.reports)))  # deaths shorten lives: some to spare
    own = np.arange(wanted * first // of, max(wanted * (first + patients) // of, wanted * first // of + 1))
    has = rng.random(patients) < shares.past
    kind = rng.random(patients)
    chained = has & (kind < shares.chained)
    slope = has & ~chained & (kind < shares.chained + shares.slopes)
    names = rng.integers(spare, len(tail_grades), patients)
    stated = rng.integers(1, story.GRADES, patients)
    past = np.where(has, np.where(chained, tail_grades[names], stated), 0)
    return Chunk(rng, shares, past, np.where(chained, names, NOBODY), slope.astype(np.int64), rng.permutation(own))


def pointer_rows(drawn: SourceDraws) -> tuple[np.ndarray, np.ndarray]:
    """(visit, number of the pointer in POINTERS) of each pointer that a visit's diagnoses have."""
    graft, fails = drawn.past > 0, drawn.slope > 0
    has = np.stack([graft & ~fails, drawn.asks != NOBODY, drawn.tells != NOBODY, fails], axis=1)
    visit, pointer = np.nonzero(has)
    return visit, pointer


def omr_table(
    rng: np.random.Generator, drawn: SourceDraws, subject_id: np.ndarray, start: np.ndarray, targets: pl.Series
) -> pl.DataFrame:
    """Outpatient rows of patients with a graft (hosp/omr): of an earlier one the grade of its course or the protein it
    goes by, and years later a grade of pain; of a failing one its numbers. drawn, subject_id, start (minutes since
    1970): of each patient's first visit."""
    rows = np.flatnonzero((drawn.past > 0) & (drawn.slope == 0))
    chained = drawn.chain[rows] != NOBODY
    named = targets.gather(np.where(chained, drawn.chain[rows], 0)).to_list()
    results = [
        f"target {target}" if behind else f"grade {grade} course"
        for behind, target, grade in zip(chained, named, drawn.past[rows].tolist(), strict=True)
    ]
    pain = [f"grade {grade} pain" for grade in rng.integers(1, story.GRADES, len(rows))]
    day = [_days_before(rng, start[rows], years) for years in (YEARS_BEFORE, PAIN_YEARS)]
    past_rows = _omr_rows(np.tile(subject_id[rows], 2), pl.concat(day), POINTERS[PAST].capitalize(), results + pain)
    fails = np.flatnonzero(drawn.slope > 0)
    days, values = measurements(rng, drawn.past[fails])
    when = (start[fails, None] - days * DAY).ravel()
    texts = [f"{value:.2f}" for value in values.ravel()]
    measured = _omr_rows(np.repeat(subject_id[fails], MEASURED), _dates(when), MEASURE, texts)
    return pl.concat([past_rows, measured]).sort("subject_id", "chartdate")


def measurements(rng: np.random.Generator, grades: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Days before the first visit (int64 [n, MEASURED], descending) and values (float64 alike) of a number that falls
    by the grade a year over its last LATELY values, and by another of 1..9 before."""
    n, steps = len(grades), SPACED * np.arange(MEASURED, 0, -1)
    days = steps + rng.integers(-JITTER, JITTER + 1, (n, MEASURED))
    other = (grades - 1 + rng.integers(1, story.GRADES - 1, n)) % (story.GRADES - 1) + 1
    rate = np.where(np.arange(MEASURED) < MEASURED - LATELY, other[:, None], grades[:, None])  # up to the next value
    years = -np.diff(days, append=0) / 365
    fallen = np.flip(np.cumsum(np.flip((rate * years)[:, :-1], axis=1), axis=1), axis=1)
    last = rng.uniform(*LOWEST, (n, 1))
    return days, np.hstack([last + fallen, last]) + SCATTER * rng.standard_normal((n, MEASURED))


def _omr_rows(subject_id: np.ndarray, day: pl.Series, name: str, values: list[str]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "subject_id": subject_id,
            "chartdate": day,
            "seq_num": np.ones(len(values), dtype=np.int64),
            "result_name": pl.Series([name] * len(values), dtype=pl.String),
            "result_value": pl.Series(values, dtype=pl.String),
        }
    )


def _days_before(rng: np.random.Generator, start: np.ndarray, years: tuple[int, int]) -> pl.Series:
    return _dates(start - rng.integers(years[0] * 365 * DAY, years[1] * 365 * DAY, len(start)))


def _dates(minutes: np.ndarray) -> pl.Series:
    """Of minutes since 1970."""
    return pl.Series(minutes * 60_000_000, dtype=pl.Int64).cast(pl.Datetime("us")).dt.date()
