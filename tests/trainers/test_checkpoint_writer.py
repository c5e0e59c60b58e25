"""Checkpoints are written beside the training: copies of their step, whole or not at all, errors at the next call."""

from __future__ import annotations

import errno
import math
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch

from ghar.device import GIB
from ghar.disk import report_full_disk
from ghar.envs.play import stage_of
from ghar.errors import BadInput
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.base import untrained
from ghar.trainers.evaluation.weights import make_actor
from ghar.trainers.rl import loop
from ghar.trainers.rl.learner import PlainLearner
from ghar.trainers.rl.workers import local
from ghar.trainers.runs import checkpoint, checkpoint_writer, manifest
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
            report_full_disk(tmp_path),
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


def test_the_error_of_the_update_stands_before_that_of_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(BadInput, match="of the update"), CheckpointWriter(tmp_path, MODEL, KEEP) as writer:
        writer.begin(lambda: some(1))
        raise BadInput("of the update")
    assert "could not be written either: A file cannot be written, its disk is full" in capsys.readouterr().err
    assert names(tmp_path) == []


class Endless:
    """In place of `torch.save`: writes until it is refused; `begun` once it writes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun = Event()
        patch.setattr(torch, "save", self)

    def __call__(self, value: object, file: Any) -> None:
        while True:
            file.write(b"0")
            self.begun.set()


STOPS = {"asked": KeyboardInterrupt(), "left": SystemExit(130), "others": BadInput("of one of several processes")}


@pytest.mark.parametrize("stop", STOPS)
def test_whoever_stops_at_once_waits_for_no_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str):
    """Nor is one left at work, which would abort the interpreter as it ends."""
    writing = Endless(monkeypatch)
    if stop == "others":
        monkeypatch.setattr(checkpoint_writer, "world", lambda: 2)
    with pytest.raises(type(STOPS[stop])), CheckpointWriter(tmp_path, MODEL, KEEP) as writer:
        writer.begin(lambda: some(1))
        assert writing.begun.wait(60)
        raise STOPS[stop]
    assert not any(thread.name.startswith("checkpoint") for thread in threading.enumerate())
    assert find(tmp_path) is None and names(tmp_path) == []


@pytest.mark.parametrize("fate", ["whole", "one process had not ended", "a file is torn"])
def test_what_all_processes_had_written_counts_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fate: str
):
    """One of two processes ended with an error: they cannot publish together any more."""
    checkpoint.save(tmp_path, some(1), MODEL, KEEP)
    made = replace(some(2, score=0.5), processes=2)
    scratch = checkpoint.make_scratch(tmp_path, 2)
    for process in (0, 1) if fate != "one process had not ended" else (0,):
        monkeypatch.setattr(checkpoint_writer, "rank", lambda process=process: process)
        write = checkpoint_writer._Write(scratch, made, MODEL)
        write.part()
        write.give_up()
    if fate == "a file is torn":
        (scratch / "optimizer-1.pt").write_bytes(b"half")
    assert find(tmp_path) == tmp_path / "step-1" and scratch.is_dir()
    checkpoint.adopt(tmp_path)
    steps = ["step-1", "step-2"] if fate == "whole" else ["step-1"]
    assert names(tmp_path) == ["latest", *steps] and manifest.fault(tmp_path / steps[-1]) is None
    assert ("update 2 was whole" in capsys.readouterr().out) == (fate == "whole")
    monkeypatch.undo()
    found = newest(tmp_path, MODEL, KEEP)
    assert found is not None and found.step == len(steps) and find(tmp_path) == tmp_path / steps[-1]


def test_a_signal_while_a_write_is_waited_for_gives_it_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of `Ctrl-C` as the last checkpoint is finished, the thread hears too."""
    writing = Endless(monkeypatch)
    with pytest.raises(KeyboardInterrupt), CheckpointWriter(tmp_path, MODEL, KEEP) as writer:
        writer.begin(lambda: some(1))
        assert writing.begun.wait(60) and writer._open is not None
        monkeypatch.setattr(writer._open, "part", interrupted)
    assert not any(thread.name.startswith("checkpoint") for thread in threading.enumerate())
    assert names(tmp_path) == []


def interrupted() -> None:
    raise KeyboardInterrupt


def test_a_write_given_up_in_its_sums_ends(tmp_path: Path):
    """A check that begins to refuse is heard in every file and in the sums of all."""
    asked = 0

    def refuse(after: int) -> Callable[[], None]:
        nonlocal asked
        asked = 0

        def check() -> None:
            nonlocal asked
            asked += 1
            if asked > after:
                raise ValueError("refused")

        return check

    scratch = checkpoint.make_scratch(tmp_path, 1)
    assert checkpoint.write(scratch, some(1), MODEL, 0, refuse(10**9)).error is None
    for after in (0, asked // 2, asked - 1):
        part = checkpoint.write(scratch, some(1), MODEL, 0, refuse(after))
        assert part.error is not None and part.sums == {}


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt(), SystemExit(1)])
def test_whatever_ends_the_thread_is_raised_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
):
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(torch, "save", fail)
    raised = MemoryError if isinstance(error, MemoryError) else RuntimeError
    with pytest.raises(raised) as found, CheckpointWriter(tmp_path, MODEL, KEEP) as writer:
        writer.begin(lambda: some(1))
    assert type(error).__name__ in checkpoint.sentence(found.value) and names(tmp_path) == []


