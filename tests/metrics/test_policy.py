"""A policy's numbers come from its episode rows alone."""

import pytest

from ghar.errors import BadInput
from ghar.metrics.policy import compare, eval_metrics, policy_summary

LABELS = ("stays", "dies")


def episode(i, label, prediction, needs, retrieved, reward=1.0, ok=(True, True)):
    return {
        "sample_id": f"s{i}", "subject_id": i // 2, "label": label, "prediction": prediction,
        "correct": label == prediction, "needs_retrieval": needs, "retrieved": retrieved, "iterations": 2,
        "prompt_tokens": 90, "completion_tokens": 10, "seconds": 0.5, "reward": reward,
        "failure": None if prediction else "no_label", "turns": [{"format_ok": o} for o in ok],
    }  # fmt: skip


ROWS = [
    episode(0, "dies", "dies", True, True),
    episode(1, "dies", "stays", True, False),
    episode(2, "stays", "stays", False, False, ok=(True, False)),
    episode(3, "stays", None, None, True, reward=0.0),
]


def test_numbers_by_hand():
    got = policy_summary(ROWS, LABELS)
    values = {name: value[0] for name, value in got.items() if isinstance(value, list) and name != "confusion"}
    assert (got["n"], got["patients"], got["failures"]) == (4, 2, 1)
    assert got["confusion"] == [[1, 0, 1], [1, 1, 0]]
    assert values == pytest.approx({
        "accuracy": 0.5, "balanced_accuracy": 0.5, "macro_f1": (2 / 3 + 2 / 4) / 2, "sensitivity": 0.5,
        "specificity": 0.5, "reward": 0.75, "retrieval_rate": 0.5, "when_precision": 1.0, "when_recall": 0.5,
        "when_f1": 2 / 3, "iterations": 2.0, "tokens": 100.0, "seconds": 0.5, "format_errors": 1 / 8,
            "over_usual": 0.0, "ppv": 1.0, "npv": 0.5,
    })  # fmt: skip


def test_decisions_that_were_chosen_behind_open_words_are_counted_where_there_are_any():
    chosen = {**ROWS[0], "turns": [{"format_ok": True, "completed": True}, {"format_ok": True}]}
    assert policy_summary([chosen, *ROWS[1:]], LABELS)["completed_decisions"][0] == 1 / 8
    assert "completed_decisions" not in policy_summary(ROWS, LABELS)


def test_areas_rank_by_label_probabilities_where_rows_have_them():
    found = ([0.2, 0.8], [0.6, 0.4], [0.7, 0.3], None)  # of staying and of dying; the last one could not be read
    rows = [row | {"label_probabilities": p} for row, p in zip(ROWS, found, strict=True)]
    assert policy_summary(rows, LABELS)["auroc"][0] == pytest.approx(3 / 4)
    assert "auroc" not in policy_summary([row | {"label_probabilities": None} for row in ROWS], LABELS)


def test_as_a_metrics_row():
    row = eval_metrics({"n": 3, "confusion": [[1]], "reward": [0.5, 0.25, 0.75]})
    assert row == {"eval/reward": 0.5, "eval/reward_low": 0.25, "eval/reward_high": 0.75}


def test_comparison_pairs_by_sample_whatever_the_order():
    better = [row | {"correct": True, "reward": row["reward"] + 1} for row in ROWS]
    got = compare(better, ROWS[::-1])
    assert got["accuracy"][0] == pytest.approx(0.5) and got["reward"] == pytest.approx([1, 1, 1])
    for other in (ROWS[:3], [*ROWS[:3], ROWS[0]]):
        with pytest.raises(BadInput, match="same samples"):
            compare(ROWS, other)


def test_texts_are_the_same_answers_where_their_words_are():
    """All that were written have one label."""
    texts = [row | {"prediction": "written", "summary": f"text {i}"} for i, row in enumerate(ROWS)]
    others = [row | {"summary": "text 0"} for row in texts]
    assert compare(texts, texts)["same"] == 1 and compare(texts, others)["same"] == 1 / len(ROWS)


def test_a_main_metric_is_compared_where_all_rows_have_it():
    liked = [row | {"likeness": {"rouge_l": 0.1 * i}} for i, row in enumerate(ROWS)]
    better = [row | {"likeness": {"rouge_l": 0.1 * i + 0.25}} for i, row in enumerate(ROWS)]
    assert compare(better, liked[::-1], "rouge_l")["rouge_l"] == pytest.approx([0.25] * 3)
    assert set(compare(better, liked)) == set(compare(better, ROWS, "rouge_l")) == {"accuracy", "reward", "same"}


def test_unknown_label_and_no_rows():
    with pytest.raises(BadInput, match="sample s9 has label 'lives'"):
        policy_summary([episode(9, "lives", "dies", True, True)], LABELS)
    with pytest.raises(BadInput, match="no samples"):
        policy_summary([], LABELS)
