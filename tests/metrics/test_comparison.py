"""The table of several systems: its columns and differences are those of the task's main metric."""

from __future__ import annotations

from typing import Any

from ghar.metrics.comparison import columns_of, counted, page, table

CLASSES = ["accuracy", "balanced_accuracy", "macro_f1", "auroc"]
COSTS = ["calls", "tokens", "lookups", "seconds"]
LIKENESS = ["rouge_1", "rouge_l", "sari"]


def summary_of(samples: str, metric: str, **numbers: Any) -> dict[str, Any]:
    interval = [0.5, 0.4, 0.6]
    named = {} if metric == "accuracy" else {"metric": metric}
    return {
        **named, "experiment": "notes", "samples": 40, "patients": 20, "generated": False, "credentialed": False,
        "left_out": {}, "answered_by": {"a.lead": "rule", "b.lead": "rule"}, "ceilings": None, "split": "valid",
        "task": {"name": "x", "question": "What?", "labels": ["written"], "samples": samples},
        "policies": {name: {"accuracy": [1, 1, 1], metric: interval, **numbers} for name in ("a.lead", "b.lead")},
        "differences": {"a.lead - b.lead": {"accuracy": [0, 0, 0], metric: [-0.07, -0.09, -0.05]}},
    }  # fmt: skip


def test_texts_are_compared_by_their_metrics() -> None:
    own = {name: [0.25, 0.2, 0.3] for name in ("rouge_1", "sari")}
    summary = summary_of("texts", "rouge_l", **own, own_metrics=dict.fromkeys(LIKENESS, 40))
    assert list(columns_of(summary)) == ["rouge_l", "rouge_1", "sari", "accuracy", *COSTS]
    lines = table(summary).splitlines()
    assert lines[0] == "notes: 40 texts of 20 patients; intervals by resampling patients"
    assert lines[1].split() == ["system.variant", "ROUGE-L", "ROUGE-1", "SARI", "accuracy", "calls"]
    assert lines[2].endswith(" -") and "0.500 [0.400, 0.600]" in lines[2] and lines[4].endswith("answered by")
    assert "a.lead - b.lead: ROUGE-L -0.070 [-0.090, -0.050]" in lines and lines[5].endswith("rule")
    assert "<th>difference</th><th>ROUGE-L</th>" in (html := page(summary, {"a.lead": []}))
    assert "-0.070 [-0.090, -0.050]" in html and "<th>SARI</th>" in html and "macro-F1" not in html


def test_classes_are_compared_by_accuracy() -> None:
    summary = summary_of("stays", "accuracy")
    assert list(columns_of(summary)) == [*CLASSES, *COSTS] and counted(summary) == "40 samples of 20 patients"
    lines = table(summary).splitlines()
    head = ["system.variant", "accuracy", "macro-F1", "calls", "tokens", "retrievals", "answered", "by"]
    assert lines[1].split() == head
    assert "a.lead - b.lead: accuracy -0.070 [-0.090, -0.050]" in lines
    summary["policies"]["a.lead"] |= {"own_metrics": {"grounded": 40}, "grounded": [0.1, 0.0, 0.2]}
    assert list(columns_of(summary)) == [*CLASSES, "grounded", *COSTS]


def test_questions_are_counted_without_patients() -> None:
    summary = summary_of("questions", "accuracy")
    lines = table(summary).splitlines()
    assert lines[0] == "notes: 40 questions; intervals by resampling questions" and "validation questions" in lines[-1]
    assert "one split by question" in page(summary, {"a.lead": []})
