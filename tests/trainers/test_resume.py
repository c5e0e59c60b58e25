"""kill -9 at any moment, start again, and the run ends with the numbers and weights of one that was left alone."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.kills import TINY, differences, kept, metrics
from ghar.config import Config
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.recipe import episode_tokens
from ghar.trainers.runs.resume import FREE, occupied, open_run
from tests.running import ends
from tests.trainers.killing import train_until


class Starts:
    """Trainings in processes of their own, forked from one that has imported everything."""

    def __init__(self) -> None:
        self.context: Any = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tests.trainers.killing"])

    def start(self, run: Path, cache: Path, *overrides: str, **kill: Any) -> tuple[int, str]:
        """Exit code and screen of one training (or of its killed beginning)."""
        screen = run.with_suffix(".txt")
        screen.unlink(missing_ok=True)
        arguments = [*TINY, f"run_dir={run}", f"data.cache={cache}", *overrides]
        return self.ended(train_until, (arguments, screen), kill), screen.read_text() if screen.exists() else ""

    def ended(self, job: Callable[..., None], arguments: tuple[Any, ...], more: dict[str, Any] | None = None) -> int:
        """Exit code of `job` in a process of its own."""
        process = self.context.Process(target=job, args=arguments, kwargs=more or {})
        process.start()
        if not ends(process.pid, process.is_alive):
            process.kill()
            raise AssertionError("the process made no progress and was ended")
        return process.exitcode


@pytest.fixture(scope="module")
def starts() -> Starts:
    return Starts()


@pytest.mark.slow
@pytest.mark.timeout(900)  # several trainings, on a machine that may be busy
def test_killed_at_random_points(tmp_path: Path, starts: Starts):
    """Once by the clock, then before writes drawn from all there are: inside saves, between phases, in any of them.
    At the end the newest checkpoint is damaged, and the run goes back to the one before it."""
    took = starts.context.Array("d", 3)
    whole, broken, cache = tmp_path / "whole", tmp_path / "broken", tmp_path / "cache-broken"
    code, screen = starts.start(whole, tmp_path / "cache-whole", note=took)
    assert code == 0, screen
    writes, seconds = int(took[0]), took[1]
    rng = np.random.default_rng(11)
    kills: list[dict[str, Any]] = [{"seconds": seconds * rng.uniform(0.1, 0.5)}]
    kills += [{"write": int(writes * rng.uniform(0.3, 0.45))} for _ in range(2)]
    codes = [starts.start(broken, cache, **kill)[0] for kill in kills]
    assert codes.count(-signal.SIGKILL) >= 2, codes  # the clock may strike too late, when the machine was busy before
    code, screen = starts.start(broken, cache)
    assert code == 0 and "Resuming the unfinished run" in screen, screen
    assert metrics(broken) == metrics(whole) and kept(broken) == kept(whole)
    assert list(differences(whole, broken)) == [] and list(whole.glob("episodes/training/*.jsonl"))

    damaged = broken / "checkpoints" / "step-3" / "optimizer.pt"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    (broken / "summary.json").unlink()  # as if it had been killed in its evaluation
    code, screen = starts.start(broken, cache)
    assert code == 0, screen
    assert "step-3/optimizer.pt is damaged" in screen and "after update 2 of 3" in screen
    assert list(differences(whole, broken)) == []


# ---------------------------------------------------------------- what a run folder is opened as


def config_of(run: Path, *overrides: str) -> Config:
    return load([f"run_dir={run}", *overrides])


def begun(run: Path) -> RunFolder:
    """A run that was killed in its first updates, and had been evaluated by hand."""
    opened = open_run(config_of(run))
    assert opened is not None and not opened[1]
    folder = opened[0]
    folder.log({"step": 0, "phase": "rl"})
    folder.write_episodes("scripted", [])
    folder.write_summary({"policies": {}})  # an evaluation's, which knows no time of training
    (run / "checkpoints" / "step-0").mkdir(parents=True)
    (run / "notes.txt").write_text("the user's own")
    return folder


def test_an_unfinished_run_is_resumed_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    begun(tmp_path / "run")
    opened = open_run(config_of(tmp_path / "run"))
    assert opened is not None and opened[1]
    assert len(opened[0].metrics()) == 1 and (tmp_path / "run" / "checkpoints" / "step-0").is_dir()
    assert "Resuming the unfinished run" in capsys.readouterr().out


def test_what_a_killed_writer_left_half_done_is_removed(tmp_path: Path):
    begun(tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    (checkpoints / ".step-1.partial").mkdir()
    (checkpoints / ".step-1.partial" / "weights.safetensors").write_bytes(b"half")
    (tmp_path / "run" / ".summary.json.123.tmp").write_text("half")
    for name in (".latest.partial", ".lessons.npz.partial"):
        (checkpoints / name).write_text("half")
    open_run(config_of(tmp_path / "run"))
    assert [path.name for path in checkpoints.iterdir()] == ["step-0"]
    assert not list((tmp_path / "run").glob(".*.tmp"))


def test_never_starts_over_and_touches_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = begun(tmp_path / "run")
    opened = open_run(config_of(tmp_path / "run", "resume=never"))
    assert opened is not None and not opened[1]
    assert "Starting over" in capsys.readouterr().out
    assert folder.metrics() == [] and folder.episode_names() == [] and folder.summary() is None
    assert not (tmp_path / "run" / "checkpoints").exists() and (tmp_path / "run" / "notes.txt").exists()


def test_a_run_of_another_configuration_is_refused_by_the_keys_that_differ(tmp_path: Path):
    begun(tmp_path / "run")
    with pytest.raises(BadInput, match=r"another configuration \(seed is 0 there and 7 here, trainer\.rl\.updates is"):
        open_run(config_of(tmp_path / "run", "seed=7", "trainer.rl.updates=3"))
    others = ["keep_last=5", "trainer.rl.micro_tokens=512", "trainer.rl.save_every=1", f"data.cache={tmp_path}"]
    assert open_run(config_of(tmp_path / "run", *others)) is not None  # these change no result
    (tmp_path / "run").rename(tmp_path / "moved")
    assert open_run(config_of(tmp_path / "moved")) is not None


def test_where_text_may_go_is_no_other_configuration(tmp_path: Path):
    begun(tmp_path / "run")
    opened = open_run(config_of(tmp_path / "run", "privacy.allow=[wandb]", "logger.wandb=offline"))
    assert opened is not None and opened[1]


def test_keys_that_may_change_exist(tmp_path: Path):
    from ghar.configure import leaf_keys

    assert FREE <= set(leaf_keys())


@pytest.mark.slow
@pytest.mark.parametrize("text", ["seed: [", "\x00", "- 1\n- 2\n"])
def test_a_damaged_configuration_is_named(tmp_path: Path, text: str):
    begun(tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text(text)
    with pytest.raises(BadInput, match=r"config\.yaml (is damaged|holds)|another configuration"):
        open_run(config_of(tmp_path / "run"))


def test_checkpoints_without_a_configuration_are_nobodys(tmp_path: Path):
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(BadInput, match=r"no config\.yaml to say of what"):
        open_run(config_of(tmp_path))


def test_a_run_folder_is_trained_in_by_one_process(tmp_path: Path):
    with occupied(tmp_path):
        with pytest.raises(BadInput, match="Another process is at work in"), occupied(tmp_path):
            pass
    with occupied(tmp_path):
        pass


def test_tokens_that_an_earlier_version_did_not_count_are_left_out() -> None:
    counted = {"train/tokens/reply": 5.0, "train/tokens/prompt": 7.0}
    assert episode_tokens([counted, counted]) == {"episode reply tokens": 10, "episode prompt tokens": 14}
    assert episode_tokens([{"train/tokens/prompt": 1.0}, counted]) == {"episode prompt tokens": 8}
    assert episode_tokens([{}, counted]) == {}