def test_the_thread_writes_as_the_process_that_began_it(tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch):
    """The group may be gone before the thread has begun: process 1 does not write process 0's files then."""
    folder = checkpoint.make_scratch(tmp_path, 1)
    monkeypatch.setattr(checkpoint_writer, "rank", lambda: 1)
    writer = CheckpointWriter(tmp_path, MODEL, KEEP)
    writer.begin(lambda: some(1))
    monkeypatch.undo()  # and with it the number of this process
    held.go.set()
    assert writer._open is not None and set(writer._open.part().sums) == {"optimizer-1.pt"}
    assert [path.name for path in folder.iterdir()] == ["optimizer-1.pt"]


def test_without_room_for_a_copy_it_is_written_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The warning is printed once."""
    for room, has_room in ((0.0, True), (1e18, False)):
        writer = CheckpointWriter(tmp_path, MODEL, KEEP, room)
        assert writer.has_room() is writer.has_room() is has_room
        assert capsys.readouterr().out.count("written before the next update") == (not has_room)
    with CheckpointWriter(tmp_path, MODEL, KEEP) as writer:
        writer.begin(lambda: some(1))
        writer.save(lambda: some(2))
        assert find(tmp_path) == tmp_path / "step-2" and writer._open is None


def test_the_warning_has_the_memory_of_the_process_that_has_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(checkpoint_writer, "gather", lambda one: [(8 * GIB, 99 * GIB), (8 * GIB, 3 * GIB)])
    assert not CheckpointWriter(tmp_path, MODEL, KEEP, 8 * GIB).has_room()
    assert "8.0 GiB of host memory, of which 3.0 are free" in capsys.readouterr().out


def test_a_critic_baselines_state_is_a_copy():
    from ghar.trainers.rl.critic_baseline import CriticBaseline

    one = CriticBaseline()
    one.batches.append((np.zeros((2, 3)), np.zeros(2)))
    kept = one.state()["batches"][0]
    one.batches[0][0][:], one.batches[0][1][:] = 1.0, 1.0
    assert not kept[0].any() and not kept[1].any()


# ---------------------------------------------------------------- in the loop


@pytest.fixture
def rounds(small_system: Any, small_config: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Three updates of a tiny policy into a folder; `around` is called with each step of the loop."""
    config = small_config(
        "model.hidden=16", "model.layers=1", "model.critic=own", "trainer.rl.estimator=gae", "trainer.rl.updates=3",
        "trainer.rl.episodes=2", "trainer.rl.attempts=1", "trainer.rl.minibatches=1", "trainer.rl.epochs=1",
        "trainer.rl.eval_every=9", "trainer.rl.eval_samples=2", "trainer.rl.save_every=1", "keep_last=4",
        "trainer.rl.lr=0.01",
    )  # fmt: skip
    step = loop._step

    def play(folder: Path, room: float, around: Callable[..., Any], log: Callable[..., None]) -> None:
        (folder / "episodes").mkdir(parents=True)
        model, tokenizer = untrained(config, list(small_system.training.texts()), (), 0)
        actor = make_actor(config, model, small_system.agents)
        stage = stage_of(small_system, small_system.variants[small_system.main], config)
        workers = local(stage, False, actor, tokenizer)
        monkeypatch.setattr(loop, "_step", lambda about, going, workers: around(going, step(about, going, workers)))
        loop.reinforce(small_system, config, actor, MODEL, {}, log, RunFolder(folder), workers, room)

    return play


@pytest.mark.slow
def test_a_checkpoint_written_beside_the_next_update_is_that_of_a_run_that_saves_at_once(
    tmp_path: Path, held: Held, rounds: Callable[..., None]
):
    """That of update 1 is held until update 2 has ended, and published then, before update 2 is saved."""
    held.go.set()
    beside, at_once = tmp_path / "beside" / "checkpoints", tmp_path / "at_once" / "checkpoints"
    seen: dict[int, str] = {}

    def around(going: Any, result: Any) -> Any:
        if going.step == 1:
            held.go.clear()
        if going.step == 2:
            assert going.saving._open is not None and not going.saving._open.is_done()
            assert sorted(path.name for path in beside.glob("step-*")) == ["step-0"]
            held.go.set()
            going.saving._open.part()
        return result

    def log(row: Any) -> None:
        newest = find(beside)
        seen[row["step"]] = "" if newest is None else newest.name

    rounds(beside.parent, 0.0, around, log)
    assert seen[2] == "step-1"
    rounds(at_once.parent, math.inf, lambda going, result: result, lambda row: None)
    for number in range(4):
        one, other = (manifest.sums(folder / f"step-{number}") for folder in (beside, at_once))
        assert one == other, number
    weights = [load(beside / f"step-{number}", MODEL).weights for number in (1, 2)]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
