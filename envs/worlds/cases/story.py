"""The story of data=demo_cases: an outcome that no knowledge tells, only the cases of patients alike in what counts.

Families. There are 10 families of disease. Each has 6 signs, common conditions, and 20 phenotypes, rare conditions with
invented names. Each phenotype has a course, 0 to 3, drawn anew for every world: what a phenotype means
stands in no textbook, and nothing else a patient has says anything of it. Half of each family's phenotypes are old, the
others new, as diseases are that come up when a model has been trained.

Patients. A patient has one visit. Two thirds have one family, with 4 of its signs and one of its phenotypes; the others
have two families, with 2 signs and a phenotype of each. Signs and phenotypes are independent within a family.
A record lists the signs first, in any order, and then what was found last, the phenotypes. Patients whose outcomes a
model is trained on have old phenotypes alone; who is asked about has new ones alone. Cases of both may be shown: those
of the training patients, and of a pool of patients with new phenotypes, whose outcomes nothing is trained on.

Outcome. The highest course among a patient's phenotypes, with probability 0.95; else one of the other three.

So who is most alike by text shares signs, which tell nothing: such neighbours are decoys, alike and with another end. A
case tells by a shared phenotype, and a patient with two families needs cases of both. What can be known at best:

    parametric  without any case: how many phenotypes the patient has.
    examples    with those k training cases that together tell most.
    pool        with every case that may be shown.
    memory      with every training case, as a model that learned their outcomes by heart may know them.
    truth       with every course known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

FAMILIES, SIGNS, PHENOTYPES = 10, 6, 20  # signs and phenotypes of each family
OLD = 10  # of a family's phenotypes, the first ones
COURSES, EXACT = 4, 0.95
TWO = 1 / 3  # of the patients have two families
SIGN_COUNTS = {1: 4, 2: 2}  # families of a patient -> signs shown of each


@dataclass(frozen=True)
class GeneratedPatient:
    """signs: (family, number of the sign). phenotypes: numbers, PHENOTYPES of each family."""

    signs: tuple[tuple[int, int], ...]
    phenotypes: tuple[int, ...]
    outcome: int


def draw_courses(rng: np.random.Generator) -> np.ndarray:
    """int64 [phenotypes]: each course as often as any other, up to one."""
    return rng.permutation(np.resize(np.arange(COURSES), FAMILIES * PHENOTYPES))


def draw_person(rng: np.random.Generator, courses: np.ndarray, new: bool) -> GeneratedPatient:
    """One patient. new: whether the phenotypes are new ones."""
    low, high = (OLD, PHENOTYPES) if new else (0, OLD)
    families = rng.permutation(FAMILIES)[: 2 if rng.random() < TWO else 1]
    count = SIGN_COUNTS[len(families)]
    signs = [(int(f), int(s)) for f in families for s in rng.permutation(SIGNS)[:count]]
    signs = tuple(signs[i] for i in rng.permutation(len(signs)))
    phenotypes = tuple(int(f) * PHENOTYPES + int(rng.integers(low, high)) for f in families)
    outcome = int(courses[list(phenotypes)].max())
    if rng.random() >= EXACT:
        outcome = int((outcome + rng.integers(1, COURSES)) % COURSES)
    return GeneratedPatient(signs, phenotypes, outcome)


def outcome_law() -> np.ndarray:
    """P(outcome | highest course), float64 [course, outcome]."""
    return np.full((COURSES, COURSES), (1 - EXACT) / (COURSES - 1)) + np.eye(COURSES) * (
        EXACT - (1 - EXACT) / (COURSES - 1)
    )


def ceilings(
    asked: Sequence[GeneratedPatient], pool: Sequence[GeneratedPatient], trained: Sequence[GeneratedPatient], k: int
) -> dict[str, float]:
    """Best expected accuracy on the patients `asked`, by what is known. pool: whose cases may be shown, at most `k`.
    trained: whose outcomes a model learns from.

    Courses are taken as independent and alike, those of a case's other phenotypes as well, unless the patient has them.
    """
    pool_holders, learned = _holders(pool), _holders(trained)
    bounds = {"parametric": 0.0, "examples": 0.0, "pool": 0.0, "memory": 0.0, "truth": EXACT}
    for person in asked:
        prior, cases = _believed(person.phenotypes), _sharing(person, pool_holders)
        bounds["parametric"] += float((prior @ _answers(len(person.phenotypes))).max()) / len(asked)
        bounds["examples"] += _best(person.phenotypes, cases, k) / len(asked)
        bounds["pool"] += float(outcome_posterior(person.phenotypes, cases).max()) / len(asked)
        bounds["memory"] += float(outcome_posterior(person.phenotypes, _sharing(person, learned)).max()) / len(asked)
    return bounds


def _holders(people: Sequence[GeneratedPatient]) -> dict[int, list[GeneratedPatient]]:
    """Who has each phenotype."""
    holders: dict[int, list[GeneratedPatient]] = {}
    for person in people:
        for phenotype in person.phenotypes:
            holders.setdefault(phenotype, []).append(person)
    return holders


def _sharing(person: GeneratedPatient, holders: Mapping[int, Sequence[GeneratedPatient]]) -> list[GeneratedPatient]:
    """Those with one of the person's phenotypes, each once."""
    return [*{id(case): case for p in person.phenotypes for case in holders.get(p, ())}.values()]


