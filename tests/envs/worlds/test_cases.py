"""The world in which cases tell: its story against direct counts, its files as the ordinary reader reads them."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.records import Records
from ghar.envs.worlds.cases import story
from ghar.envs.worlds.cases.story import (
    COURSES,
    EXACT,
    GeneratedPatient,
    ceilings,
    draw_courses,
    draw_person,
    outcome_posterior,
)
from ghar.envs.worlds.cases.world import LABELS, generate_cases, load_cases
from ghar.errors import BadInput
from ghar.launch.entry import load

SEEDS = st.integers(0, 10**6)


def likely(outcome: int, courses: list[int]) -> float:
    return EXACT if outcome == max(courses) else (1 - EXACT) / (COURSES - 1)


def directly(phenotypes: tuple[int, ...], cases: list[GeneratedPatient]) -> np.ndarray:
    """P(outcome | cases), by every course that every phenotype may have; those of other cases apart from each other."""
    found = np.zeros(COURSES)
    for own in product(range(COURSES), repeat=len(phenotypes)):
        weight = 1.0
        for case in cases:
            known = [own[phenotypes.index(p)] for p in case.phenotypes if p in phenotypes]
            open_ = len(case.phenotypes) - len(known)
            states = [*product(range(COURSES), repeat=open_)]
            weight *= sum(likely(case.outcome, [*known, *others]) for others in states) / len(states)
        found += [weight * likely(outcome, list(own)) for outcome in range(COURSES)]
    return found / found.sum()


def people(seed: int, count: int) -> list[GeneratedPatient]:
    """Few phenotypes, so that many are shared."""
    rng = np.random.default_rng(seed)
    courses = rng.integers(0, COURSES, 4)
    found = []
    for _ in range(count):
        own = tuple(rng.permutation(4)[: int(rng.integers(1, 3))].tolist())
        outcome = int(rng.integers(COURSES)) if rng.random() < 0.2 else int(courses[list(own)].max())
        found.append(GeneratedPatient((), own, outcome))
    return found


@settings(max_examples=30)
@given(SEEDS)
def test_what_cases_tell_is_what_counting_every_course_tells(seed: int) -> None:
    asked, *cases = people(seed, 4)
    assert outcome_posterior(asked.phenotypes, cases) == pytest.approx(directly(asked.phenotypes, cases))


@settings(max_examples=15)
@given(SEEDS, st.integers(1, 3))
def test_the_ceiling_is_that_of_the_best_set_of_cases(seed: int, k: int) -> None:
    asked, pool = people(seed, 2), people(seed + 1, 7)
    trained = pool[:3]
    found = ceilings(asked, pool, trained, k)
    best = [max(directly(p.phenotypes, list(s)).max() for size in range(k + 1) for s in combinations(pool, size))
            for p in asked]  # fmt: skip
    assert found["examples"] == pytest.approx(np.mean(best))
    assert found["parametric"] == pytest.approx(np.mean([directly(p.phenotypes, []).max() for p in asked]))
    holders = [[case for case in pool if set(case.phenotypes) & set(p.phenotypes)] for p in asked]
    known = [directly(p.phenotypes, cases).max() for p, cases in zip(asked, holders, strict=True)]
    assert found["pool"] == pytest.approx(np.mean(known))
    learned = [[case for case in cases if any(case is one for one in trained)] for cases in holders]
    memory = [directly(p.phenotypes, cases).max() for p, cases in zip(asked, learned, strict=True)]
    assert found["memory"] == pytest.approx(np.mean(memory))
    assert found["parametric"] <= found["examples"] + 1e-12 and found["truth"] == EXACT


def test_only_phenotypes_tell() -> None:
    rng = np.random.default_rng(0)
    courses = draw_courses(rng)
    assert np.bincount(courses).tolist() == [story.FAMILIES * story.PHENOTYPES // COURSES] * COURSES
    drawn = [draw_person(rng, courses, new=number % 2 == 1) for number in range(4000)]
    for new in (False, True):
        own = {p % story.PHENOTYPES for person in drawn[new::2] for p in person.phenotypes}
        assert own == set(range(story.OLD, story.PHENOTYPES) if new else range(story.OLD))
    right = np.mean([p.outcome == courses[list(p.phenotypes)].max() for p in drawn])
    assert right == pytest.approx(EXACT, abs=0.015)
    singles = [p for p in drawn if len(p.phenotypes) == 1]
    assert len(singles) / len(drawn) == pytest.approx(1 - story.TWO, abs=0.03)
    for sign in range(story.SIGNS):  # the same in patients with a sign as in those of the family without it
        family = [p for p in singles if p.phenotypes[0] // story.PHENOTYPES == 0]
        ends = [[p.outcome for p in family if ((0, sign) in p.signs) == has] for has in (True, False)]
        assert abs(np.mean(ends[0]) - np.mean(ends[1])) < 0.6


def test_the_files_read_as_any_meds_folder(tmp_path: Path) -> None:
    records = Records(load(["system=graphwalker", "data=demo_cases", "task=labels", "data.patients=60",
                            f"data.cache={tmp_path}"]))  # fmt: skip
    splits, truth = records.splits, load_cases(records.root)
    assert [len(part) for part in (splits.train, splits.pool, splits.valid, splits.test)] == [18, 18, 6, 18]
    ids = {name: [s.subject_id for s in getattr(splits, name)] for name in ("train", "known", "test")}
    found = truth.ceilings(ids["test"], ids["known"], ids["train"], 3)
    assert found["memory"] == pytest.approx(found["parametric"]) and found["parametric"] < found["examples"]
    assert records.task.labels == LABELS and records.cohort.generated and not records.credentialed(records.cohort)
    codes = pl.read_parquet(records.root / "courses.parquet")
    course = dict(codes.select("code", "course").iter_rows())
    right = 0
    for sample in splits.known:
        [visit] = sample.history
        own = [course[code] for code in visit.diagnoses if code in course]
        person = truth.people[sample.subject_id]
        assert len(own) == len(person.phenotypes) and list(visit.diagnoses[-len(own) :]) == [
            code for code in visit.diagnoses if code in course
        ]
        assert sample.label == person.outcome
        right += sample.label == max(own)
    assert right >= 0.8 * len(splits.known)


def test_the_same_parameters_give_the_same_world(tmp_path: Path) -> None:
    for name in ("a", "b"):
        generate_cases(tmp_path / name, seed=3, patients=40)
    one, two = (load_cases(tmp_path / name).people for name in ("a", "b"))
    assert one == two
    generate_cases(tmp_path / "a", seed=3, patients=40)  # kept
    with pytest.raises(BadInput, match="something else"):
        generate_cases(tmp_path / "a", seed=4, patients=40)
    with pytest.raises(BadInput, match="no finished world"):
        load_cases(tmp_path)
