"""Checkpoints are written beside the training: copies of their step, whole or not at all, errors at the next call."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

from ghar.disk import full_disk_told
from ghar.errors import BadInput
from ghar.trainers.rl.learner import PlainLearner
from ghar.trainers.runs import checkpoint
from ghar.trainers.runs.checkpoint import Checkpoint, find, load, newest
from ghar.trainers.runs.checkpoint_writer import CheckpointWriter
from tests.trainers.test_checkpoint import KEEP, MODEL, names, some


class Held:
    """Lets `checkpoint.write` go on when it is set; counts those that have begun."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.go, self.begun, self.write = Event(), 0, checkpoint.write
        patch.setattr(checkpoint, "write", self)

    def __call__(self, *args: Any) -> checkpoint.WrittenPart:
        self.begun += 1
        self.go.wait(60)
        return self.write(*args)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


def full(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_step_counts_once_it_is_whole(tmp_path: Path, held: Held):
    held.go.set()
    checkpoint.save(tmp_path, some(1), MODEL, KEEP)
    held.go.clear()
    with CheckpointWriter(tmp_path, MODEL, KEEP) as writer:
        writer.begin(lambda: some(2))
        writer.collect()  # it is on its way
        assert find(tmp_path) == tmp_path / "step-1" and (tmp_path / ".step-2.partial").is_dir()
        held.go.set()
        writer.finish()
        assert find(tmp_path) == tmp_path / "step-2" and load(tmp_path / "step-2", MODEL).step == 2
        writer.begin(lambda: some(3))
        writer.begin(lambda: some(4))  # waits for the one before
        assert find(tmp_path) == tmp_path / "step-3"
    assert names(tmp_path) == ["latest", "step-4"]


def test_what_was_written_is_published_at_the_next_look(tmp_path: Path):
    with CheckpointWriter(tmp_path, MODEL, KEEP) as writer:
        writer.collect()
        writer.begin(lambda: some(1))
        assert writer._open is not None
        writer._open.part()
        writer.collect()
        assert find(tmp_path) == tmp_path / "step-1"


def test_a_checkpoint_is_a_copy_of_its_step(tmp_path: Path, held: Held):
    """Steps that the optimiser takes while it is written are not in it."""
    layer = torch.nn.Linear(3, 2)
    layer.trainable_parameters = lambda: list(layer.parameters())  # type: ignore[attr-defined]
    learner: PlainLearner[Any] = PlainLearner(layer, torch.optim.AdamW(layer.parameters()), 1.0)

    def step() -> None:
        learner.backward(layer(torch.ones(1, 3)).sum(), last=True)
        learner.step()

    step()
    before = {name: value.clone() for name, value in learner.state()["state"][0].items()}
    with CheckpointWriter(tmp_path, MODEL, KEEP) as writer:
        writer.begin(lambda: Checkpoint({}, {"own": learner.state()}, {}, {}, 1))
        step()
        held.go.set()
    found = load(tmp_path / "step-1", MODEL).optimizer["own"]["state"][0]
    assert all(torch.equal(found[name], value) for name, value in before.items()) and found["step"] == 1


@pytest.mark.parametrize("at", ["begin", "collect", "finish", "end"])
def test_an_error_of_a_write_comes_at_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str):
    checkpoint.save(tmp_path, some(1), MODEL, KEEP)
    calls: dict[str, Callable[[CheckpointWriter], None]] = {
        "begin": lambda writer: writer.begin(lambda: some(3)),
        "collect": CheckpointWriter.collect,
        "finish": CheckpointWriter.finish,
        "end": lambda writer: None,
    }
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with (
            pytest.raises(BadInput, match=r"disk of .* is full .*newest checkpoint"),
            full_disk_told(tmp_path),
            CheckpointWriter(tmp_path, MODEL, KEEP) as writer,
        ):
            writer.begin(lambda: some(2))
            assert writer._open is not None
            writer._open.part()
            calls[at](writer)
    assert names(tmp_path) == ["latest", "step-1"]
    found = newest(tmp_path, MODEL, KEEP)
    assert found is not None and found.step == 1


def test_an_error_in_the_next_update_leaves_the_checkpoint_before_it(tmp_path: Path):
    with pytest.raises(BadInput, match="of the update"), CheckpointWriter(tmp_path, MODEL, KEEP) as writer:
        writer.begin(lambda: some(1))
        raise BadInput("of the update")
    assert find(tmp_path) == tmp_path / "step-1"


def test_the_error_of_the_update_stands_before_that_of_the_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(BadInput, match="of the update") as raised, CheckpointWriter(tmp_path, MODEL, KEEP) as writer:
        writer.begin(lambda: some(1))
        raise BadInput("of the update")
    assert "could not be written either" in raised.value.__notes__[0] and names(tmp_path) == []


def test_whoever_stops_at_once_waits_for_no_write(tmp_path: Path, held: Held):
    with pytest.raises(KeyboardInterrupt), CheckpointWriter(tmp_path, MODEL, KEEP) as writer:
        writer.begin(lambda: some(1))
        raise KeyboardInterrupt
    assert find(tmp_path) is None
    held.go.set()