def outcome_posterior(phenotypes: Sequence[int], cases: Sequence[GeneratedPatient]) -> np.ndarray:
    """P(outcome | cases), float64 [outcome], of a patient with these phenotypes."""
    weights = _believed(phenotypes)
    for case in cases:
        weights = weights * _likelihood(phenotypes, case)
    return weights / weights.sum() @ _answers(len(phenotypes))


def _believed(phenotypes: Sequence[int]) -> np.ndarray:
    """Prior over the states of the phenotypes' courses, the first one slowest."""
    states = COURSES ** len(phenotypes)
    return np.full(states, 1 / states)


def _states(count: int) -> np.ndarray:
    """int64 [COURSES ** count, count]: the courses in each state."""
    return np.stack(np.unravel_index(np.arange(COURSES**count), (COURSES,) * count), axis=1)


def _answers(count: int) -> np.ndarray:
    """P(outcome | state), float64 [states, outcome]."""
    return outcome_law()[_states(count).max(axis=1)]


def _likelihood(phenotypes: Sequence[int], case: GeneratedPatient) -> np.ndarray:
    """P(the case's outcome | state), its other phenotypes summed over; float64 [states]."""
    states = _states(len(phenotypes))
    shared = [i for i, phenotype in enumerate(phenotypes) if phenotype in case.phenotypes]
    highest = states[:, shared].max(axis=1) if shared else np.full(len(states), -1)
    for _ in range(len(case.phenotypes) - len(shared)):
        highest = np.maximum(highest[..., None], np.arange(COURSES))
    chances = outcome_law()[highest, case.outcome]
    return chances.reshape(len(states), -1).mean(axis=1)


def _best(phenotypes: Sequence[int], cases: Sequence[GeneratedPatient], k: int) -> float:
    """The probability of the likeliest outcome with the `k` cases that make it highest, by enumeration."""
    kinds: dict[tuple[float, ...], int] = {}
    for case in cases:
        kind = tuple(_likelihood(phenotypes, case).round(12).tolist())
        kinds[kind] = kinds.get(kind, 0) + 1
    tables, counts = np.array([*kinds]), [*kinds.values()]
    answers, prior = _answers(len(phenotypes)), _believed(phenotypes)
    best = float((prior @ answers).max())
    for size in range(1, k + 1):
        sets = [s for s in combinations_with_replacement(range(len(counts)), size)
                if all(s.count(i) <= counts[i] for i in set(s))]  # fmt: skip
        if sets:
            weights = prior * np.prod(tables[np.array(sets)], axis=1)
            best = max(best, float(((weights / weights.sum(axis=1, keepdims=True)) @ answers).max()))
    return best
