"""conf/sweeps: W&B's own code reads each file and puts its command lines together; every one of them is a good run."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args, load_sweep_config

from ghar.configure import leaf_keys
from launch.entry import check

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = sorted((ROOT / "conf" / "sweeps").glob("*.yaml"))
PARAMETER = {"values", "value", "distribution", "min", "max", "q", "mu", "sigma", "probabilities"}


def candidates(parameter: dict[str, Any]) -> list[Any]:
    """What a parameter may take: its values, or the ends of its range."""
    return parameter["values"] if "values" in parameter else [parameter["min"], parameter["max"]]


def command_lines(sweep: dict[str, Any]) -> list[list[str]]:
    """The command lines as W&B's agent makes them, for every combination."""
    names = list(sweep["parameters"])
    lines = []
    for values in itertools.product(*(candidates(sweep["parameters"][name]) for name in names)):
        arguments = {"args": {name: {"value": value} for name, value in zip(names, values, strict=True)}}
        macros = create_sweep_command_args(arguments) | {
            "env": ["/usr/bin/env"],
            "interpreter": [sys.executable],
            "program": [sweep["program"]],
        }
        line: list[str] = []
        for part in create_sweep_command(list(sweep["command"])):
            macro = part.startswith("${") and part.endswith("}")
            line += macros[part[2:-1]] if macro else [part]
        lines.append(line)
    return lines


def test_the_papers_hyper_parameters_are_swept() -> None:
    assert [path.stem for path in SWEEPS] == ["eta", "learning_rates", "max_paths", "top_n"]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_sweep_is_what_wandb_takes(path: Path) -> None:
    sweep = load_sweep_config(str(path))
    assert sweep is not None and (ROOT / sweep["program"]).is_file()
    assert sweep["method"] in ("grid", "random", "bayes") and sweep["metric"]["goal"] in ("minimize", "maximize")
    for name, parameter in sweep["parameters"].items():
        assert name in leaf_keys() and set(parameter) <= PARAMETER
        if sweep["method"] == "grid":
            assert "values" in parameter


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_command_line_is_a_run_of_its_own(path: Path) -> None:
    sweep = load_sweep_config(str(path))
    assert sweep is not None
    folders = set()
    for line in command_lines(sweep):
        assert line[2] == sweep["program"]
        (config,) = check(line[3:])
        folders.add(config.run_dir)
        values = dict(override.split("=", 1) for override in line[3:])
        assert str(config.seed) == values.get("seed", "0") and config.logger.wandb == "online"
    assert len(folders) == len(command_lines(sweep))


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_command_line_starts_offline(path: Path) -> None:
    sweep = load_sweep_config(str(path))
    assert sweep is not None
    line = [*command_lines(sweep)[0], "logger.wandb=offline", "--cfg", "job", "--resolve"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "run_dir: runs/sweeps/" in done.stdout, done.stderr
