"""Ceilings of the demo world against brute force and simulation."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.data.demo import World, ceilings, generate_world, story
from ghar.data.demo.ceilings import TASKS, acuity_law, label_law, prior_cdf, world_ceilings
from ghar.data.demo.simulate import draw_rare, simulate
from ghar.data.demo.story import draw_severities
from ghar.data.demo.vocabulary import load_vocabulary
from ghar.data.demo.world import _truth
from ghar.errors import BadInput


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> World:
    return generate_world(tmp_path_factory.mktemp("world") / "demo", seed=5, patients=400, labs_per_visit=1)


def test_noise_laws_are_laws():
    matrix = story.los_matrix()
    assert matrix.sum(axis=1) == pytest.approx(np.ones(10))
    assert matrix[4, 3:6] == pytest.approx([0.035, 0.93, 0.035])
    assert matrix[0, :2] == pytest.approx([0.965, 0.035]) and matrix[9, 8:] == pytest.approx([0.035, 0.965])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9), st.integers(0, 2), st.integers(0, 2), st.randoms(use_true_random=False))
def test_acuity_law_equals_counting_every_possible_draw(common: int, conditions: int, drugs: int, random):
    """Direct evaluation: all ordered pairs of distinct rare entities of the given kinds."""
    if conditions + drugs > 2:
        return
    n_conditions = story.N_RARE_CONDITIONS
    severity = np.array([random.randint(1, 9) for _ in range(n_conditions + story.N_RARE_DRUGS)])
    kinds = [severity[:n_conditions]] * conditions + [severity[n_conditions:]] * drugs
    rare = np.array([[0, 1][:conditions] + [n_conditions, n_conditions + 1][:drugs] + [-1] * (2 - len(kinds))])
    if not kinds:
        highest = np.zeros(1, dtype=int)
    elif len(kinds) == 1:
        highest = kinds[0]
    else:
        table = np.maximum.outer(kinds[0], kinds[1])
        same = conditions == 2 or drugs == 2
        highest = table[~np.eye(len(table), dtype=bool)] if same else table.ravel()
    expected = np.bincount(np.maximum(highest, common), minlength=10) / len(highest)
    law = acuity_law(np.array([common]), prior_cdf(severity, rare))
    assert law[0] == pytest.approx(expected)


def test_label_law_of_readmission_knows_that_the_patient_survived():
    law = np.zeros((1, 10))
    law[0, [0, 9]] = 0.5
    alive_low, alive_high = 0.99, 0.2
    expected = (alive_low * 0.07 + alive_high * 0.9) / (alive_low + alive_high)
    assert label_law(law, "read")[0, 1] == pytest.approx(expected)


def test_rare_pairs_are_distinct_and_uniform_per_kind():
    rare = draw_rare(np.random.default_rng(0), 60_000)
    both = rare[(rare >= 0).all(axis=1)]
    assert (both[:, 0] != both[:, 1]).all() and not ((rare[:, 0] < 0) & (rare[:, 1] >= 0)).any()
    first = rare[rare[:, 0] >= 0, 0]
    assert (first >= story.N_RARE_CONDITIONS).mean() == pytest.approx(0.25, abs=0.01)
    counts = np.bincount(first, minlength=story.N_RARE_CONDITIONS + story.N_RARE_DRUGS)
    assert counts.min() > 80 and (rare[:, 0] >= 0).mean() == pytest.approx(0.53, abs=0.01)


@pytest.fixture(scope="module")
def lives() -> tuple[pl.DataFrame, np.ndarray]:
    """(truth of 10,000 simulated patients, severities of the rare entities)."""
    vocabulary = load_vocabulary()
    severities = draw_severities(np.random.default_rng(1), vocabulary)
    truth = _truth(simulate(np.random.default_rng(2), vocabulary, severities, 0, 10_000))
    return truth, np.concatenate([severities.conditions[60:], severities.drugs[35:]])


@pytest.mark.parametrize("task", TASKS)
def test_ceilings_equal_the_accuracy_of_the_best_guesser_in_simulated_lives(
    lives: tuple[pl.DataFrame, np.ndarray], task: str
):
    """Guess what is most probable, and score against the labels that came out."""
    truth, rare = lives[0].filter(pl.col(task).is_not_null()), lives[1]
    labels = truth[task].to_numpy()
    numbers = truth.select("rare_1", "rare_2").fill_null(-1).to_numpy()
    blind = label_law(acuity_law(truth["common_acuity"].to_numpy(), prior_cdf(rare, numbers)), task).argmax(axis=1)
    knowing = label_law(np.eye(10)[truth["acuity"].to_numpy()], task).argmax(axis=1)
    found = world_ceilings(truth, rare, task)
    four_sigma = 4 * 0.5 / np.sqrt(len(labels))
    assert (blind == labels).mean() == pytest.approx(found.parametric, abs=four_sigma)
    assert (knowing == labels).mean() == pytest.approx(found.retrieval, abs=four_sigma)
    assert found.parametric < found.retrieval


def test_ceilings_of_named_visits_are_in_their_own_order_of_difficulty(demo: World):
    hard = demo.truth.filter(pl.col("needs_retrieval"))["visit_id"].to_list()
    easy = demo.truth.filter(~pl.col("needs_retrieval"))["visit_id"].to_list()
    without, needed = ceilings(demo.root, easy, "los"), ceilings(demo.root, hard, "los")
    assert without.parametric == pytest.approx(without.retrieval) and without.visits == len(easy)
    assert needed.parametric < 0.5 < 0.9 < needed.retrieval
    every = ceilings(demo.root, easy + hard, "los")
    assert every.parametric == pytest.approx(demo.manifest["ceilings"]["los"]["parametric"])


@pytest.mark.parametrize("task", TASKS)
def test_memory_lies_between_the_other_two(demo: World, task: str):
    labelled = demo.truth.filter(pl.col(task).is_not_null())
    test = labelled.filter(pl.col("subject_id") % 5 == 4)["visit_id"]
    train = demo.truth.filter(pl.col("subject_id") % 5 != 4)["visit_id"]
    nothing = ceilings(demo.root, test, task, seen=[])
    some = ceilings(demo.root, test, task, seen=train)
    assert nothing.memory == pytest.approx(nothing.parametric, abs=1e-3)  # two rare ones: with / without replacement
    assert some.parametric < some.memory < some.retrieval


def test_bad_requests(demo: World):
    last = demo.truth.filter(pl.col("read").is_null())["visit_id"][0]
    with pytest.raises(BadInput, match="no read label"):
        ceilings(demo.root, [last], "read")
    with pytest.raises(BadInput, match="no task 'mortality'"):
        ceilings(demo.root, [last], "mortality")
    with pytest.raises(BadInput, match="Visit 5 is not in"):
        ceilings(demo.root, [5], "los")
    with pytest.raises(BadInput, match="No visits"):
        ceilings(demo.root, [], "los")
