"""KARE's training, shortened: chains, fine-tuning, evaluation; killed and resumed; two processes under DeepSpeed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ghar.config import Config
from ghar.errors import BadInput
from ghar.llm.models import load_pretrained
from ghar.metrics.runfolder import RunFolder
from launch.entry import load
from launch.train_kare import run
from trainers import kare_train
from trainers.kare_train import train
from trainers.runs.checkpoint import fault

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 800  # seconds; half a minute on an idle machine, but this one may be busy
pytestmark = pytest.mark.timeout(LIMIT + 100)
needs_deepspeed = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed")
SHORT = (
    "+experiment=kare_demo", "data.patients=60", "threads=1", "model.hidden=32", "model.layers=1", "model.heads=2",
    "model.vocab=512", "kare.communities=[5,5,5,6]", "trainer.base.steps=1", "trainer.base.batch=16",
    "trainer.warmup.epochs=2", "trainer.warmup.batch=16", "trainer.warmup.micro_batch=8", "kare.chains=2",
    "task.max_train=20", "task.max_valid=6", "task.max_test=4", "eval.bootstrap=20", "kare.methods=[kare,zero_shot]",
)  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kare")


def configured(cache: Path, run_dir: Path, *overrides: str) -> Config:
    return load([*SHORT, f"data.cache={cache}", f"run_dir={run_dir}", *overrides])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_pretrained(str(folder / "checkpoints" / "distilled"), "float32")[0].state_dict()


class Killed(BaseException):
    """Nobody catches it."""


@pytest.fixture(scope="module")
def trained(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    train(configured(cache, folder))
    return folder


def test_from_tables_to_a_distilled_model_and_its_report(trained: Path):
    run_folder = RunFolder(trained)
    summary = run_folder.summary() or {}
    chains = summary["chains"]["training"]
    assert chains["chains"] == 2 * 20 and chains["samples without a chain"] == 0
    assert sum(n for name, n in chains.items() if name.startswith("kept")) == 20
    assert set(summary["policies"]) == {"kare", "zero_shot"} and set(summary["time"]) == {"distillation", "evaluation"}
    losses = [row["eval/loss"] for row in run_folder.metrics() if row["phase"] == "sft"]
    assert len(losses) >= 5 and all(loss > 0 for loss in losses)
    for name in ("distilled", "backbone"):
        assert fault(trained / "checkpoints" / name) is None
    assert not (trained / "checkpoints" / "distil-steps").exists()
    row = next(iter(run_folder.episodes("kare")))
    assert row["chain"] and [turn["role"] for turn in row["turns"]] == ["reason", "predict"]
    assert (trained / "report.html").is_file()


def test_a_finished_run_is_only_reported(cache: Path, trained: Path, capsys: pytest.CaptureFixture[str]):
    train(configured(cache, trained))
    assert "holds this run, finished" in capsys.readouterr().out


def test_a_killed_run_asks_the_expert_nothing_twice_and_ends_the_same(
    cache: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def killed(*args: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(kare_train, "distil", killed)
        with pytest.raises(Killed):
            train(configured(cache, tmp_path))
    stores = list((tmp_path / "expert").glob("*.jsonl"))
    asked = stores[0].read_text()
    train(configured(cache, tmp_path))
    assert stores[0].read_text() == asked and len(stores) == 1
    expected = weights(trained)
    assert all(torch.equal(value, expected[name]) for name, value in weights(tmp_path).items())


@pytest.mark.parametrize("tasks", ["two_in_one", "label_only"])
def test_the_ablations_run(cache: Path, tmp_path: Path, tasks: str):
    train(configured(cache, tmp_path, f"kare.tasks={tasks}", "model.finetune=lora"))
    summary = RunFolder(tmp_path).summary() or {}
    assert set(summary["chains"]) == ({"training", "validation"} if tasks == "two_in_one" else set())
    roles = [turn["role"] for turn in next(iter(RunFolder(tmp_path).episodes("kare")))["turns"]]
    assert roles == (["both"] if tasks == "two_in_one" else ["predict"])


@needs_deepspeed
def test_two_processes_under_deepspeed_distil_like_one(cache: Path, trained: Path, tmp_path: Path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    own = [f"data.cache={cache}", f"run_dir={tmp_path}", "deepspeed=zero2"]
    command = [*torchrun, str(ROOT / "launch" / "train_kare.py"), *SHORT, *own]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    expected = weights(trained)
    for name, value in weights(tmp_path).items():
        assert torch.allclose(value, expected[name], atol=2e-3), name
    assert "policies" in json.loads((tmp_path / "summary.json").read_text())


def test_another_system_is_refused():
    with pytest.raises(BadInput, match="policy=ghar is not trained here"):
        run(load([]))
