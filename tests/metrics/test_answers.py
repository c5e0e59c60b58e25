"""Verdicts on answers: each of twelve degenerate policies turns one red, and a sound policy none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ghar.metrics.answers import FEWEST, answer_counts
from ghar.metrics.health import as_json, outcome, verdicts
from ghar.metrics.policy import compare, eval_metrics, policy_summary
from ghar.metrics.style import ReportStyle
from ghar.trainers.evaluation.report import table

LABELS = ("no", "yes")
Row = dict[str, Any]
N = 400


def sound(n: int = N, positives: float = 0.4, seed: int = 0) -> list[Row]:
    """Rows of a policy that is right in 85%, with probabilities that rank, and evidence where it is needed."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for i in range(n):
        label, right, needs = int(rng.random() < positives), rng.random() < 0.85, bool(rng.random() < 0.5)
        answer = label if right else 1 - label
        found = [{"text": f"passage {rng.integers(50)}", "shown": True}]
        risk = 0.85 if answer else 0.15
        rows.append({
            "sample_id": f"s{i}", "subject_id": i, "label": LABELS[label], "prediction": LABELS[answer],
            "correct": right, "label_probabilities": [1 - risk, risk], "needs_retrieval": needs, "retrieved": needs,
            "iterations": 1, "prompt_tokens": 100, "completion_tokens": 5, "seconds": 0.1, "reward": float(right),
            "failure": None, "turns": [{"format_ok": True}], "lookups": [{"query": "q", "found": found}] * needs,
        })  # fmt: skip
    return rows


def answered(rows: list[Row], answer: Callable[[int, Row], int | None]) -> list[Row]:
    """The rows with other answers, and probabilities that follow them."""
    changed = []
    for i, row in enumerate(rows):
        guess = answer(i, row)
        own = None if guess is None else LABELS[guess]
        risk = 0.5 if guess is None else 0.15 + 0.7 * guess
        right = own == row["label"]
        changed.append({**row, "prediction": own, "correct": right, "label_probabilities": [1 - risk, risk]})
    return changed


def judged(rows: list[Row], rival: list[Row] | None = None, **more: Any) -> dict[str, str]:
    """{subject: state} of the main policy, beside a rival of the same weights that never retrieves."""
    rival = without_retrieval(sound(len(rows), seed=1), rows) if rival is None else rival
    summary = {
        "task": {"labels": list(LABELS)}, "answered_by": {"main": "trained", "rival": "trained"},
        "policies": {n: policy_summary(r, LABELS, resamples=300) for n, r in (("main", rows), ("rival", rival))},
        "differences": {"main - rival": compare(rows, rival, resamples=300)},
    }  # fmt: skip
    summary["audit"] = {"used": "strict", "modes": {"strict": {"leak_score": 0.0}}}
    summary |= more
    found = {v.about: v.state for v in verdicts(summary, [], "main")}
    found["outcome"] = outcome(summary, ReportStyle(main="main"), "main")[0][1]
    return found


def without_retrieval(rows: list[Row], like: list[Row]) -> list[Row]:
    """Rows of the samples of `like` that never retrieve."""
    kept = ("sample_id", "subject_id", "label", "needs_retrieval")
    found = [{**row, **{k: other[k] for k in kept}, "retrieved": False, "lookups": []}
             for row, other in zip(rows, like, strict=True)]  # fmt: skip
    return [{**row, "correct": row["prediction"] == row["label"]} for row in found]


def test_a_sound_policy_is_green() -> None:
    found = judged(sound())
    assert set(found.values()) == {"good"}, found


def coin(i: int, row: Row) -> int:
    """An answer that has nothing to do with the patient."""
    return int(np.random.default_rng(i).random() < 0.5)


def silent(rows: list[Row]) -> list[Row]:
    return [{**row, "turns": [{"format_ok": False}]} for row in answered(rows, lambda i, row: None)]


DEGENERATE: dict[str, tuple[Callable[[], list[Row]], str]] = {
    "one label for all": (lambda: answered(sound(), lambda i, row: 0), "answers"),
    "one label for all but one": (lambda: answered(sound(), lambda i, row: int(i == 7)), "answers"),
    "a coin": (lambda: answered(sound(), coin), "AUROC"),
    "always the rare label": (lambda: answered(sound(positives=0.1), lambda i, row: 1), "usual label"),
    "the opposite": (lambda: answered(sound(), lambda i, row: 1 - LABELS.index(row["label"])), "usual label"),
    "the same probability for all": (
        lambda: [{**row, "label_probabilities": [0.6, 0.4]} for row in sound()], "AUROC"),
    "no readable reply": (lambda: silent(sound()), "answers"),
    "one reply of ten unreadable": (
        lambda: answered(sound(), lambda i, row: None if i % 10 == 0 else LABELS.index(row["label"])), "no answer"),
    "never retrieves": (lambda: [{**row, "retrieved": False, "lookups": []} for row in sound()], "retrieval"),
    "retrieves nothing": (
        lambda: [{**row, "lookups": [{"query": "q", "found": []}] * row["retrieved"]} for row in sound()], "retrieval"),
    "one passage for all": (
        lambda: [{**row, "lookups": [{"query": "q", "found": [{"text": "x", "shown": True}]}] * row["retrieved"]}
                 for row in sound()], "retrieval"),
    "twelve patients": (lambda: sound(12), "patients"),
    "one positive patient": (lambda: answered_truly(200, 1), "patients"),
    "one positive patient, ranked first": (lambda: answered_truly(200, 1), "AUROC"),
}  # fmt: skip


