"""The table of severities: it finds those of a world in which the worst one decides."""

from __future__ import annotations

import numpy as np
import pytest

from ghar.envs.baselines.features import encode_presence, labels_of, vocabulary
from ghar.envs.baselines.severities import climb, first_table, fit_severities, grades_of, law_of
from tests.envs.baselines.conftest import CODES, GRADES, known_of, sample, world


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_severities_of_a_world_are_recovered(severity: np.ndarray, noise: float):
    model = fit_severities(known_of(severity, noise, count=1_500))
    found = np.array([model.table[model.place[f"c{code}"]] for code in range(CODES)])
    assert model.about["visits"] == "newest"
    np.testing.assert_array_equal(found, severity)
    test = world(400, 0.0, 50_000, severity)
    assert (model(test).argmax(axis=1) == labels_of(test)).mean() == 1.0


def test_for_two_labels_a_code_is_on_one_side_of_the_threshold(severity: np.ndarray):
    model = fit_severities(known_of(severity, 0.1, labels=2, count=1_000))
    found = np.array([model.table[model.place[f"c{code}"]] for code in range(CODES)])
    np.testing.assert_array_equal(found, severity >= GRADES // 2)


def test_no_single_change_of_a_code_makes_the_training_labels_more_probable(severity: np.ndarray):
    known = known_of(severity, 0.3, count=150)
    codes = encode_presence(known.train, vocabulary(known.train), "newest")
    table, law = climb(codes, known.labels, first_table(codes, known.labels, None), GRADES, 50)
    reached = told(codes, known.labels, table, law)
    for code in range(len(table)):
        for other in range(GRADES):
            changed = table.copy()
            changed[code] = other
            assert told(codes, known.labels, changed, law) <= reached + 1e-9


def told(codes, labels, table, law) -> float:
    return float(np.log(law[grades_of(codes, table), labels]).sum())


def test_grades_and_laws_of_samples_written_down():
    samples = [sample(1, [["a"], ["b", "c"]], 1), sample(2, [[]], 0), sample(3, [["c", "unknown"]], 2)]
    place = {"a": 0, "b": 1, "c": 2}
    table = np.array([2, 1, 0])
    assert grades_of(encode_presence(samples, place, "newest"), table).tolist() == [1, 0, 0]
    assert grades_of(encode_presence(samples, place, "all"), table).tolist() == [2, 0, 0]
    law = law_of(np.array([0, 0, 1]), np.array([0, 0, 0]), 2)
    np.testing.assert_allclose(law, [[(2 + 4.75) / 7, 0.25 / 7], [(1 + 0.25) / 6, 4.75 / 6]])
