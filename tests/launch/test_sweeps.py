"""conf/sweeps: W&B's own code reads each file and puts its command lines together; every one of them is a good run."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args, load_sweep_config

from ghar.configure import leaf_keys
from ghar.envs.ghar.settings import Settings
from ghar.launch.entry import check
from ghar.metrics.logger import Logger
from ghar.metrics.policy import eval_metrics, policy_summary
from tests.running import run_command

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
    """Fig. 11 of GHAR, with its grids."""
    assert [path.stem for path in SWEEPS] == ["eta", "learning_rates", "max_paths", "top_n"]
    found = {path.stem: load_sweep_config(str(path)) for path in SWEEPS}
    grids = {name: sweep["parameters"] for name, sweep in found.items() if sweep is not None}
    assert grids["max_paths"]["system.max_paths"]["values"] == [1, 2, 3, 6]
    assert grids["top_n"]["retriever.top_n"]["values"] == [1, 3, 5, 7]
    assert grids["eta"]["reward.eta"]["values"] == [1, 3, 5, 10]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_sweep_maximises_a_number_that_is_logged_and_does_not_scale_with_what_is_swept(path: Path) -> None:
    logged: list[dict[str, float]] = []
    row = {
        "sample_id": "a", "subject_id": 1, "label": "yes", "prediction": "yes", "correct": True, "reward": 5.0,
        "retrieved": False, "iterations": 0, "needs_retrieval": None, "label_probabilities": None, "failure": None,
        "prompt_tokens": 1, "completion_tokens": 1, "seconds": 0.1, "turns": [{"format_ok": True}],
    }  # fmt: skip
    numbers = eval_metrics(policy_summary([row], ("no", "yes"), resamples=10))
    Logger(SimpleNamespace(log=logged.append)).log({"phase": "rl", "step": 1, **numbers})
    sweep = load_sweep_config(str(path))
    assert sweep is not None and sweep["metric"]["name"] in logged[0]
    assert "reward" not in sweep["metric"]["name"]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_sweep_is_what_wandb_takes(path: Path) -> None:
    sweep = load_sweep_config(str(path))
    assert sweep is not None and (ROOT / sweep["program"]).is_file()
    assert sweep["method"] in ("grid", "random", "bayes") and sweep["metric"]["goal"] in ("minimize", "maximize")
    for name, parameter in sweep["parameters"].items():
        assert name in leaf_keys(settings=Settings) and set(parameter) <= PARAMETER
        if sweep["method"] == "grid":
            assert "values" in parameter


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_command_line_starts_offline(path: Path) -> None:
    sweep = load_sweep_config(str(path))
    assert sweep is not None
    line = [*command_lines(sweep)[0], "logger.wandb=offline", "--cfg", "job", "--resolve"]
    done = run_command(line)
    assert done.returncode == 0 and "run_dir: runs/sweeps/" in done.stdout, done.stderr
