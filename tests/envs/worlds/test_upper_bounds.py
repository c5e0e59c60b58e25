"""Ceilings of the demo world against brute force and simulation."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.worlds.severity import World, ceilings, generate_world, story
from ghar.envs.worlds.severity.simulate import NOBODY, draw_rare, simulate, tail_of
from ghar.envs.worlds.severity.story import draw_severities
from ghar.envs.worlds.severity.upper_bounds import TASKS, acuity_law, knowing, label_law, world_ceilings
from ghar.envs.worlds.severity.vocabulary import load_vocabulary
from ghar.envs.worlds.severity.world import _truth
from ghar.errors import BadInput


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> World:
    return generate_world(tmp_path_factory.mktemp("world") / "demo", seed=5, patients=400, labs_per_visit=1)


def test_noise_laws_are_laws():
    matrix = story.los_matrix()
    assert matrix.sum(axis=1) == pytest.approx(np.ones(10))
    assert matrix[4, 3:6] == pytest.approx([0.035, 0.93, 0.035])
    assert matrix[0, :2] == pytest.approx([0.965, 0.035]) and matrix[9, 8:] == pytest.approx([0.035, 0.965])


@settings(max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=6, max_size=6), st.integers(0, 9), st.data())
def test_what_is_known_of_a_visit_equals_counting_every_possible_draw(severity: list[int], common: int, data):
    """Direct evaluation: each entity that is not known is any of its kind with equal probability."""
    pair = data.draw(st.tuples(st.sampled_from([None, 0, 1, 2]), st.sampled_from([None, 3, 4, 5])))
    known = data.draw(st.tuples(st.booleans(), st.booleans()))
    kinds = severity[:3], severity[3:]
    possible = [
        [0] if number is None else [severity[number]] if knows else kind
        for number, knows, kind in zip(pair, known, kinds, strict=True)
    ]
    law = np.zeros(10)
    for one in possible[0]:
        for two in possible[1]:
            law[max(common, one, two)] += 1 / len(possible[0]) / len(possible[1])
    expected = (law @ story.los_matrix()).max()
    truth = pl.DataFrame({"common_acuity": [common], "rare_1": [pair[0]], "rare_2": [pair[1]], "los": [0]})
    truth = truth.with_columns(pl.col("rare_1", "rare_2").cast(pl.Int64))
    assert knowing(truth, np.array(severity), "los", np.array([known])) == pytest.approx(expected)


def test_label_law_of_readmission_knows_that_the_patient_survived():
    law = np.zeros((1, 10))
    law[0, [0, 9]] = 0.5
    alive_low, alive_high = 0.99, 0.2
    expected = (alive_low * 0.07 + alive_high * 0.9) / (alive_low + alive_high)
    assert label_law(law, "read")[0, 1] == pytest.approx(expected)


def test_the_tail_is_given_out_entity_by_entity():
    tail = tail_of(np.random.default_rng(0), 1000, 500, 3000, 9000, 0.25)
    given = np.zeros(2, dtype=np.int64)
    rare = draw_rare(np.random.default_rng(1), 900, tail, given)
    shown = story.patient_tail(3000, 0.25)
    for kind, share in enumerate((story.RARE_CONDITION, 0.25)):
        own = rare[rare[:, kind] != NOBODY, kind] - kind * 9000
        assert len(set(own)) == len(own) and int(shown / 3) <= own.min() < own.max() < shown / 2 + 1
        assert len(own) / 900 == pytest.approx(share, abs=0.05)


@pytest.fixture(scope="module")
def lives() -> tuple[pl.DataFrame, np.ndarray]:
    """(truth of 10,000 simulated patients, severities of the rare entities)."""
    size = story.whole_tail(10_000, story.TWO_STEPS)
    severities = draw_severities(np.random.default_rng(1), size)
    rng = np.random.default_rng(2)
    tail = tail_of(rng, 0, 10_000, 10_000, size, story.TWO_STEPS)
    truth = _truth(simulate(rng, load_vocabulary(size), severities, tail, 0, 10_000))
    return truth, severities.rare


@pytest.mark.parametrize("task", TASKS)
def test_ceilings_equal_the_accuracy_of_the_best_guesser_in_simulated_lives(
    lives: tuple[pl.DataFrame, np.ndarray], task: str
):
    """Guess what is most probable, and score against the labels that came out."""
    truth, rare = lives[0].filter(pl.col(task).is_not_null()), lives[1]
    labels = truth[task].to_numpy()
    at_most = (rare[:, None] <= np.arange(10)).reshape(2, -1, 10).mean(axis=1)
    cdf = [np.where(truth[f"rare_{k + 1}"].is_null().to_numpy()[:, None], 1, at_most[k]) for k in range(2)]
    blind = label_law(acuity_law(truth["common_acuity"].to_numpy(), cdf[0] * cdf[1]), task).argmax(axis=1)
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
def test_memory_of_the_training_patients_is_worth_next_to_nothing(demo: World, task: str):
    labelled = demo.truth.filter(pl.col(task).is_not_null())
    test = labelled.filter(pl.col("subject_id") % 5 == 4)["visit_id"]
    train = demo.truth.filter(pl.col("subject_id") % 5 != 4)["visit_id"]
    nothing = ceilings(demo.root, test, task, seen=[])
    some = ceilings(demo.root, test, task, seen=train)
    everything = ceilings(demo.root, test, task, seen=demo.truth["visit_id"])
    assert nothing.memory == pytest.approx(nothing.parametric)
    assert some.parametric - 1e-9 <= some.memory < some.parametric + 0.02
    assert some.memory < everything.memory < some.retrieval  # the bound does see what a memory would be worth


def test_the_share_of_two_steps_is_a_parameter(tmp_path: Path):
    assert generate_world(tmp_path / "none", seed=1, patients=80, two_steps=0).truth["rare_2"].is_null().all()
    every = generate_world(tmp_path / "all", seed=1, patients=80, two_steps=1).truth
    assert every["rare_2"].is_not_null().all() and set(every["look_ups"]) == {2, 3}


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
