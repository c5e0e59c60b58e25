"""The command `ghar`, from a wheel in a folder of its own: no clone, no conf/ beside it, any working folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ghar
from ghar.launch.cli import COMMANDS, usage
from tests.running import run_command
from tests.smollm2 import needs_smollm2

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("envs", "launch", "rewards", "trainers")  # of most projects


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs, its dependencies being those of this environment."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if not name.startswith("tests/") and ((ROOT / name).is_file() or (ROOT / name).is_symlink()):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name, follow_symlinks=False)
    quiet = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *quiet, "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def run(installed: Path, *words: str, cwd: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    """The command, and the processor time that it took."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "HOME": str(installed.parent)}
    before = os.times()
    done = run_command(words, cwd=cwd, env=environment)
    after = os.times()
    return done, after.children_user + after.children_system - before.children_user - before.children_system


def test_the_wheel_holds_the_configuration_and_no_tests(installed: Path) -> None:
    conf = installed / "ghar" / "conf"
    there = {str(path.relative_to(conf)) for path in conf.rglob("*.yaml")}
    assert there == {str(path.relative_to(ROOT / "conf")) for path in (ROOT / "conf").rglob("*.yaml")}
    assert not [name for name in (*FOLDERS, "conf", "tests") if (installed / name).exists()]


def test_help_and_version_are_quick(installed: Path, tmp_path: Path) -> None:
    command = str(installed / "bin" / "ghar")
    done, spent = run(installed, command, "--help", cwd=tmp_path)
    assert done.returncode == 0 and spent < 1 and all(f"\n  {name} " in done.stdout for name in ("train", "report"))
    done, spent = run(installed, command, "--version", cwd=tmp_path)
    assert done.stdout == f"ghar {ghar.__version__}\n" and spent < 1
    done, spent = run(installed, command, "train", "--help", cwd=tmp_path)
    assert done.returncode == 0 and spent < 2, done.stderr
    assert "mimic4_los" in done.stdout and "quick" in done.stdout
    done, _ = run(installed, command, "trian", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.endswith("Did you mean train?\n")
    assert not list(tmp_path.iterdir())


def test_its_own_mistakes_are_one_sentence(installed: Path, tmp_path: Path) -> None:
    for words in (["report"], ["report", "nowhere"], ["evaluate", "systm=ghar"]):
        done, _ = run(installed, str(installed / "bin" / "ghar"), *words, cwd=tmp_path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_gymnasium_makes_the_environments_without_an_import(installed: Path, tmp_path: Path) -> None:
    code = (
        "import gymnasium; env = gymnasium.make('ghar.envs.register:ghar/GHAR-v0');"
        "prompt, info = env.reset(seed=0); print(info['role'])"
    )
    done, _ = run(installed, sys.executable, "-c", code, cwd=tmp_path)
    assert done.stdout == "rewrite\n", done.stderr
    assert not list(tmp_path.iterdir())  # the cache is in a folder of the user, and not in the working folder


def test_a_users_own_folders_hide_nothing(installed: Path, tmp_path: Path) -> None:
    """Most projects have an envs/ or a trainers/ of their own, and Python looks there first."""
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not this one')")
    code = (
        "import ghar, gymnasium; task = ghar.open('demo', None, 'data.patients=60').task('los');"
        "env = gymnasium.make('ghar.envs.register:ghar/GHAR-v0'); print(env.reset(seed=0)[1]['role'])"
    )
    done, _ = run(installed, sys.executable, "-c", code, cwd=tmp_path)
    assert done.stdout == "rewrite\n", done.stderr
    command = str(installed / "bin" / "ghar")
    done, _ = run(installed, command, "data", "task=los", "data.patients=60", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_two_doors_for_three_lines(installed: Path, tmp_path: Path) -> None:
    code = (
        "import ghar, json;"
        "task = ghar.open('demo', None, 'data.patients=60').task('los');"
        "print(json.dumps([task.task.name, len(task.samples), len(task.splits.test)]))"
    )
    done, _ = run(installed, sys.executable, "-c", code, cwd=tmp_path)
    name, samples, test = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else pytest.fail(done.stderr)
    assert name == "los" and samples > test > 0


TINY = ("threads=1", "data.patients=100", "task.max_test=12", "trainer.base.steps=5", "trainer.warmup.samples=40",
        "trainer.rl.updates=1", "trainer.rl.episodes=8", "trainer.rl.eval_samples=8", "eval.bootstrap=20")  # fmt: skip
LOADED = """
import ghar
task = ghar.open("demo", None, "data.patients=100").task("los")
agent = ghar.load("runs/quick")
sample = task.splits.valid[0]  # most of them are beyond the limits of a quick run
assert {known.sample_id for known in task.splits.test} > {case.sample_id for case in agent.system.cases.test}
newest = agent.predict(agent.patients[0]).sample_id
assert newest == [known.sample_id for known in task.samples if known.subject_id == agent.patients[0]][-1]
assert [found.sample_id for found in agent.predict([sample, agent.patients[0]])] == [sample.sample_id, newest]
one, two = agent.predict(task.splits.test[0].sample_id), agent.predict([sample, sample.subject_id])
labels = task.task.labels
assert one.trail and all(found.label in (None, *labels) for found in (one, *two))  # so little training may not answer
for found in (one, *two):
    assert (found.probabilities is None) == (found.label is None)
    assert found.label is None or abs(sum(found.probabilities.values()) - 1) < 1e-6
assert [found.sample_id for found in two][0] == sample.sample_id
try:
    agent.predict(-1)
except ghar.errors.BadInput as error:
    print(error)
"""


def test_from_nothing_to_a_report_and_a_prediction(installed: Path, tmp_path: Path) -> None:
    """`ghar train --quick`, smaller still, then its report again, and the run as an object."""
    command = str(installed / "bin" / "ghar")
    done, _ = run(installed, command, "train", "--quick", *TINY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    phases = ["1/5 base model", "2/5 examples", "3/5 SFT", "4/5 RL", "5/5 evaluation"]
    assert [line for line in done.stdout.splitlines() if line in phases] == phases
    long = [line for line in done.stdout.splitlines() if len(line) > 100]
    assert not long, long
    assert "Loading weights" not in done.stderr and "Warning" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    (tmp_path / "runs" / "quick" / "report.html").unlink()
    done, _ = run(installed, command, "report", "runs/quick", cwd=tmp_path)
    assert done.stdout == "Report: runs/quick/report.html\n" and (tmp_path / "runs/quick/report.html").is_file()
    done, _ = run(installed, sys.executable, "-c", LOADED, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("There is no subject_id -1"), done.stderr
    assert "Traceback" not in done.stderr  # of what is let go of when Python ends


@needs_smollm2
def test_a_real_model_is_planned_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """`ghar plan model=smollm2 scale=laptop`, of few patients: no key and no file besides what is installed."""
    words = ("plan", "model=smollm2", "scale=laptop", "data.patients=100")
    done, _ = run(installed, str(installed / "bin" / "ghar"), *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    phases = [line.split()[0] for line in done.stdout.splitlines() if line.split()]
    assert all(name in phases for name in ("teacher", "sft", "rl", "evaluation")), done.stdout
    assert not list(tmp_path.iterdir())


def test_every_command_is_a_launcher() -> None:
    for name, (module, _, about) in COMMANDS.items():
        assert name == "study" or (ROOT / "launch" / f"{module}.py").is_file()
        assert f"  {name:12} {about}" in usage(COMMANDS)
    assert all(len(line) <= 100 for line in usage(COMMANDS).splitlines())
