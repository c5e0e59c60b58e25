"""GHAR plays what it played at commit a156ecb, before systems became one noun."""

from pathlib import Path

import pytest

from tests.envs.golden import fingerprint, played, recorded, system_of

GROUPS = {group["task"]: group for group in recorded("ghar")}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("task", GROUPS)
def test_the_scripted_teacher_and_its_ablations_play_as_before(task: str, cache: Path):
    group, own = GROUPS[task], (f"task={task}", "data.patients=150", f"data.cache={cache}", "task.max_test=12")
    own += ("system.grounding=0", "system.repeats=0")  # what has been charged for since
    system = system_of(*own)
    assert [case.sample_id for case in system.cases.test] == group["samples"]
    for before, wanted in group["variants"].items():
        name = "scripted" if before == "scripted_none" else before
        episodes = played(system, name, *own)
        rewards = [system.reward(e, case) for e, case in zip(episodes, system.cases.test, strict=True)]
        assert [e.prediction.label for e in episodes] == wanted["predictions"], name
        assert [round(r.total, 9) for r in rewards] == wanted["rewards"], name
        assert [fingerprint(e)[:8] for e in episodes] == wanted["episodes"], name
