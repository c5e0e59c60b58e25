"""Models on disk: whole or not at all, and safe when several processes write the same one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch

from ghar.disk import ABANDONED
from ghar.llm.models import load_pretrained
from ghar.trainers.runs import manifest, models
from ghar.trainers.runs.models import save_model, use_cores
from tests.running import ROOT
from tests.trainers.tiny import tiny_model, tiny_tokenizer


def test_processes_on_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(models, "usable_cores", lambda: 8)
    for processes, threads in (("1", 3), ("2", 3), ("4", 2), ("16", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        use_cores(3)
        assert torch.get_num_threads() == threads
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    for load, threads in ((0.2, 8), (2.9, 5), (30.0, 1)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        use_cores(None)
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)


def test_the_quota_of_a_container_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(models, "QUOTA", tmp_path / "cpu.max")
    assert models.usable_cores() == 64
    for text, cores in (("max 100000", 64), ("200000 100000", 2), ("50000 100000", 1), ("150000 100000", 2)):
        (tmp_path / "cpu.max").write_text(text)
        assert models.usable_cores() == cores


WATCH = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("torch sees", os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Watch())
import runpy
"""


@pytest.mark.slow
@pytest.mark.parametrize("start", [
    "import ghar.trainers.ray.pool", "import ghar; ghar.load('nowhere')",
    "sys.argv = ['train.py', 'task=read']; runpy.run_path('launch/train.py', run_name='__main__')",
    "sys.argv = ['ghar', 'evaluate', 'task=read']; runpy.run_module('ghar.launch.cli', run_name='__main__')",
])  # fmt: skip
def test_threads_wait_passively_before_torch_is_imported(start: str):
    assert torch_sees(start, {}) == "torch sees PASSIVE"


def test_another_way_of_waiting_may_be_chosen():
    assert torch_sees("import ghar.trainers.runs.models", {"OMP_WAIT_POLICY": "ACTIVE"}) == "torch sees ACTIVE"


def torch_sees(start: str, given: dict[str, str]) -> str:
    """What a process that `start` begins says at its first import of torch."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"} | given
    done = subprocess.run(
        [sys.executable, "-c", WATCH + start], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return done.stdout.splitlines()[-1]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_several_that_write_the_same_model_at_once_end_with_one_whole_model(tmp_path: Path):
    target, together = tmp_path / "bases" / "key", Barrier(4)

    def run() -> None:
        model, tokenizer = tiny_model(), tiny_tokenizer()
        together.wait(600)
        save_model(model, tokenizer, target)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run) for _ in range(4)]:
            done.result()
    assert names(target.parent) == ["key"] and manifest.fault(target) is None
    load_pretrained(str(target), "float32")  # what each of them does next


def test_the_first_whole_model_stays_and_a_damaged_one_gives_way(tmp_path: Path):
    target = tmp_path / "key"
    save_model(tiny_model(), tiny_tokenizer(), target)
    first = (target / "model.safetensors").stat()
    save_model(tiny_model(seed=1), tiny_tokenizer(), target)
    assert (target / "model.safetensors").stat() == first
    (target / "config.json").write_text("{")
    save_model(tiny_model(seed=1), tiny_tokenizer(), target)
    assert manifest.fault(target) is None and names(tmp_path) == ["key"]


def test_an_error_leaves_nothing_behind(tmp_path: Path):
    class Full:
        def save_pretrained(self, folder: Path) -> None:
            (folder / "model.safetensors").write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        save_model(Full(), tiny_tokenizer(), tmp_path / "key")
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_removed_later(tmp_path: Path):
    old, young = tmp_path / ".key.1.partial", tmp_path / ".key.2.partial"
    for folder in (old, young, tmp_path / ".other.1.partial"):
        folder.mkdir()
    long_ago = time.time() - 2 * ABANDONED
    os.utime(old, (long_ago, long_ago))
    save_model(tiny_model(), tiny_tokenizer(), tmp_path / "key")
    assert names(tmp_path) == [".key.2.partial", ".other.1.partial", "key"]
