"""The launchers from outside: exit codes, sentences, speed, where they can be started from."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ghar
from ghar.configure import allowed, key_types
from ghar.envs.system import settings_of
from ghar.errors import BadInput
from ghar.launch import help as helping
from ghar.launch.entry import choices, groups, load, plainly
from tests.running import run_python

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = [f"{source}_{task}" for source in ("mimic4", "mimic3", "eicu") for task in ("los", "read", "dec")]

# A launcher like the real ones, whose job is to say what it was told.
PROBE = f"""
import sys
sys.path[0] = {str(ROOT)!r}
from ghar.errors import BadInput
from ghar.launch.entry import launch

def run(config):
    if config.seed == 13:
        raise BadInput("admissions.csv row 3: no date; correct it.")
    if config.seed == 99:
        raise RuntimeError("a bug")
    print(config.task.name, config.seed, config.run_dir)

launch(run)
"""

KARE = ["exprag_demo", "kare_demo", "mimic4_kare_mortality", "mimic4_kare_readmission"]  # and of EXPRAG

NEEDS = {  # choices that do not go with the rest of the defaults, and what they ask for
    "api": ["system=kare", "model=pretrained", "model.path=model@http://127.0.0.1:8000/v1"],
    "demo_long": ["task=labels"],  # their one question comes with them
    "demo_long_small": ["task=labels"],
    "demo_cases": ["task=labels"],
    "labels": ["task.labels=labels.parquet", "task.question=Will it happen?"],
    "kare_mortality": ["data=mimic4", "data.root=tables"],  # not of the demo world
    "kare_readmission": ["data=mimic4", "data.root=tables"],
    **{f"dischargeqa_{kind}": ["system=exprag"] for kind in ("diagnosis", "medication", "instruction")},
    **{name: ["system=ehr_rag"] for name in ("guo_los", "guo_readmission", "new_acutemi", "lab_anemia")},
    **{f"series_{task}": ["system=graphwalker"] for task in ("mortality", "readmission", "los", "dec")},
    "summary": ["task=summary", "data=summary", "data.root=notes.csv"],
    "medqa": ["system=graphwalker", "system.encoder=text", "task=medqa", "data=medqa", "data.root=exam.jsonl"],
}


@pytest.fixture
def probe(tmp_path: Path) -> Path:
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    return script


def start(script: Path, *arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return run_python(script, *arguments, cwd=cwd or script.parent, env=env)


SCRIPTS = sorted(
    path.name
    for path in (ROOT / "launch").glob("*.py")
    if "launch(run" in (text := path.read_text()) or "plainly(lambda" in text
)


@pytest.mark.parametrize("script", [
    pytest.param(name, marks=() if name == "train.py" else pytest.mark.slow) for name in SCRIPTS if name != "entry.py"
])  # fmt: skip
def test_help_is_quick_and_works_from_any_folder(script: str, tmp_path: Path) -> None:
    """It begins with what this script is for, and lists no part of another choice (_base), nor W&B's sweeps."""
    before = os.times()
    done = start(ROOT / "launch" / script, "--help", cwd=tmp_path)
    # Processor time, because other tests run beside this one.
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 2
    purpose = ast.get_docstring(ast.parse((ROOT / "launch" / script).read_text()))
    assert done.returncode == 0 and done.stdout.startswith((purpose or "").splitlines()[0]), done.stderr
    assert "mimic4_los" in done.stdout and "  trainer.rl.updates: a whole number at least 0; of the" in done.stdout
    assert not re.search(r"\b_base|_own\b|sweeps=", done.stdout)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_every_key_has_a_meaning_and_every_group_is_in_the_help() -> None:
    for room in choices("system"):
        settings = settings_of(room) if (ROOT / "envs" / room).is_dir() else settings_of("ghar")
        found = helping.overview("", {group: choices(group) for group in groups()}, settings)
        said = " ".join(found.split())
        for key, kind in key_types(settings).items():
            assert f" {key}: {allowed(kind)}; " in said, key
        assert all(f" {'+' if group == 'experiment' else ''}{group}=" in said for group in groups())


