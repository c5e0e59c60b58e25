"""The demo world's causal story: what is true in it, and with which probability.

Entities. Every condition and drug has a true severity 0..9, drawn once per world. Common ones (60 conditions, 35
drugs) are mostly mild. The long tail holds thousands of rare conditions and as many rare drugs, each shown by about one
visit of the world, uniform over 1..9: what the training patients show of it says next to nothing about test patients,
so neither a table of severities nor memory helps (`Ceilings.memory` is the exact bound). The acuity of a visit is the
highest severity among its conditions and drugs.

Outcomes follow from the acuity alone, given which everything else is independent:
    LOS   the length-of-stay class (0: < 1 day; 1..7: that many whole days; 8: 8 to 14 days; 9: more than 14 days)
          equals the acuity with probability 0.93, else it is one above or below (clipped to 0..9);
    DEC   acuity >= 8 dies in hospital with probability 0.8, anybody else with 0.01; a death ends the stay, and is the
          patient's last visit;
    READ  the next admission follows a live discharge within 1 to 15 days with probability 0.9 when the acuity was
          >= 5, with 0.07 otherwise; else after 30 to 400 days. Whether a survivor comes back at all does not depend
          on the acuity.
Labs, procedures, demographics, number and order of codes carry no information about the outcomes.

Visits. A patient has 1 to 8 visits. A visit has 2 or 3 common conditions (Zipf-like; lasting ones stay with the
patient with probability 0.6) and 1 or 2 drugs, a rare one among them in a third of all visits (`two_steps`); in 40% it
has a rare condition too. The two are independent.

Graph. Which look-ups a visit needs follows from its rare entities:
    one step    a rare condition's grade is stated behind "phenotype present" ("grade 7 course");
    two steps   no grade is stated of a rare drug: behind "target" stands the protein that it acts on, and only a
                look-up of that protein, whose name the record does not hold, states the grade ("associated with").
What misleads: behind "phenotype absent" (conditions) and "side effect" (every other rare drug) stand grades that have
nothing to do with the severity; every other rare drug is carried by a protein that is not its target; beside the grade
of a course stands one of pain, in as many words; a common entity's textbook grade is wrong for this hospital in 60% of
them, so that looking up what training teaches misleads too; look-alike diseases have grades of their own. So the whole
graph, searched at once, brings up the row that counts about every other time, and raw rows cut to the length of a
summary hold it about every other time (envs/ghar/upper_bounds.py counts both). The rest is noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

GRADES = 10
N_COMMON_CONDITIONS, N_COMMON_DRUGS = 60, 35

LOS_EXACT = 0.93
DEATH_FROM_ACUITY, DEATH_HIGH, DEATH_LOW = 8, 0.8, 0.01
READ_FROM_ACUITY, READ_HIGH, READ_LOW = 5, 0.9, 0.07

VISIT_COUNT_LAW = (0.37, 0.22, 0.15, 0.10, 0.06, 0.04, 0.03, 0.03)  # 1..8 planned visits; deaths shorten them
RARE_CONDITION = 0.4  # of visits
TWO_STEPS = 1 / 3  # of visits: they have a rare drug
TAIL_SPARE = 1.15  # entities of the tail for each one that a world of its size is expected to show
UNSEEN = 0.5  # of those that are shown: as many more stand in the graph alone
CARRIED = 0.5  # rare drugs with a carrier beside the target
DECOY = 0.5  # rare drugs whose side effect is the grade of a course, which says nothing; of the others it is a pain
CONDITION_COUNTS, DRUG_COUNTS = (2, 3), (1, 2)  # common conditions; drugs, a rare one among them
CARRY_OVER = 0.6
ZIPF_SHIFT = 8.0  # weight of rank r (from 0) is 1 / (r + shift): long-tailed without one code in every visit
TEXTBOOK_WRONG = 0.6

# One row per stratum of frequency, so that the mix of acuities hardly depends on the seed. Half of the common entities
# are harmless: otherwise the maximum over a visit would hide every low severity, and no one could learn it.
CONDITION_SEVERITIES = (
    (0, 0, 0, 0, 0, 1, 1, 2, 3, 4),
    (0, 0, 0, 0, 0, 1, 1, 2, 2, 4),
    (0, 0, 0, 0, 0, 1, 2, 2, 3, 5),
    (0, 0, 0, 0, 0, 1, 1, 2, 3, 5),
    (0, 0, 0, 0, 0, 1, 2, 3, 4, 6),
    (0, 0, 0, 0, 0, 1, 1, 2, 3, 5),
)
DRUG_SEVERITIES = (
    (0, 0, 0, 0, 1, 1, 2),
    (0, 0, 0, 0, 1, 2, 3),
    (0, 0, 0, 0, 0, 1, 2),
    (0, 0, 0, 0, 1, 2, 3),
    (0, 0, 0, 0, 1, 2, 4),
)


@dataclass(frozen=True)
class Severities:
    """True and textbook severity (int64 [n]) in the order of the vocabulary: common first, then rare.

    Rare entities have no wrong textbook: there both are equal; a rare drug's is what is stated of its target.
    """

    conditions: np.ndarray
    drugs: np.ndarray
    textbook_conditions: np.ndarray
    textbook_drugs: np.ndarray

    @property
    def rare(self) -> np.ndarray:
        """Of the tail, conditions first: how truth.parquet numbers rare entities."""
        return np.concatenate([self.conditions[N_COMMON_CONDITIONS:], self.drugs[N_COMMON_DRUGS:]])


def patient_tail(patients: int, two_steps: float) -> int:
    """Rare entities of each kind that patients are given from: about one for each time that a visit has one."""
    visits = sum(n * p for n, p in enumerate(VISIT_COUNT_LAW, 1)) * patients
    return max(30, math.ceil(visits * max(RARE_CONDITION, two_steps) * TAIL_SPARE))


def whole_tail(patients: int, two_steps: float) -> int:
    """Rare entities of each kind in the graph."""
    return math.ceil(patient_tail(patients, two_steps) * (1 + UNSEEN))


def los_matrix() -> np.ndarray:
    """P(LOS class | acuity), float64 [acuity, class]."""
    matrix = np.zeros((GRADES, GRADES))
    for acuity in range(GRADES):
        matrix[acuity, acuity] += LOS_EXACT
        for neighbour in (acuity - 1, acuity + 1):
            matrix[acuity, min(max(neighbour, 0), GRADES - 1)] += (1 - LOS_EXACT) / 2
    return matrix


def death_probability() -> np.ndarray:
    """P(death in hospital | acuity), float64 [acuity]."""
    return np.where(np.arange(GRADES) >= DEATH_FROM_ACUITY, DEATH_HIGH, DEATH_LOW)


def readmission_probability() -> np.ndarray:
    """P(next admission within 15 days | acuity, discharged alive, comes back), float64 [acuity]."""
    return np.where(np.arange(GRADES) >= READ_FROM_ACUITY, READ_HIGH, READ_LOW)


def draw_severities(rng: np.random.Generator, tail: int) -> Severities:
    """Draw what is true in one world: shuffled inside each stratum, so any seed gives a similar mix."""
    rare = np.arange(1, GRADES)
    conditions = np.concatenate(
        [*(rng.permutation(stratum) for stratum in CONDITION_SEVERITIES), _spread(rng, rare, tail)]
    )
    drugs = np.concatenate([*(rng.permutation(s) for s in DRUG_SEVERITIES), _spread(rng, rare, tail)])
    return Severities(
        conditions,
        drugs,
        _misprint(rng, conditions, N_COMMON_CONDITIONS),
        _misprint(rng, drugs, N_COMMON_DRUGS),
    )


def _spread(rng: np.random.Generator, values: np.ndarray, size: int) -> np.ndarray:
    """`size` values in random order, each value as often as any other up to one."""
    return rng.permutation(np.resize(rng.permutation(values), size))


def _misprint(rng: np.random.Generator, severity: np.ndarray, common: int) -> np.ndarray:
    """The textbook: exactly 60% of the common entities get another grade, uniform over the other nine."""
    textbook = severity.copy()
    wrong = rng.permutation(common)[: round(TEXTBOOK_WRONG * common)]
    textbook[wrong] = (severity[wrong] + rng.integers(1, GRADES, len(wrong))) % GRADES
    return textbook
