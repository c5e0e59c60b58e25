"""Models on disk: whole or not at all, and safe when several processes write the same one."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch

from ghar.llm.models import load_pretrained
from ghar.trainers.runs import manifest
from ghar.trainers.runs.models import ABANDONED, save_model, use_cores
from tests.trainers.tiny import tiny_model, tiny_tokenizer


def test_processes_on_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    for processes, threads in (("1", 3), ("2", 3), ("4", 2), ("16", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        use_cores(3)
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_several_that_write_the_same_model_at_once_end_with_one_whole_model(tmp_path: Path):
    target, together = tmp_path / "bases" / "key", Barrier(4)

    def run() -> None:
        model, tokenizer = tiny_model(), tiny_tokenizer()
        together.wait(60)
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
