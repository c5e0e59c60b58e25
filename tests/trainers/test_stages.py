"""A warm-up that nothing in a run uses is left out, and nothing is later answered in its name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ghar.config import Config
from ghar.envs.ghar.label_only import STAGE
from ghar.envs.system import Reporting, System, Training, Variant
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.evaluation.evaluate import evaluate
from ghar.trainers.plan import phases_of
from ghar.trainers.probe import EpisodeCounts
from ghar.trainers.recipe import train
from ghar.trainers.runs.fork_run import begin_from
from ghar.trainers.stages import further_stages, may_skip_warm_up, needs_warm_up

SHORT = (
    "+experiment=mimic4_los", "threads=1", "data.patients=120", "model.hidden=32", "model.layers=2",
    "model.vocab=1600", "trainer.base.steps=2", "trainer.base.batch=16", "trainer.warmup.epochs=1",
    "system.label_epochs=2", "trainer.rl.updates=0", "task.max_train=30", "task.max_valid=10", "task.max_test=8",
    "eval.bootstrap=20", f"eval.variants=[{STAGE},usual]",
)  # fmt: skip
WARM_UP = ("sft", "lessons.npz", "sft-steps", "lessons-parts")


def system(*stages: str) -> System[Any]:
    """Four variants: of two further stages, of the trained policy and of the base model."""
    who = {"one": "one", "other": "other", "after": "sft", "main": "trained", "before": "base", "rule": "rule"}
    made: Any = object.__new__(System)
    object.__setattr__(made, "name", "own")
    object.__setattr__(made, "variants", {name: Variant(name, who=own) for name, own in who.items()})
    object.__setattr__(made, "training", Training(stages=dict.fromkeys(stages)))  # type: ignore[arg-type]
    object.__setattr__(made, "report", Reporting())
    object.__setattr__(made, "refused", {})
    return made


@pytest.mark.parametrize(
    ("variants", "updates", "stages", "needed"),
    [
        ("one", 0, ["one"], False), ("one,other", 0, ["one", "other"], False), ("one,before,rule", 0, ["one"], False),
        ("one,after", 0, ["one"], True), ("one,main", 0, ["one"], True), ("one", 1, ["one"], True),
        ("before,rule", 0, [], True),  # it would train nothing
    ],
)  # fmt: skip
def test_who_uses_the_warm_up(variants: str, updates: int, stages: list[str], needed: bool) -> None:
    config = load([f"eval.variants=[{variants}]", f"trainer.rl.updates={updates}"])
    assert further_stages(system("one", "other"), config) == stages
    assert needs_warm_up(system("one", "other"), config) == needed and (needed or may_skip_warm_up(config))
    everything = replace(config, eval=replace(config.eval, variants=None))
    assert needs_warm_up(system("one", "other"), everything) and not may_skip_warm_up(everything)
    with pytest.raises(BadInput, match=r"no variant onne.*Did you mean one\?"):
        needs_warm_up(system("one"), load(["eval.variants=[onne]"]))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def short(run: Path, cache: Path, *overrides: str) -> Config:
    return load([*SHORT, f"run_dir={run}", f"data.cache={cache}", *overrides])


@pytest.mark.slow
def test_a_run_of_label_only_sft_plays_no_teacher(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ghar.trainers.recipe.taught", lambda *_: pytest.fail("the teacher plays"))
    planned: list[str] = []
    monkeypatch.setattr("ghar.trainers.recipe.check_machine", lambda own: planned.append(own.trainer.warmup.teacher))
    run = tmp_path / "run"
    train(short(run, cache, "trainer.warmup.teacher=too-large"))
    printed = capsys.readouterr().out
    assert f"The warm-up is left out: trainer.rl.updates=0, and no variant uses it ({STAGE}, usual)." in printed
    assert "1/2 base model" in printed and "2/2 evaluation" in printed
    kept, summary = run / "checkpoints", json.loads((run / "summary.json").read_text())
    assert (kept / "base").is_dir() and (kept / STAGE).is_dir() and not any((kept / name).exists() for name in WARM_UP)
    assert set(summary["time"]) == {"data", "base", STAGE, "evaluation"}
    assert summary["answered_by"] == {STAGE: STAGE, "usual": "no one"} and summary["model"]["parameters"] > 0
    assert planned == ["scripted"] and summary["lessons"] == {} and summary["trained_on"]["SFT replies"] == 0
    assert summary["trained_on"]["replies of label_sft"] > 0

    again = evaluate(short(run, cache))
    assert again["policies"][STAGE]["accuracy"] == summary["policies"][STAGE]["accuracy"]
    capsys.readouterr()
    whole = evaluate(replace(short(run, cache), eval=replace(short(run, cache).eval, variants=None)))
    printed = capsys.readouterr().out
    assert {STAGE, "ghar_base", "scripted"} < set(whole["policies"])
    for name in ("ghar_sft", "ghar_rl", "llm_only", "always_rag"):
        assert f"{name} is left out: {kept / 'sft'}" in printed and name not in whole["policies"]
    for name in ("ghar_sft", "ghar_rl"):
        with pytest.raises(BadInput, match=rf"sft does not exist, whose weights play {name}: leave this variant out"):
            evaluate(short(run, cache, f"eval.variants=[{STAGE},{name}]"))


@pytest.mark.slow
def test_a_run_without_warm_up_goes_on_as_it_began_and_no_other_starts_from_it(cache: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(short(whole, cache))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ghar.trainers.recipe._finish", lambda run: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(short(cut, cache))
    for changed in ("trainer.rl.updates=1", f"eval.variants=[{STAGE},ghar_sft]"):
        with pytest.raises(BadInput, match=r"holds a run of another configuration .*choose another run_dir"):
            train(short(cut, cache, changed))
    train(short(cut, cache))
    rows = [[{**row, "seconds": 0} for row in RunFolder(run).episodes(STAGE)] for run in (whole, cut)]
    assert rows[0] == rows[1] and not (cut / "checkpoints" / "sft").exists()
    with pytest.raises(BadInput, match=r"has no checkpoints/sft to start from: finish its training"):
        begin_from(whole, short(tmp_path / "forked", cache, "trainer.rl.updates=1"))
    assert not (tmp_path / "forked").exists()
    train(short(cut, cache, f"run_dir={tmp_path / 'more'}", f"eval.variants=[{STAGE},ghar_sft]"))
    assert (tmp_path / "more" / "checkpoints" / "sft").is_dir()


@pytest.mark.slow
def test_the_plan_has_the_phases_that_are_played(cache: Path, tmp_path: Path) -> None:
    from ghar.envs.records import Records
    from ghar.envs.system import build

    counted = EpisodeCounts(3, 300, 6, seconds=0.5, steps=2, rows=5)
    for names, warm_up in ((STAGE, []), (f"{STAGE},ghar_sft", ["teacher", "sft"])):
        config = short(tmp_path, cache, f"eval.variants=[{names}]")
        found = phases_of(build(Records(config)), config, counted, None, {"sft": 2.0, "evaluation": 1.0}, 1)
        assert [phase.name for phase in found] == ["base", *warm_up, STAGE, "evaluation"]
