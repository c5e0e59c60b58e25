"""The demo world's causal story: what is true in it, and with which probability.

Entities. Every condition and drug has a true severity 0..9, drawn once per world. Common ones (60 conditions, 35
drugs) are mostly mild; rare ones (180 conditions, 35 drugs) are uniform over 1..9. The acuity of a visit is the
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
patient with probability 0.6), 1 or 2 drugs, and a rare entity in about half of all visits: one in 50%, two in 3%. A
rare entity is a drug one time in four; all rare conditions are equally likely, and so are all rare drugs, afresh in
each visit. A visit "needs retrieval" exactly when it holds a rare entity: the severities of common ones can be learned
from the training patients; a rare one is seen a handful of times (about six among the 1,200 training patients of a
world of 2,000). That is too seldom for a model that generalises from text, but not for one that memorises perfectly,
and the number grows with the world; `Ceilings.memory` says what such a memory is worth.

Graph. It states the true severity of rare entities ("grade 7 course"), and of common ones a textbook grade that is
wrong for this hospital in 60% of them: looking up a common entity misleads. Around that it holds distractors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ghar.data.demo.vocabulary import Vocabulary

GRADES = 10
N_COMMON_CONDITIONS, N_RARE_CONDITIONS = 60, 180
N_COMMON_DRUGS, N_RARE_DRUGS = 35, 35

LOS_EXACT = 0.93
DEATH_FROM_ACUITY, DEATH_HIGH, DEATH_LOW = 8, 0.8, 0.01
READ_FROM_ACUITY, READ_HIGH, READ_LOW = 5, 0.9, 0.07

VISIT_COUNT_LAW = (0.37, 0.22, 0.15, 0.10, 0.06, 0.04, 0.03, 0.03)  # 1..8 planned visits; deaths shorten them
RARE_COUNT_LAW = (0.47, 0.50, 0.03)  # 0, 1, 2 rare entities in a visit
RARE_IS_DRUG = 0.25
CONDITION_COUNTS, DRUG_COUNTS = (2, 3), (1, 2)  # common conditions; drugs, of which a rare one is one
CARRY_OVER = 0.6
ZIPF_SHIFT = 8.0  # weight of rank r (from 0) is 1 / (r + shift): long-tailed without one code in every visit
TEXTBOOK_WRONG = 0.6

# One row per stratum of frequency, so that the mix of acuities hardly depends on the seed. Half of the common entities
# are harmless: otherwise the maximum over a visit would hide every low severity, and nobody could learn it.
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

    Rare entities have no wrong textbook: there both are equal.
    """

    conditions: np.ndarray
    drugs: np.ndarray
    textbook_conditions: np.ndarray
    textbook_drugs: np.ndarray


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


def draw_severities(rng: np.random.Generator, vocabulary: Vocabulary) -> Severities:
    """Draw what is true in one world: shuffled inside each stratum, so any seed gives a similar mix."""
    rare = np.arange(1, GRADES)
    conditions = np.concatenate(
        [*(rng.permutation(stratum) for stratum in CONDITION_SEVERITIES), _spread(rng, rare, N_RARE_CONDITIONS)]
    )
    drugs = np.concatenate([*(rng.permutation(s) for s in DRUG_SEVERITIES), _spread(rng, rare, N_RARE_DRUGS)])
    assert len(conditions) == vocabulary.conditions.height and len(drugs) == vocabulary.drugs.height
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
