"""EHR-RAG's part of the report: which patient, what is marked as used, and charts that carry their facts."""

from __future__ import annotations

from typing import Any

from ghar.metrics.lookups import section, timeline


def passage(last: str, used: dict[str, list[str]]) -> dict[str, Any]:
    text = f"[{last}] drug - heparin"
    return {"kind": "chunks", "ident": 0, "score": 0.5, "first": "2140-01-01 00:00:00", "last": last, "text": text,
            "used": used}  # fmt: skip


def row(sample_id: str, correct: bool, used: dict[str, list[str]], found: bool = True) -> dict[str, Any]:
    lookups = [{"path": side, "step": 0, "query": f"query {side}",
                "passages": [passage("2150-01-01 00:00:00", used)] if found else []}
               for side in ("numbers", "support", "oppose")]  # fmt: skip
    return {
        "sample_id": sample_id, "patient": "a patient", "label": "yes", "prediction": "yes" if correct else None,
        "correct": correct, "prediction_time": "2150-02-01 00:00:00", "lookups": lookups,
        "arguments": {"support": "heparin was given", "oppose": "weak"},
    }  # fmt: skip


SUMMARY = {
    "system": "ehr_rag",
    "policies": {"ehr_rag": {"class_f1": {"yes": [0.5, 0.4, 0.6]}, "errors": {"outside_labels": 2}}},
    "shots": {"counts": {s: {"macro_f1": [0.5, 0.4, 0.6]} for s in ("1", "2", "all")}},
}


def test_the_patient_shown_is_one_whose_arguments_used_what_was_found() -> None:
    both = {"support": ["heparin"], "oppose": ["heparin"]}
    rows = [row("a", True, {}), row("b", False, both), row("c", True, both), row("d", True, both)]
    shown = section({"ehr_rag": rows}, SUMMARY)
    assert shown is not None and shown["sample_id"] == "c"
    assert [lookup["path"] for lookup in shown["lookups"]] == ["measurements", "for the outcome", "against the outcome"]
    used = shown["lookups"][0]["passages"][0]["used"]
    assert used == {"for the outcome": ["heparin"], "against the outcome": ["heparin"]}
    assert shown["errors"] == {"ehr_rag": {"outside_labels": 2}} and "training samples" in shown["shots"]


def test_nothing_to_show() -> None:
    assert section({"ghar_rl": [row("a", True, {})]}, {"policies": {}}) is None
    assert section({"ehr_rag": [row("a", True, {}, found=False)]}, {**SUMMARY, "shots": {}}) is None
    alone = section({"counts": []}, SUMMARY)
    assert alone is not None and alone["policy"] is None


def test_the_timeline_names_paths_and_times() -> None:
    svg = timeline(row("a", True, {"support": ["heparin"]}))
    for name in ("measurements, 1", "for the outcome, 1", "against the outcome, 1", "10 years", "30 days"):
        assert name in svg
    assert svg == timeline(row("a", True, {"support": ["heparin"]}))
