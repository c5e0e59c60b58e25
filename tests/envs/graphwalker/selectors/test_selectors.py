"""Every selector: its rules, whatever the model says, and the same choice however many patients are under way."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.graphwalker.selectors import graphwalker, lms3, time_series
from ghar.envs.graphwalker.selectors.protocol import (
    Ask,
    Effort,
    ExamplePool,
    Generate,
    Selection,
    SelectionQuery,
    Selector,
    allowed_for,
    best,
    check_pool,
)
from ghar.envs.graphwalker.selectors.scorer import drive
from ghar.envs.graphwalker.selectors.subsets import MEASURED, judges, mean_with, mean_without, random_sets
from ghar.errors import BadInput
from tests.envs.graphwalker.selectors.walks import HashScorer, make_world

HINTS = get_type_hints(Selector)
NAMES, VARIANTS = get_args(HINTS["name"]), get_args(HINTS["variant"])


def choose(pool: ExamplePool, queries: list[SelectionQuery], in_flight: int) -> tuple[list[Selection], HashScorer]:
    module, scorer = importlib.import_module(f"ghar.envs.graphwalker.selectors.{pool.selector.name}"), HashScorer()
    [shared] = drive([partial(module.prepare, pool)], scorer, 1)
    return drive([partial(module.select, pool, shared, query) for query in queries], scorer, in_flight), scorer


def check(pool: ExamplePool, queries: list[SelectionQuery], found: list[Selection]) -> None:
    for query, selection in zip(queries, found, strict=True):
        assert len(set(selection.shots)) == len(selection.shots) <= pool.selector.k
        for row in selection.shots:
            other = pool.patients[row]
            assert other.subject_id != query.patient.subject_id, "its own stay"
            assert other.series is not query.patient.series, "a copy of the patient"


@pytest.mark.parametrize("name", NAMES)
def test_rules_and_independence_of_concurrency(name: str) -> None:
    pool, queries = make_world(0, name=name)
    alone, _ = choose(pool, queries, 1)
    together, _ = choose(pool, queries, 100)
    assert alone == together
    check(pool, queries, alone)
    if name not in ("zero_shot", "lms3", "graphwalker"):
        assert all(len(selection.shots) == 3 for selection in alone)


def with_stays(pool: ExamplePool, queries: list[SelectionQuery]) -> tuple[ExamplePool, list[SelectionQuery]]:
    """The same world, in which each five rows that follow each other are of one subject."""
    patients = tuple(replace(p, subject_id=row // 5) for row, p in enumerate(pool.patients))
    return replace(pool, patients=patients), [replace(q, allowed=allowed_for(q.patient, patients)) for q in queries]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", NAMES)
def test_two_stays_of_one_patient_are_not_shown_together(name: str, variant: str) -> None:
    """The paper's pool has one record of each patient."""
    if name != "graphwalker" and variant != "paper":
        return
    for utility in ("entropy", "self_rated"):
        pool, queries = with_stays(*make_world(0, name=name, variant=variant, utility=utility))
        found, _ = choose(pool, queries, 4)
        for selection in found:
            subjects = [pool.patients[row].subject_id for row in selection.shots]
            assert len(set(subjects)) == len(subjects)
        if name not in ("zero_shot", "lms3", "graphwalker"):
            assert all(len(selection.shots) == 3 for selection in found)


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_of_graphwalker_walks(variant: str) -> None:
    pool, queries = make_world(1, variant=variant)
    found, _ = choose(pool, queries, 3)
    check(pool, queries, found)
    if variant == "no_early_stop":
        assert all(len(selection.shots) == 3 for selection in found)
    if variant == "no_cohorts":
        assert all(len(selection.anchors) == pool.selector.k_a for selection in found)


def test_the_black_box_variant_asks_for_ratings_and_for_nothing_else() -> None:
    pool, queries = make_world(2, utility="self_rated")
    found, scorer = choose(pool, queries, 4)
    check(pool, queries, found)
    assert scorer.prompts and all(gain == int(gain) > 0 for selection in found for gain in selection.gains)
    assert choose(pool, queries, 1)[0] == found


