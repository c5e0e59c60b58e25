"""GHAR's teacher over KARE's communities plays what it played at commit a156ecb."""

from __future__ import annotations

from pathlib import Path

from tests.envs.golden import fingerprint, played, recorded, system_of


def test_the_teacher_over_communities_plays_as_before(tmp_path: Path) -> None:
    [group] = recorded("ghar_communities")
    own = ("system=ghar_communities", "data.patients=150", f"data.cache={tmp_path}", "task.max_test=12")
    system, wanted = system_of(*own), group["variants"]["scripted_none"]
    assert [case.sample_id for case in system.cases.test] == group["samples"]
    episodes = played(system, "scripted", *own)
    rewards = [system.reward(e, case) for e, case in zip(episodes, system.cases.test, strict=True)]
    assert [e.prediction.label for e in episodes] == wanted["predictions"]
    assert [round(r.total, 9) for r in rewards] == wanted["rewards"]
    assert [fingerprint(e)[:8] for e in episodes] == wanted["episodes"]
    kinds = {p.kind for e in episodes for r in e.trace for p in getattr(r.result, "passages", ())}
    assert kinds == {"community"}