def answered_truly(n: int, positives: int) -> list[Row]:
    """Right in every sample, with so many positive patients."""
    rows = [{**row, "label": LABELS[int(i < positives)]} for i, row in enumerate(sound(n))]
    return answered(rows, lambda i, row: LABELS.index(row["label"]))


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_degenerate_policy_turns_a_verdict_red(name: str) -> None:
    make, about = DEGENERATE[name]
    found = judged(make())
    assert found[about] == "bad", found
    if about in ("answers", "usual label", "patients"):
        assert found["outcome"] != "good", found


def test_retrieval_that_changes_nothing_is_red() -> None:
    rows = sound()
    assert judged(rows, without_retrieval(rows, rows))["retrieval"] == "bad"


def test_a_rival_without_readable_answers_is_no_rival() -> None:
    rows = sound()
    assert judged(rows, silent(without_retrieval(sound(seed=1), rows)))["outcome"] == "doubtful"


def test_collapsed_answers_with_probabilities_that_rank_are_doubtful() -> None:
    rows = [{**row, "prediction": "no", "correct": row["label"] == "no"} for row in sound(positives=0.2)]
    found = judged(rows)
    assert found["answers"] == "doubtful" and found["usual label"] == "doubtful" and found["AUROC"] == "good"


def test_a_number_of_one_patient_has_no_interval() -> None:
    summary = policy_summary(answered_truly(60, 1), LABELS, resamples=100)
    assert summary["auroc"] == [1.0, None, None] and summary["sensitivity"] == [1.0, None, None]
    assert summary["too_few"]["auroc"] == "1 patient with label yes" and summary["specificity"][1] is not None
    assert "eval/auroc_low" not in eval_metrics(summary) and "eval/auroc" in eval_metrics(summary)
    assert "too_few" not in policy_summary(answered_truly(60, FEWEST), LABELS, resamples=100)
    printed = table({"policies": {"main": summary}, "generated": False})
    assert printed.splitlines()[1].count("too few") == 2 and printed.count("1.000 [1.000, 1.000]") == 2  # accuracy, F1


def test_calibration_is_not_green_where_probabilities_tell_nothing() -> None:
    rows = [{**row, "label_probabilities": [0.6, 0.4]} for row in sound()]
    assert judged(rows)["calibration"] == "doubtful" and judged(sound())["calibration"] == "good"


def test_counts_of_answers_count_patients_not_samples() -> None:
    rows = [{**row, "subject_id": i // 4} for i, row in enumerate(answered_truly(40, 6))]
    counts = answer_counts(rows)
    assert counts["label_patients"] == {"no": 9, "yes": 2} and counts["other_patients"] == 2
    assert counts["usual"] == "no"


def test_the_policy_after_sft_is_named_where_no_update_was_better() -> None:
    summary = {
        "answered_by": {"rl": "trained", "sft": "sft"}, "weights_step": 0,
        "policies": {"rl": {"patients": 400}, "sft": {}},
        "differences": {"rl - sft": {"accuracy": [0.0, 0.0, 0.0]}},
    }  # fmt: skip
    rows = [{"phase": "rl", "step": s, "train/kl/reference": 0.5 * s} for s in range(4)]
    found = {v.about: v for v in verdicts(summary, rows, "rl")}
    assert found["checkpoint"].state == "doubtful" and "after SFT" in found["checkpoint"].sentence
    assert found["KL"].sentence.startswith("0 nats")
    words = outcome(summary, ReportStyle(before="sft", titles={"sft": "GHAR after SFT"}), "rl")[0]
    assert words[1] == "doubtful" and "the same weights as GHAR after SFT" in words[2]
    at_two = {v.about: v for v in verdicts(summary | {"weights_step": 2}, rows, "rl")}
    assert "update 2 of 3" in at_two["checkpoint"].sentence and at_two["KL"].sentence.startswith("0.7500")
    assert {"about": "KL", "state": "doubtful", "sentence": at_two["KL"].sentence} in as_json(list(at_two.values()))
