"""A run folder survives kills, keeps files whole and names what is broken."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.errors import BadInput
from ghar.metrics.runfolder import RunFolder, write_whole


def row(step: int, phase: str = "rl", **values: object) -> dict:
    return {"step": step, "phase": phase, **values}


def test_rows_come_back_as_logged(tmp_path):
    folder = RunFolder.open(tmp_path / "run")
    folder.log(row(0, "base", **{"train/loss": 1.5}))
    folder.log(row(1, **{"train/kl": np.float32(0.5), "eval/reward": float("nan")}))
    assert folder.metrics() == [
        {"step": 0, "phase": "base", "train/loss": 1.5},
        {"step": 1, "phase": "rl", "train/kl": 0.5, "eval/reward": None},
    ]


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 200))
def test_a_killed_run_loses_at_most_its_last_row(tmp_path_factory, kept_bytes):
    """Whatever byte the kill stopped at, reopening keeps every whole row and new rows follow cleanly. Rows that were
    whole once do not get lost by a kill: that is damage."""
    path = tmp_path_factory.mktemp("run")
    folder = RunFolder.open(path)
    for step in range(4):
        folder.log(row(step, **{"train/loss": 1.0}))
    content = folder.metrics_path.read_bytes()[:kept_bytes]
    folder.metrics_path.write_bytes(content)
    whole = content.count(b"\n")
    if whole < 3:
        with pytest.raises(BadInput, match=r"metrics\.jsonl is damaged"):
            RunFolder.open(path)
        return
    assert [r["step"] for r in folder.metrics()] == list(range(whole))
    RunFolder.open(path).log(row(99))
    assert [r["step"] for r in folder.metrics()] == [*range(whole), 99]


def test_rewind_forgets_later_steps_and_later_phases(tmp_path):
    folder = RunFolder.open(tmp_path)
    for phase, steps in (("base", 2), ("sft", 3), ("rl", 2)):
        for step in range(steps):
            folder.log(row(step, phase))
    folder.rewind("rl", 0)
    assert [(r["phase"], r["step"]) for r in folder.metrics()][-2:] == [("sft", 2), ("rl", 0)]
    folder.rewind("sft", 1)
    assert [(r["phase"], r["step"]) for r in folder.metrics()] == [("base", 0), ("base", 1), ("sft", 0), ("sft", 1)]


@pytest.mark.parametrize(
    "bad",
    [
        {"step": 1},
        {"phase": "rl"},
        row(1, "warmup"),
        {"step": 1.5, "phase": "rl"},
        row(1, note="patient 7"),
        row(1, x=None),
    ],
)
def test_a_row_that_is_not_numbers_is_refused(tmp_path, bad):
    folder = RunFolder.open(tmp_path)
    with pytest.raises(ValueError):
        folder.log(bad)
    assert folder.metrics() == []


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    folder = RunFolder.open(tmp_path)
    folder.metrics_path.write_text('{"step": 0}\n{"step": \n{"step": 2}\n')
    with pytest.raises(BadInput, match=r"metrics.jsonl, line 2"):
        folder.metrics()


def test_episodes_are_whole_or_absent(tmp_path):
    folder = RunFolder.open(tmp_path)

    def rows():
        yield {"sample_id": "a"}
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        folder.write_episodes("ghar_rl", rows())
    assert list((tmp_path / "episodes").iterdir()) == []
    folder.write_episodes("ghar_rl", [{"sample_id": "a", "reward": np.float64("inf"), "text": "Müller\n\ud800"}])
    assert list(folder.episodes("ghar_rl")) == [{"sample_id": "a", "reward": None, "text": "Müller\n\ud800"}]
    assert folder.episode_names() == ["ghar_rl"]
    with pytest.raises(BadInput, match="holds episodes of ghar_rl"):
        folder.episodes("ghar_sft")


def test_training_episodes_are_forgotten_with_their_updates(tmp_path):
    folder = RunFolder.open(tmp_path)
    assert list(folder.training_episodes()) == []
    for update in (5, 10, 100):
        folder.write_training_episodes(update, [{"sample_id": "a", "update": update}])
    assert folder.training_updates() == [5, 10, 100] and folder.episode_names() == []
    folder.rewind("rl", 10)
    assert [row["update"] for row in folder.training_episodes()] == [5, 10]
    (tmp_path / "episodes" / "training" / "5.jsonl").write_text('{"update": 5}\n')
    with pytest.raises(BadInput, match=r"5\.jsonl is damaged"):
        list(folder.training_episodes())
    folder.write_training_episodes(5, [])
    folder.rewind("sft", 3)
    assert folder.training_updates() == []


def test_summary(tmp_path):
    folder = RunFolder.open(tmp_path)
    assert folder.summary() is None
    folder.write_summary({"seed": np.int64(3), "policies": {"a": {"accuracy": (0.5, float("nan"), 0.75)}}})
    assert folder.summary() == {"seed": 3, "policies": {"a": {"accuracy": [0.5, None, 0.75]}}}
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(BadInput, match=r"summary.json is damaged"):
        folder.summary()
    (tmp_path / "ledger.jsonl").unlink()  # a folder of an earlier version
    with pytest.raises(BadInput, match=r"summary.json is not JSON"):
        folder.summary()


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    write_whole(path, "old")
    with pytest.raises(TypeError):
        write_whole(path, ["new", 1])  # type: ignore[list-item]
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_the_fixture_is_valid_json_everywhere(whole_run):
    for path in whole_run.path.rglob("*.jsonl"):
        for line in path.read_text().splitlines():
            json.loads(line, parse_constant=pytest.fail)


@pytest.mark.parametrize("content", ["{", "[1]", "\udcff"])
def test_damaged_groups_are_named(tmp_path, content):
    folder = RunFolder.open(tmp_path)
    (tmp_path / "groups.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput, match=r"groups\.json"):
        folder.groups()
