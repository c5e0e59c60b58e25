"""Every interval is over patients: whole patients are drawn, their samples say no more than they know."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.exprag.numbers import compare_questions, question_summary
from ghar.envs.exprag.rankers import agreement
from ghar.envs.graphwalker.text_metrics import text_scores
from ghar.errors import BadInput
from ghar.metrics.bootstrap import mean_interval, paired_difference, ratio_interval, resample_weights
from ghar.metrics.clinical import length_of_stay, risk
from ghar.metrics.policy import compare, policy_summary, when_to_retrieve
from ghar.metrics.scores import class_f1, classification, set_scores

DRAW: dict[str, Any] = {"seed": 3, "resamples": 40}
clusters = st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9).map(float)), min_size=1, max_size=12)


def draws_of_patients(names: list[Hashable], resamples: int, seed: int) -> list[list[int]]:
    """Slow and direct: draw as many patients as there are, and take all rows of each as often as it was drawn."""
    people, rng, found = list(dict.fromkeys(names)), np.random.default_rng(seed), []
    for drawn in rng.integers(0, len(people), (resamples, len(people))):
        found.append([row for who in drawn for row, name in enumerate(names) if name == people[who]])
    return found


@settings(max_examples=60)
@given(clusters)
def test_means_ratios_and_differences_equal_a_direct_loop(rows: list[tuple[int, float]]) -> None:
    names, values = [str(name) for name, _ in rows], np.array([value for _, value in rows])
    sizes, other = np.arange(1.0, len(rows) + 1), values[::-1] / 2
    drawn = draws_of_patients(list(names), 40, 3)
    for found, each in (
        (mean_interval(values, patients=names, **DRAW), [values[d].mean() for d in drawn]),
        (ratio_interval(values, sizes, patients=names, **DRAW), [values[d].sum() / sizes[d].sum() for d in drawn]),
        (paired_difference(values, other, patients=names, **DRAW), [(values[d] - other[d]).mean() for d in drawn]),
    ):
        assert found is not None
        assert (found.low, found.high) == pytest.approx(tuple(np.percentile(each, [2.5, 97.5])), abs=1e-9)


def test_one_sample_a_patient_draws_as_without_patients() -> None:
    """The draws of before patients were known: the same generator, the same order."""
    old = np.stack([np.bincount(d, minlength=9) for d in np.random.default_rng(7).integers(0, 9, (30, 9))])
    for patients in (None, list("abcdefghi"), [*range(8), "8"]):
        assert np.array_equal(np.concatenate(list(resample_weights(9, 30, 7, patients))), old)


def test_numbers_of_one_sample_a_patient_stay_what_they_were() -> None:
    """Written down with the code of commit c529663, which drew samples."""
    rng = np.random.default_rng(11)
    labels, said, scores = rng.integers(0, 3, 30).tolist(), rng.integers(0, 3, 30).tolist(), rng.dirichlet([1] * 3, 30)
    found = classification(labels, said, 3, scores, patients=list(range(30)), seed=5, resamples=200)
    got = [found[name].as_list() for name in ("accuracy", "macro_f1", "auroc")]
    assert got == [pytest.approx(row, rel=1e-12) for row in BEFORE]


BEFORE = [
    [0.4666666666666667, 0.2991666666666667, 0.6333333333333333],
    [0.4420634920634921, 0.26024375329842087, 0.5742349317349318],
    [0.4497354497354497, 0.24905340608465612, 0.6232277663856612],
]


def episode(i: int, who: Hashable, copy: int = 0) -> dict[str, Any]:
    label = "ab"[i % 2]
    return {
        "sample_id": f"{i}/{copy}", "subject_id": who, "label": label, "prediction": label if i % 3 > 0 else "b",
        "correct": i % 3 > 0 or i % 2 == 1, "needs_retrieval": i % 2 == 0, "retrieved": i % 5 > 1, "iterations": i % 4,
        "prompt_tokens": 10 * i, "completion_tokens": 3, "seconds": 0.1 * i, "reward": float(i % 7), "failure": None,
        "label_probabilities": [0.1 + 0.02 * i, 0.9 - 0.02 * i], "scores": set_scores(3, 1 + i % 3), "errors": [],
        "turns": [{"format_ok": i % 6 > 0}] * (1 + i % 2),
    }  # fmt: skip


def episodes(at: list[int], who: list[Hashable]) -> list[dict[str, Any]]:
    return [episode(i, patient, copy) for copy, (i, patient) in enumerate(zip(at, who, strict=True))]


def numbers(found: Any) -> list[float]:
    """All numbers of a result, in order."""
    if hasattr(found, "as_list"):
        return found.as_list()
    if isinstance(found, dict):
        return [x for name, part in found.items() if name not in ("n", "confusion", "answers") for x in numbers(part)]
    return [float(found)] if isinstance(found, int | float) else [float(x) for x in found]


N = 24
FUNCTIONS: dict[str, Callable[[list[int], list[Hashable]], Any]] = {
    "classification": lambda at, who: classification(
        [i % 2 for i in at], [i % 3 % 2 for i in at], 2, np.array([[i % 7, 7 - i % 7] for i in at]) / 7, patients=who,
        **DRAW,
    ),
    "class_f1": lambda at, who: class_f1([i % 3 for i in at], [i % 4 % 3 for i in at], 3, patients=who, **DRAW),
    "risk": lambda at, who: risk([i % 2 for i in at], [i % 5 / 5 for i in at], 0.5, patients=who, **DRAW),
    "length_of_stay": lambda at, who: length_of_stay(
        [i % 3 for i in at], [[i % 5 / 9, i % 4 / 9, i % 7 / 9] for i in at], 3, patients=who, **DRAW
    ),
    "when_to_retrieve": lambda at, who: when_to_retrieve(
        [[(i % 2 == 0, i % 3 == 0)] for i in at], patients=who, **DRAW
    ),
    "text_scores": lambda at, who: text_scores(
        ["a b c d e"[: 1 + i % 9] for i in at], ["a b x d e"] * len(at), patients=who, **DRAW
    ),
    "agreement": lambda at, who: agreement(
        {"x": [[1, 2, 3 + i % 4] for i in at]}, [[i % 3, 1, 2.5] for i in at], patients=who, **DRAW
    ),
    "policy_summary": lambda at, who: policy_summary(
        episodes(at, who), ("a", "b"), **DRAW
    ),
    "question_summary": lambda at, who: question_summary(
        episodes(at, who), **DRAW
    ),
    "compare": lambda at, who: compare(
        episodes(at, who), [row | {"correct": row["iterations"] > 0, "reward": 1.0} for row in episodes(at, who)],
        **DRAW,
    ),
    "compare_questions": lambda at, who: compare_questions(
        episodes(at, who), [row | {"correct": row["iterations"] > 0} for row in episodes(at, who)],
        **DRAW,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_more_equal_samples_of_the_same_patients_say_no_more(name: str) -> None:
    """Five copies of every sample: the numbers and their intervals do not change where the patients are known."""
    call = FUNCTIONS[name]
    once = call(list(range(N)), [f"p{i}" for i in range(N)])
    often = [i for i in range(N) for _ in range(5)]
    assert numbers(call(often, [f"p{i}" for i in often])) == pytest.approx(numbers(once))


def test_clustered_data_widen_the_interval() -> None:
    """55 stays of 20 patients, of whom a few have most: a difference by stay that is none by patient."""
    rng = np.random.default_rng(2)
    who = np.repeat(np.arange(20), [12, 10, 6, *[2] * 10, *[1] * 7])
    gain = rng.normal(0.1, 0.4, 20)[who] + rng.normal(0, 0.05, 55)
    by_stay, by_patient = (paired_difference(gain, 0 * gain, patients=p) for p in (None, who.tolist()))
    assert by_stay.value == by_patient.value
    assert by_patient.high - by_patient.low > 1.5 * (by_stay.high - by_stay.low)


def test_coverage_of_clustered_studies() -> None:
    """Of 200 simulated studies (50 patients with 1 to 9 stays each) 90 to 98% hold the truth; by stay far fewer."""
    rng, hits = np.random.default_rng(4), {"patients": 0, "stays": 0}
    for study in range(200):
        who = np.repeat(np.arange(50), rng.integers(1, 10, 50))
        values = 2 + rng.normal(0, 1, 50)[who] + rng.normal(0, 0.5, len(who))
        for name, patients in (("patients", who.tolist()), ("stays", None)):
            found = mean_interval(values, patients=patients, seed=study, resamples=300)
            hits[name] += found.low <= 2 <= found.high
    assert 0.90 <= hits["patients"] / 200 <= 0.98 and hits["stays"] / 200 < 0.8


def test_a_patient_for_every_sample() -> None:
    with pytest.raises(ValueError, match="3 samples and 2 patients"):
        mean_interval([1, 2, 3], patients=["a", "b"])
    row = episode(1, "a")
    for subject in ({}, {"subject_id": None}):
        bad = {name: value for name, value in row.items() if name != "subject_id"} | subject
        for call in (
            lambda bad=bad: policy_summary([row, bad], ("a", "b")),
            lambda bad=bad: question_summary([bad], seed=0, resamples=9),
            lambda bad=bad: compare([bad], [bad]),
        ):
            with pytest.raises(BadInput, match="has no subject_id"):
                call()
    found = policy_summary([episode(i, "ab"[i % 2]) for i in range(6)], ("a", "b"), resamples=9)
    assert (found["n"], found["patients"]) == (6, 2)