class Listener(HashScorer):
    """Keeps the words of each prompt that is to be answered freely, its reply's tokens beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def answer(self, asks: Sequence[Ask]) -> list[Any]:
        asked = [ask for ask in asks if isinstance(ask, Generate)]
        self.sizes += [len(prompt.split()) + ask.max_tokens for ask in asked for prompt in ask.prompts]
        return super().answer(asks)


@pytest.mark.parametrize("name", ["ids", "graphwalker"])
def test_prompts_that_choose_stay_within_the_context(name: str) -> None:
    """Examples are left out of them, the last first, where all are too long beside the reply."""
    world, queries = make_world(2, name=name, utility="self_rated")
    module, free = importlib.import_module(f"ghar.envs.graphwalker.selectors.{name}"), Listener()
    drive([partial(module.select, world, None, query) for query in queries], free, 4)
    bound, least, most = Listener(), min(free.sizes), max(free.sizes)
    limit = (least + most) // 2
    pool = replace(world, fits=lambda prompt, tokens: len(prompt.split()) + tokens <= limit)
    drive([partial(module.select, pool, None, query) for query in queries], bound, 4)
    assert min(bound.sizes) == least < max(bound.sizes) <= limit < most


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 3), st.integers(1, 3))
def test_anchors_are_the_nearest_of_the_nearest_cohorts(seed: int, k_c: int, k_a: int) -> None:
    """Eqs. 5 to 7 against a direct evaluation."""
    pool, [query, *_] = make_world(seed, k_c=k_c, k_a=k_a)
    graph = pool.graph
    assert graph is not None

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    members = {c: [r for r in graph.members_of(c).tolist() if query.allowed[r]] for c in range(len(graph.prototypes))}
    means = {c: pool.vectors[graph.members_of(c)].mean(0) for c in members if members[c]}
    cohorts = sorted(means, key=lambda c: -cosine(means[c], query.vector))[:k_c]
    near = {c: sorted(members[c], key=lambda r: -cosine(pool.vectors[r], query.vector)) for c in cohorts}
    assert list(graphwalker.anchors(pool, query)) == [row for c in cohorts for row in near[c][:k_a]]


def test_a_cohort_of_one_who_may_not_be_shown_is_passed_over() -> None:
    pool, [query, *_] = make_world(3, k_c=1)
    graph = pool.graph
    assert graph is not None
    alone = np.arange(len(graph.ids)) == 3  # the query's own earlier stay
    lonely = replace(graph, cohorts=alone.astype(np.int64), prototypes=np.stack([-query.vector, query.vector]))
    found = graphwalker.anchors(replace(pool, graph=lonely), query)
    assert 3 not in found and len(found) == pool.selector.k_a


def test_a_pool_smaller_than_k_is_refused_by_name() -> None:
    _pool, [query, *_] = make_world(0)
    with pytest.raises(BadInput, match=r"system\.k=31, but only 29 training patients may be shown to sample s900"):
        check_pool(int(query.allowed.sum()), 31, query.patient)


def test_copies_and_own_stays_are_not_allowed() -> None:
    pool, queries = make_world(0)
    assert np.flatnonzero(~queries[0].allowed).tolist() == [3]
    assert np.flatnonzero(~queries[1].allowed).tolist() == [4]
    assert allowed_for(queries[2].patient, pool.patients).all()


@given(st.integers(0, 10**6), st.floats(0.01, 100))
def test_time_series_likeness_does_not_depend_on_scale(seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(3, 2, (4, 3)), rng.normal(3, 2, (6, 3))
    a[rng.random(a.shape) < 0.3] = np.nan
    scaled = a * np.array([factor, 1.0, 2.0])
    value = time_series.likeness(a, b)
    assert time_series.likeness(scaled, b) == pytest.approx(value, abs=1e-9) and abs(value) <= 1 + 1e-12
    assert time_series.likeness(b, a) == pytest.approx(value, abs=1e-12)
    both = ~np.isnan(a)
    direct, places = 0.0, 0
    for f in range(3):
        x, y = a[both[:, f], f], b[:4][both[:, f], f]
        if len(x):
            direct += len(x) * float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
            places += len(x)
    assert value == pytest.approx(direct / places if places else 0.0, abs=1e-9)


def test_sets_are_judged_on_validation_patients_from_all_of_them() -> None:
    pool, _ = make_world(0, name="influence")
    many = replace(pool, valid=tuple(replace(pool.valid[0], subject_id=number) for number in range(200)))
    chosen = [patient.subject_id for patient in judges(many)]
    assert chosen == sorted(set(chosen)) and len(chosen) == MEASURED and chosen[-1] > 100
    assert [patient.subject_id for patient in judges(many)] == chosen and judges(pool) == pool.valid


def test_random_sets_are_fair_and_their_means_are_means() -> None:
    pool, _ = make_world(0)
    sets = random_sets(pool)
    counts = np.bincount([row for shots in sets for row in shots], minlength=len(pool.patients))
    assert len(sets) == 10 and counts.max() - counts.min() <= 1 and all(len(set(shots)) == 3 for shots in sets)
    values = np.arange(10.0)
    row = sets[5][0]
    inside = [v for shots, v in zip(sets, values, strict=True) if row in shots]
    outside = [v for shots, v in zip(sets, values, strict=True) if row not in shots]
    assert mean_with(sets, values, 30)[row] == np.mean(inside)
    assert mean_without(sets, values, 30)[row] == pytest.approx(np.mean(outside))
    assert np.isnan(mean_with(sets, values, 31)[30])


@pytest.mark.parametrize("effort", [4, 9, 26])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), utility=st.sampled_from(["entropy", "self_rated"]))
def test_nobody_spends_more_than_its_effort(seed: int, utility: str, name: str, effort: int) -> None:
    """All that is scored, a prompt with each label counted by itself; a walk alone, and what is shared, on average."""
    pool, queries = make_world(seed, name=name, utility=utility)
    own = replace(pool, effort=Effort(effort, effort * len(queries)))
    found, scorer = choose(own, queries, 3)
    check(own, queries, found)
    least = 2 * 3 * 2  # influence compares two sets, on three patients with two labels
    assert scorer.prompts <= max(effort * len(queries), least if name == "influence" else 0)
    assert all(selection.scored <= effort for selection in found)


def test_lms3_rejects_who_is_not_near(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, queries = make_world(0, name="lms3")
    assert max(len(selection.shots) for selection in choose(pool, queries, 4)[0]) <= 1  # 1% of 30 is one patient
    monkeypatch.setattr(lms3, "NEAREST", 1.0)
    assert all(len(selection.shots) == 3 for selection in choose(pool, queries, 4)[0])


RATINGS = [("7", 7), (" 10.", 10), ("11", 0), ("100", 0), ("very", 0), ("", 0), ("3/10", 3)]


@pytest.mark.parametrize("reply, rating", RATINGS)
def test_a_rating_that_cannot_be_read_is_none(reply: str, rating: int) -> None:
    assert graphwalker.rating(reply) == rating


def test_equal_values_go_to_the_lower_row_and_nan_to_nobody() -> None:
    values = np.array([1.0, np.nan, 2.0, 2.0, 2.0])
    assert best(values, np.array([True, True, False, True, True]), 3) == (3, 4, 0)
    assert best(values, np.ones(5, bool), 9) == (2, 3, 4, 0)
