"""What is counted of a real model's decisions, and which systems and demos are played."""

from __future__ import annotations

from typing import Any

from benchmarks.real_decisions import DEMOS, GUARD, SYSTEMS, observed, real_decisions, summary
from ghar.envs.system import System


def turn(role: str, reply: str, format_ok: bool = True) -> dict[str, Any]:
    return {"role": role, "reply": reply, "format_ok": format_ok}


def row(subject: int, turns: list[dict[str, Any]], decisions: list[bool], **changes: Any) -> dict[str, Any]:
    own = {"subject_id": subject, "failure": None, "prediction": "yes", "lookups": []}
    turns = [*turns[:-1], {**turns[-1], "completed": True}]
    return {**own, "turns": turns, "decisions": decisions, **changes}


def test_decisions_are_counted_apart_from_free_replies() -> None:
    found = summary([
        row(1, [turn("retrieve", "yes"), turn("summarise", f"{GUARD}, it says"), turn("predict", "?", False)],
            [True, False, True], prediction=None, lookups=[{"found": []}, {"found": [{"text": "a"}]}]),
        row(2, [turn("think", "", False), turn("predict", "no")], [False, True], failure="it was cut"),
    ])  # fmt: skip
    assert found == {
        "patients": 2, "decisions": 3, "readable": 2, "unreadable by role": {"predict": 1},
        "chosen behind a reply that left it open, by role": {"predict": 2}, "free replies": 2,
        "unreadable free replies by role": {"think": 1}, "failed episodes": 1, "predictions missing": 1,
        "guard in a summary": 1, "guard in any reply": 1, "retrievals": 2, "empty retrievals": 1,
    }  # fmt: skip


def test_rows_of_before_say_in_a_column_which_decisions_were_chosen() -> None:
    old = row(1, [turn("retrieve", "yes"), turn("predict", "no")], [True, True], completed=[True, False])
    old["turns"][-1].pop("completed")
    assert summary([old])["chosen behind a reply that left it open, by role"] == {"retrieve": 1}


def test_the_patients_are_drawn(small_system: System[Any]) -> None:
    """The first ones of eICU are of few hospitals."""
    patients = list(dict.fromkeys(case.subject_id for case in small_system.cases.test))
    played = [[c.subject_id for c in observed(small_system, count, seed=0).cases.test] for count in (4, 8)]
    assert len(played[1]) == 8 and set(played[0]) < set(played[1])
    assert played[1] != patients[:8] and played[1] == sorted(played[1], key=patients.index)


def test_systems_and_demos_can_be_chosen_and_a_refusal_is_a_result(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GHAR_SHARED", str(tmp_path))  # no tables there
    found = real_decisions(tmp_path, ["system=exprag", "data=eicu"], share=0.1)
    assert list(found) == ["eicu exprag"] and "refused" in found["eicu exprag"]
    assert len(DEMOS) == 3 and {"ghar", "kare", "ehr_rag", "exprag", "graphwalker"} < set(SYSTEMS)
