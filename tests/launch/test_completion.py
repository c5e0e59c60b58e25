"""Completion of the command `ghar` in a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ghar.launch.completion import follow

ROOT = Path(__file__).resolve().parents[2]
COMPLETED = {
    "ghar tr": ["train"], "ghar train +experiment=qu": ["+experiment=quick"],
    "ghar train plan=": ["plan=true", "plan=false"], "ghar evaluate task=kare_r": ["task=kare_readmission"],
}  # fmt: skip


def test_a_shell_completes_commands_keys_and_experiments() -> None:
    assert {line: follow(line) for line in COMPLETED} == COMPLETED
    assert "task.window_days=" in follow("ghar train task.w") and follow("ghar train run_dir=") == []
    assert "system.rewrites=" in follow("ghar train system.") and not follow("ghar train system=kare system.rewr")
    assert follow("ghar report ") == [] and follow("ghar data data=mimic4", whole=False) == ["mimic4"]
    assert follow("ghar evaluate model.dtype=b") == ["model.dtype=bfloat16"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_a_line(tmp_path: Path) -> None:
    """As bash asks, which splits a word at "=": what it is given stands behind that."""
    (tmp_path / "ghar").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/launch/cli.py" "$@"\n')
    (tmp_path / "ghar").chmod(0o755)
    script = (
        'eval "$(ghar completion bash)"; COMP_LINE="ghar train task=kare_m"; COMP_POINT=${#COMP_LINE};'
        'compopt() { :; }; _ghar; echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "kare_mortality", done.stderr
