"""The launchers from outside: exit codes, sentences, speed, where they can be started from."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ghar.errors import BadInput
from launch.entry import choices, groups, load

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = [f"{source}_{task}" for source in ("mimic4", "mimic3", "eicu") for task in ("los", "read", "dec")]

# A launcher like the real ones, whose job is to say what it was told.
PROBE = f"""
import sys
sys.path[0] = {str(ROOT)!r}
from ghar.errors import BadInput
from launch.entry import launch

def run(config):
    if config.seed == 13:
        raise BadInput("admissions.csv row 3: no date; correct it.")
    if config.seed == 99:
        raise RuntimeError("a bug")
    print(config.task.name, config.seed, config.run_dir)

launch(run)
"""

KARE = ["kare_demo", "mimic4_mortality", "mimic4_readmission"]

NEEDS = {  # choices that do not go with the rest of the defaults, and what they ask for
    "pretrained": ["trainer.base.steps=0"],
    "mistral_7b": ["trainer.base.steps=0"],
    "api": ["policy=kare", "model=pretrained", "model.path=model@http://127.0.0.1:8000/v1", "trainer.base.steps=0"],
    "kare_mortality": ["data=mimic4", "data.root=tables"],  # not told in the demo world
    "kare_readmission": ["data=mimic4", "data.root=tables"],
    **{f"dischargeqa_{kind}": ["policy=exprag"] for kind in ("diagnosis", "medication", "instruction")},
    **{name: ["policy=ehr_rag"] for name in ("guo_los", "guo_readmission", "new_acutemi", "lab_anemia")},
    **{
        f"{source}_{task}": ["policy=graphwalker", *(() if source == "series" else ("data.root=tables",))]
        for source in ("series", "mimic3", "mimic4")
        for task in ("mortality", "readmission", "los")
    },
    "medqa": ["policy=graphwalker", "selector.encoder=text", "data.root=exam.jsonl"],
}


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    return script


def start(script: Path, *arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd or script.parent,
        env={**os.environ, **env},
        timeout=60,
    )


@pytest.mark.parametrize("script", ["train_ghar.py", "evaluate.py"])
def test_help_is_quick_and_works_from_any_folder(script: str, tmp_path: Path) -> None:
    before = os.times()
    done = start(ROOT / "launch" / script, "--help", cwd=tmp_path)
    # Processor time, because other tests run beside this one.
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 3
    assert done.returncode == 0 and "mimic4_los" in done.stdout and "updates:" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_good_command_runs_the_job_and_leaves_nothing_of_hydras(probe: Path) -> None:
    done = start(probe, "+experiment=mimic4_read", "seed=4", "trainer.rl.updates=2")
    assert (done.returncode, done.stdout) == (0, "read 4 runs/read_mimic4_demo_seed4\n"), done.stderr
    assert [f.name for f in probe.parent.iterdir()] == ["probe.py"]


def test_a_sweep_gives_each_job_its_folder(probe: Path) -> None:
    done = start(probe, "--multirun", "seed=1,2", "run_dir=here")
    assert (done.returncode, done.stdout) == (0, "los 1 here/0\nlos 2 here/1\n"), done.stderr


def test_a_sweep_is_checked_whole_before_its_first_job(probe: Path) -> None:
    done = start(probe, "--multirun", "seed=1,-2")
    assert (done.returncode, done.stdout) == (2, "") and "seed is -2" in done.stderr


def test_bad_input_anywhere_is_one_sentence_and_exit_code_2(probe: Path) -> None:
    done = start(probe, "seed=13")
    assert (done.returncode, done.stderr) == (2, "admissions.csv row 3: no date; correct it.\n")


def test_a_bug_keeps_its_traceback(probe: Path) -> None:
    done = start(probe, "seed=99")
    assert done.returncode == 1 and "RuntimeError: a bug" in done.stderr


def test_under_torchrun_only_the_first_process_speaks(probe: Path) -> None:
    done = start(probe, "sed=1", RANK="1")
    assert (done.returncode, done.stderr) == (2, "")


def test_real_launchers_report_every_mistake_at_once(tmp_path: Path) -> None:
    mistakes = ["trainer.rl.updtes=2", "data=mimc4", "+experiment=mimic4_lso", "retrievr=e5", "trainer.rl.lr=abc"]
    done = start(ROOT / "launch" / "train_ghar.py", *mistakes, cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    said = done.stderr.splitlines()
    meant = ["trainer.rl.updates", "mean mimic4", "mean mimic4_los", "mean retriever", "trainer.rl.lr is"]
    assert len(said) == 5 and all(m in line for m, line in zip(meant, said, strict=True))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("override, said", [
    ("scale=ful", "did you mean full, of demo, full?"),
    ("logger=none", "did you mean wandb?"),
    ("retriever=intfloat/e5-small", "retriever.kind=intfloat/e5-small"),
    ("data=_base", "does not exist"),
    ("experiment=mimic4_los", "write +experiment=mimic4_los"),
    ("+seed=1", "write seed=1"),
    ("+data=demo", "write data=demo"),
    ("+trainer.rl.extra=1", "There is no key trainer.rl.extra"),
    ("trainer.rl={lr: 1}", "one by one"),
    ("seed", "cannot be read"),
    ("~task", "leave it out"),
    ("seed=1,2", "--multirun"),
    ("run_dir=${nowhere}", "nowhere"),
    ("scale=full", "set data.root"),
])  # fmt: skip
def test_a_bad_override_says_what_to_write(override: str, said: str) -> None:
    with pytest.raises(BadInput, match=r".") as caught:
        load([override])
    assert said in str(caught.value)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes(name: str) -> None:
    config = load([f"+experiment={name}"])
    assert f"{config.data.name}_{config.task.name}" == name and config.data.root is None


def test_there_is_an_experiment_for_each_source_and_task() -> None:
    assert choices("experiment") == sorted([*EXPERIMENTS, "navigation", "mimic4_dischargeqa", *KARE])


@pytest.mark.parametrize("group", [g for g in groups() if g not in ("experiment", "scale")])
def test_every_choice_of_every_group_composes(group: str) -> None:
    for choice in choices(group):
        load([f"{group}={choice}", *NEEDS.get(choice, [])])


def test_the_command_line_wins_over_experiment_and_scale() -> None:
    tables = ["data.root=tables", "kg.path=kg.csv"]
    config = load(["+experiment=mimic4_los", "task=dec", "scale=full", "retriever=bm25", *tables])
    assert (config.task.name, config.retriever.kind, config.model.kind) == ("dec", "bm25", "pretrained")
