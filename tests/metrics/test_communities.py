"""KARE's part of the report: which patient, why its communities, and the price of what was built."""

from __future__ import annotations

from typing import Any

from ghar.metrics.communities import section

FACTORS = {
    "direct_hits": 2, "indirect_hits": 1, "hits": 0.5, "decay": 0.7, "coherence": 1.1, "recency": 1.2, "theme": 1.05,
    "relevance": 0.4851,
}  # fmt: skip


def row(sample_id: str, correct: bool = True, chain: str = "because", found: bool = True) -> dict[str, Any]:
    community = {"kind": "community", "ident": 4, "score": 0.4851, "text": "sepsis is grave", "names": ["sepsis"],
                 "size": 3, "shown": True, "factors": FACTORS}  # fmt: skip
    abstract = {"kind": "abstract", "ident": 1, "score": 0.2, "text": "on gout", "shown": True}
    return {
        "sample_id": sample_id, "patient": "a patient", "similar": "another\noutcome: no", "label": "yes",
        "prediction": "yes" if correct else None, "correct": correct, "chain": chain,
        "found": [community] if found else [abstract],
    }  # fmt: skip


SUMMARY = {
    "system": "kare",
    "build": {"graphs": {"concepts": 1200, "without_node": ["a", "b"], "asked": {"model": {"asked": 3}}}},
    "policies": {"kare": {"errors": {"no_label": 1}, "found": 9, "cut": 2, "shortened": 1}},
    "guidelines": {"coagent": {"advice": "1. Look."}},
}


def test_the_patient_shown_was_answered_rightly_with_communities_and_a_chain() -> None:
    rows = [row("a", correct=False), row("b", chain=""), row("c", found=False), row("d"), row("e")]
    shown = section({"rag": [row("d", found=False)], "kare": rows}, SUMMARY)
    assert shown is not None and (shown["policy"], shown["sample_id"]) == ("kare", "d")
    assert [community["factors"]["decay"] for community in shown["found"]] == [0.7]
    assert {name for name, *_ in shown["answers"]} == {"rag", "kare"}
    assert shown["build"] == [("graphs", [("concepts", "1,200"), ("without node", "2"), ("asked: model: asked", "3")])]
    assert shown["guidelines"] == {"coagent": "1. Look."} and shown["errors"] == {"kare": {"no_label": 1}}
    assert shown["room"] == {"kare": (9, 2, 1)}


def test_nothing_to_show() -> None:
    assert section({"kare": [row("a")]}, {"system": "exprag"}) is None
    alone = section({"zero_shot": [row("a", found=False)]}, SUMMARY)
    assert alone is not None and alone["patient"] is None and alone["build"]
