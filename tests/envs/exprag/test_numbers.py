"""Numbers of questions with options as sets; agreement of rankers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from ghar.envs.exprag.numbers import compare_questions, question_summary
from ghar.envs.exprag.rankers import agreement, correlations
from ghar.errors import BadInput
from ghar.metrics.scores import set_scores


@given(st.integers(1, 255), st.one_of(st.none(), st.integers(0, 255)))
def test_scores_are_those_of_sets(answer: int, chosen: int | None) -> None:
    right, said = ({i for i in range(8) if value >> i & 1} for value in (answer, chosen or 0))
    found = set_scores(answer, chosen)
    assert found["f1"] == pytest.approx(2 * len(right & said) / (len(right) + len(said)))
    assert found["recall"] == len(right & said) / len(right)
    assert found["precision"] == (len(right & said) / len(said) if said else 0)


def row(name: str, answer: int, chosen: int | None, errors: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {
        "sample_id": name, "subject_id": name, "correct": chosen == answer, "scores": set_scores(answer, chosen),
        "errors": list(errors), "turns": [{}], "retrieved": True, "prompt_tokens": 10, "completion_tokens": 2,
        "seconds": 0.5, "failure": None, **more,
    }  # fmt: skip


def test_a_summary_counts_errors_by_name() -> None:
    rows = [row("a", 3, 3), row("b", 3, 1), row("c", 3, None, ("unknown_option",)), row("d", 3, None, ("empty",))]
    found = question_summary(rows, seed=0, resamples=100)
    assert found["accuracy"][0] == 0.25 and found["errors"] == {"empty": 1, "unknown_option": 1}
    assert found["f1"][0] == pytest.approx((1 + 2 / 3) / 4) and found["format_errors"][0] == 0.5
    assert found["accuracy"][1] <= 0.25 <= found["accuracy"][2] and found["tokens"][0] == 12
    with pytest.raises(BadInput, match="no questions"):
        question_summary([], seed=0, resamples=10)


def test_a_difference_is_paired_by_question() -> None:
    one, two = [row("a", 3, 3), row("b", 3, 1)], [row("b", 3, 1), row("a", 3, None)]
    found = compare_questions(one, two, seed=0, resamples=50)
    assert found["accuracy"][0] == 0.5 and found["f1"][0] == 0.5


numbers = st.lists(st.integers(0, 5).map(float), min_size=2, max_size=9)


@pytest.mark.slow
@given(numbers, st.data())
def test_correlations_are_those_of_the_definitions(one: list[float], data: st.DataObject) -> None:
    two = data.draw(st.lists(st.integers(0, 5).map(float), min_size=len(one), max_size=len(one)))
    found = correlations(one, two)
    if np.ptp(one) == 0 or np.ptp(two) == 0:
        assert found is None
        return
    assert found is not None
    for value, (x, y) in zip(found, ((one, two), (rankdata(one), rankdata(two))), strict=True):
        a, b = np.asarray(x) - np.mean(x), np.asarray(y) - np.mean(y)
        assert value == pytest.approx((a @ b) / np.sqrt((a @ a) * (b @ b)), abs=1e-9)


def test_agreement_leaves_out_patients_without_a_spread() -> None:
    judged = [[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]]
    found = agreement({"same": judged, "flat": [[1, 1, 1], [2, 2, 2]]}, judged, patients=[7, 8], seed=0, resamples=20)
    assert list(found) == ["same"] and found["same"]["patients"] == found["same"]["n"] == 1
    assert found["same"]["pearson"][0] == pytest.approx(1.0)