@pytest.mark.slow
@pytest.mark.parametrize("arguments, said", [
    (["--help", "trainer.rl.clip"], ["trainer.rl.clip must be a number above 0.", "epsilon of Eq. 16", "default: 0.2"]),
    (["--help=seed", "seed=5"], ["seed must be a whole number at least 0.", "drawn", "default: 5"]),
    (["--help", "system.rewrites"], ["system.rewrites must be a whole number at least 1.", "queries", "default: 3"]),
    (["--help", "system.leiden_runs", "system=kare"], ["system.leiden_runs must be", "Leiden", "default: 25"]),
    (["system=kare_released", "--help", "system.beta"], ["from 0 to 1", "decay of repeated nodes", "default: 0.5"]),
    (["--help", "data.root"], ["data.root must be a non-empty text, or null.", "folder", "default: null"]),
    (["--help", "task.split"], ["a list of 3 values, each a number from 0 to 1", "default: [0.6,0.2,0.2]"]),
    (["--help", "engine"], ["engine=api | hf | vllm", "engine.max_batch: a whole number"]),
    (["--help", "experiment"], ["+experiment=", "mimic4_los"]),
    (["--version"], [f"ghar {ghar.__version__}"]),
])  # fmt: skip
def test_help_on_one_key_says_meaning_type_range_and_default(
    arguments: list[str], said: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    plainly(lambda: pytest.fail("the job ran"), "usage")
    printed = capsys.readouterr().out
    assert all(part in printed for part in said) and "usage" not in printed


@pytest.mark.slow
def test_help_reads_the_keys_of_a_users_own_system() -> None:
    own = ROOT / "docs" / "examples"
    done = start(ROOT / "launch" / "train.py", "--help", "system.searches", "system=mine.searcher", cwd=own)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "system.searches must be a whole number at least 1.\nat most, for a patient\ndefault: 2\n"


@pytest.mark.slow
@pytest.mark.parametrize("script", ["train.py"])
@pytest.mark.parametrize("arguments, said", [
    (["--help", "trainer.rl.updtes"], "There is no key trainer.rl.updtes: did you mean trainer.rl.updates?"),
    (["--experiment", "mimic4_lso"], "There is no experiment=mimic4_lso. Choices: "),
    (["--run-dir", "here"], "--run-dir is not how keys are set: write run_dir=here."),
    (["--learning-rate", "1"], "There is no option --learning-rate: write key=value; --help lists all keys."),
])  # fmt: skip
def test_options_with_dashes_are_one_sentence(script: str, arguments: list[str], said: str, tmp_path: Path) -> None:
    done = start(ROOT / "launch" / script, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith(said) and done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("script", ["evaluate.py", "prepare_data.py", "train_ray.py"])
def test_what_is_only_to_be_planned_is_not_done(script: str, tmp_path: Path) -> None:
    done = start(ROOT / "launch" / script, "plan=true", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "plan=true plans a training, with its evaluation: run launch/train.py with these keys.\n"


@pytest.mark.slow
@pytest.mark.parametrize("written", [["--experiment", "mimic4_read"], ["--experiment=mimic4_read"]])
def test_an_experiment_may_be_named_with_dashes(probe: Path, written: list[str]) -> None:
    done = start(probe, *written, "seed=4")
    assert (done.returncode, done.stdout) == (0, "read 4 runs/ghar_read_mimic4_demo_seed4\n"), done.stderr


@pytest.mark.slow
def test_a_good_command_runs_the_job_and_leaves_nothing_of_hydras(probe: Path) -> None:
    done = start(probe, "+experiment=mimic4_read", "seed=4", "trainer.rl.updates=2")
    assert (done.returncode, done.stdout) == (0, "read 4 runs/ghar_read_mimic4_demo_seed4\n"), done.stderr
    assert [f.name for f in probe.parent.iterdir()] == ["probe.py"]


@pytest.mark.slow
def test_a_sweep_gives_each_job_its_folder(probe: Path) -> None:
    done = start(probe, "--multirun", "seed=1,2", "run_dir=here")
    assert (done.returncode, done.stdout) == (0, "los 1 here/0\nlos 2 here/1\n"), done.stderr


@pytest.mark.slow
def test_a_sweep_is_checked_whole_before_its_first_job(probe: Path) -> None:
    done = start(probe, "--multirun", "seed=1,-2")
    assert (done.returncode, done.stdout) == (2, "") and "seed is -2" in done.stderr


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_bad_job_and_names_it_at_the_end(probe: Path) -> None:
    done = start(probe, "--multirun", "seed=1,13,2", "run_dir=here")
    assert (done.returncode, done.stdout) == (2, "los 1 here/0\nlos 2 here/2\n"), done.stderr
    assert done.stderr.splitlines() == [
        "admissions.csv row 3: no date; correct it.",
        "1 jobs of this sweep failed: job 1 (run_dir=here,seed=13). The others are done.",
    ]


@pytest.mark.slow
def test_a_configuration_is_shown_for_one_run_alone(probe: Path) -> None:
    done = start(probe, "-m", "seed=1,2", "--cfg", "job")
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1 and "--multirun" in done.stderr


CHEAP = {  # a command line whose mistake needs no model -> words of its sentence
    "study.py study=gahr": "There is no study=gahr", "study.py study=ghar scale=rulse": "There is no scale=rulse",
    "study.py study=ghar on=moon": "on=moon is no place to run",
    "compare.py systems=[ghar,kar] task=read": "There is no system=kar",
    "compare.py systems=[ghar] task=read runs=[nowhere]": "nowhere holds no config.yaml",
    "compare.py systems=[ghar,kare] task=read data=mimic4 data.root=other": "There is no graph at other/kg/kg.csv.gz",
    "train_ray.py data=mimic4 data.root=other": "There is no graph at other/kg/kg.csv.gz",
    "evaluate.py data=mimic4 data.root=nowhere": "data.root=nowhere does not exist",
    "evaluate.py eval.checkpoint=nowhere": "eval.checkpoint=nowhere is no folder",
    "train.py run_dir=file": "is a file and no folder", "train.py run_dir=file/below": "is a file and no folder",
    "train.py run_dir=other": "holds a run of another configuration",
}  # fmt: skip
HEAVY = "\n".join((
    "import runpy, sys",
    "class Watch:",
    "    def find_spec(self, name, path=None, target=None):",
    "        if name in ('transformers', 'trl', 'ray', 'faiss', 'deepspeed'): sys.exit('heavy ' + name)",
    "sys.meta_path.insert(0, Watch())",
    "sys.argv = sys.argv[1:]",
    "runpy.run_path(sys.argv[0], run_name='__main__')",
))


@pytest.mark.slow
@pytest.mark.parametrize("line", CHEAP)
def test_a_mistake_that_needs_no_model_is_found_before_anything_heavy_is_imported(line: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.yaml").write_text("seed: 77\n")
    (tmp_path / "watch.py").write_text(HEAVY)
    script, *words = line.split()
    done = start(tmp_path / "watch.py", str(ROOT / "launch" / script), *words, cwd=tmp_path)
    assert done.returncode == 2 and CHEAP[line] in done.stderr, done.stderr
    assert "heavy" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_bad_input_anywhere_is_one_sentence_and_exit_code_2(probe: Path) -> None:
    done = start(probe, "seed=13")
    assert (done.returncode, done.stderr) == (2, "admissions.csv row 3: no date; correct it.\n")


@pytest.mark.slow
def test_a_bug_keeps_its_traceback(probe: Path) -> None:
    done = start(probe, "seed=99")
    assert done.returncode == 1 and "RuntimeError: a bug" in done.stderr


@pytest.mark.slow
def test_under_torchrun_only_the_first_process_speaks(probe: Path) -> None:
    done = start(probe, "sed=1", RANK="1")
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.slow
def test_real_launchers_report_every_mistake_at_once(tmp_path: Path) -> None:
    mistakes = ["trainer.rl.updtes=2", "data=mimc4", "+experiment=mimic4_lso", "retrievr=e5", "trainer.rl.lr=abc"]
    done = start(ROOT / "launch" / "train_ghar.py", *mistakes, cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    said = done.stderr.splitlines()
    meant = ["trainer.rl.updates", "mean mimic4", "mean mimic4_los", "mean retriever", "trainer.rl.lr is"]
    assert len(said) == 5 and all(m in line for m, line in zip(meant, said, strict=True))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("override, said", [
    ("scale=ful", "There is no scale=ful. Choices: demo, full, laptop. Did you mean full?"),
    ("logger=none", "There is no logger=none. Choices: wandb."),
    ("retriever=intfloat/e5-small", "retriever.kind=intfloat/e5-small"),
    ("data=_base", "There is no data=_base. Choices: demo"),
    ("experiment=mimic4_los", "write +experiment=mimic4_los"),
    ("+seed=1", "write seed=1"),
    ("+data=demo", "write data=demo"),
    ("+trainer.rl.extra=1", "There is no key trainer.rl.extra"),
    ("trainer.rl={lr: 1}", "one by one"),
    ("seed", "cannot be read"),
    ("/system=exprag", "cannot be read"),
    ("system@other=exprag", "Could not override"),
    ("~task", "leave it out"),
    ("seed=1,2", "--multirun"),
    ("run_dir=${nowhere}", "nowhere"),
    ("scale=full", "set data.root"),
])  # fmt: skip
def test_a_bad_override_says_what_to_write(override: str, said: str) -> None:
    with pytest.raises(BadInput, match=r".") as caught:
        load([override])
    assert said in str(caught.value)


def test_a_folder_that_hydra_is_pointed_to_adds_no_group_and_no_choice(tmp_path: Path) -> None:
    """Groups and choices are those of conf/; a choice of the user's own is a module."""
    for group, override in {"theirs": "+theirs=own", "retriever": "retriever=own"}.items():
        (tmp_path / group).mkdir()
        (tmp_path / group / "own.yaml").write_text("kind: tfidf\n")
        with pytest.raises(BadInput, match=r"^There is no (key theirs|retriever=own)[:.]"):
            load([f"hydra.searchpath=[file://{tmp_path}]", override])


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes(name: str) -> None:
    config = load([f"+experiment={name}"])
    assert f"{config.data.name}_{config.task.name}" == name and config.data.root is None


def test_there_is_an_experiment_for_each_source_and_task() -> None:
    others = ["navigation", "mimic4_dischargeqa", "order_check", "quick", "graphwalker_demo", "ehr_rag_demo", *KARE]
    assert choices("experiment") == sorted([*EXPERIMENTS, *others])


@pytest.mark.slow
@pytest.mark.parametrize("group", [g for g in groups() if g not in ("experiment", "scale")])
def test_every_choice_of_every_group_composes(group: str) -> None:
    for choice in choices(group):
        load([f"{group}={choice}", *NEEDS.get(choice, [])])


def test_the_command_line_wins_over_experiment_and_scale() -> None:
    tables = ["data.root=tables", "kg.path=kg.csv"]
    config = load(["+experiment=mimic4_los", "task=dec", "scale=full", "retriever=bm25", *tables])
    assert (config.task.name, config.retriever.kind, config.model.kind) == ("dec", "bm25", "pretrained")


@pytest.mark.slow
def test_a_reader_that_stops_early_is_no_error_and_a_broken_connection_kills_no_one() -> None:
    """`--help | head -1` ends quietly; SIGPIPE stays ignored, or a server that hangs up would end a training."""
    train = ROOT / "launch" / "train.py"
    done = subprocess.run(
        f"{sys.executable} {train} --help | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.strip()
    code = "import signal; from ghar.launch.entry import plainly; plainly(lambda: print(signal.getsignal(13).name), '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "SIG_IGN"
