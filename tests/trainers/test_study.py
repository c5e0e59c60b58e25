"""A study's machinery on cells that are played in an instant: plan, resume, holes, numbers, verification."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from ghar.config import Config
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.study.figures import figures_of
from ghar.trainers.study.folder import StudyFolder
from ghar.trainers.study.jobs import StudyJobs, model_numbers, run_command
from ghar.trainers.study.metrics import number_of
from ghar.trainers.study.numbers import numbers_of, table_of
from ghar.trainers.study.plan import plan_study
from ghar.trainers.study.predictions import check
from ghar.trainers.study.run import conclude, kept_study, results_of, run_study
from ghar.trainers.study.samples import key_of
from ghar.trainers.study.schema import Cell, StudyScale, cells_of, of_tasks, read_study, source_of
from ghar.trainers.study.verify import by_sklearn, verify

CONTENT: dict[str, Any] = {
    "title": "A study", "about": "Of nothing.", "main": "good", "tasks": ["read", "los"], "seeds": [0, 1],
    "smallest": 3,
    "runs": [{"name": "one", "system": "ghar"}, {"name": "two", "system": "baselines", "train": False}],
    "rows": [
        {"name": "good", "title": "Good & right", "run": "one", "variant": "ghar_rl", "rule": "scripted"},
        {"name": "poor", "title": "Poor", "run": "two", "variant": "usual"},
        {"name": "none", "title": "No rule", "run": "one", "variant": "ghar_sft"},
    ],
    "tables": [
        {"name": "main", "title": "All", "draw": "none",
         "metrics": ["accuracy", "balanced_accuracy", "macro_f1", "auroc", "brier"]},
        {"name": "sex", "title": "By sex", "metrics": ["accuracy"], "tasks": ["read"], "by": "sex", "draw": "none"},
    ],
}  # fmt: skip
DRAWN = [{**table, "draw": "bars"} for table in CONTENT["tables"]]
RULES = StudyScale("rules", train=False, overrides=("eval.bootstrap=40",))


class Player:
    """Stands in the place of a job: answers each test sample, right as often as `skill` says, and may fail or stop."""

    def __init__(self, folder: StudyFolder, kept: Path) -> None:
        self.folder = folder
        self.kept = kept
        self.played: list[str] = []
        self.fails: dict[str, str] = {}
        self.stops_at: int | None = None
        self.change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda rows: rows

    def __call__(self, script: str, overrides: Sequence[str], run: Path) -> str | None:
        if self.stops_at == len(self.played):
            raise KeyboardInterrupt
        self.played.append(run.name)
        if run.name in self.fails:
            return self.fails[run.name]
        config = quickly(overrides)
        file = self.folder.samples(key_of(config))
        samples = pl.read_parquet(file)
        self.kept.mkdir(exist_ok=True)
        shutil.copy(file, self.kept)
        labels = sorted(samples["label"].unique())
        for variant in config.eval.variants or ():
            rng = np.random.default_rng([config.seed, len(variant)])
            skill = 0.9 if variant == "scripted" else 0.5
            test = samples.filter(pl.col("split") == "test").iter_rows(named=True)
            rows = [_episode(row, labels, skill, rng) for row in test]
            RunFolder.open(run).write_episodes(variant, self.change(rows))
        about = {"task": {"labels": labels}, "generated": True, "credentialed": False}
        RunFolder.open(run).write_summary(about | {"answered_by": {v: "rule" for v in config.eval.variants or ()}})
        return None


def _episode(row: dict[str, Any], labels: list[str], skill: float, rng: np.random.Generator) -> dict[str, Any]:
    right, shares = rng.random() < skill, rng.dirichlet(np.ones(len(labels)))
    answer = row["label"] if right else (None if rng.random() < 0.1 else labels[int(rng.integers(len(labels)))])
    return {
        "sample_id": row["sample_id"], "subject_id": row["subject_id"], "label": row["label"], "prediction": answer,
        "label_probabilities": shares.tolist(), "correct": answer == row["label"], "needs_retrieval": None,
        "retrieved": False, "iterations": 0, "reward": 0.0, "prompt_tokens": 3, "completion_tokens": 1,
        "retrievals": 0, "seconds": 0.1, "turns": [],
    }  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path, world_cache: Path) -> tuple[StudyJobs, Player]:
    return workshop(tmp_path / "study", world_cache)


@cache
def composed(overrides: tuple[str, ...]) -> Config:
    return load(overrides)


def quickly(overrides: Sequence[str]) -> Config:
    """`load`, composing once what differs in seed and folder alone."""
    own = {text.partition("=")[0]: text.partition("=")[2] for text in overrides}
    config = composed(tuple(t for t in overrides if not t.startswith(("seed=", "trainer.base.seed=", "run_dir="))))
    return replace(config, seed=int(own["seed"]), run_dir=own["run_dir"])


def workshop(path: Path, world: Path, **changes: Any) -> tuple[StudyJobs, Player]:
    folder = StudyFolder(path)
    if (world / "samples").is_dir():  # of an earlier test
        shutil.copytree(world / "samples", path / "samples")
    player = Player(folder, world / "samples")
    study = read_study("mine", {**CONTENT, **changes})
    more = ("data.patients=150", f"data.cache={world}")
    return StudyJobs(study, RULES, folder, quickly, more, start=player), player


def quiet(text: str) -> None:
    return None


@pytest.mark.slow
def test_a_study_is_played_drawn_and_verified(tmp_path: Path, world_cache: Path) -> None:
    made, player = workshop(tmp_path / "study", world_cache, tables=DRAWN)
    numbers = run_study(made, quiet)
    path = made.folder.path
    assert len(player.played) == 8 and len(set(player.played)) == 8
    good = numbers["main-demo"]["cells"]["good"]["read/accuracy"]["all"]
    assert good["seeds"] == [0, 1] and good["low"] < good["value"] < good["high"] and good["patients"] > 10
    none = numbers["main-demo"]["cells"]["none"]["read/accuracy"]["all"]
    assert none == {"hole": "needs a trained model; scale=rules trains none"}
    test = numbers["main-demo"]["tests"]["poor"]["read/accuracy"]["all"]
    assert test["difference"] > 0 and test["holm"] >= test["p"]
    gap = numbers["sex-demo"]["gaps"]["good"]["read/accuracy"]
    assert gap["groups"] == ["female", "male"] and 0 <= gap["low"] <= gap["high"]
    found = verify(path)
    assert found.wrong == () and found.largest == 0 and found.by_sklearn > 30
    page = (path / "report.html").read_text()
    assert "Good &amp; right" in page and "patients are generated" in page and "needs a trained model" in page
    assert "Good \\& right" in (path / "tables" / "main-demo.tex").read_text()
    for file in ("main-demo-read", "main-demo-los", "sex-demo-read"):
        assert (path / "figures" / f"{file}.svg").read_text().startswith("<svg")
        assert (path / "figures" / f"{file}.png").read_bytes()[:4] == b"\x89PNG"
    lines = list(csv.DictReader((path / "tables" / "main-demo.csv").read_text().splitlines()))
    assert len(lines) == 3 * 2 * 5 and {line["task"] for line in lines} == {"read", "los"}


@pytest.mark.slow
def test_twenty_random_places_agree_with_scikit_learn(shop: tuple[StudyJobs, Player]) -> None:
    made, _ = shop
    numbers = run_study(made, quiet)
    results = results_of(made.folder, made.study)
    rng, count = np.random.default_rng(0), 0
    while count < 20:
        row = ("good", "poor")[rng.integers(2)]
        task, seed = ("read", "los")[rng.integers(2)], int(rng.integers(2))
        metric = ("accuracy", "balanced_accuracy", "macro_f1", "auroc", "brier")[rng.integers(5)]
        played = results.done[Cell(made.study.run(made.study.row(row).run), "demo", task, seed).id]
        expected = by_sklearn(metric, pl.read_parquet(played.rows[row]), played.labels)
        cell = numbers["main-demo"]["cells"][row][f"{task}/{metric}"]["all"]
        assert cell["each"][seed] == pytest.approx(expected, abs=1e-9)
        count += 1


@pytest.mark.slow
def test_stopped_at_any_moment_it_ends_with_the_same_digits(tmp_path: Path, world_cache: Path) -> None:
    whole, _ = workshop(tmp_path / "whole", world_cache)
    run_study(whole, quiet)
    again, player = workshop(tmp_path / "again", world_cache)
    for moment in (0, 2, 3, 6, 7):
        player.stops_at = moment
        with pytest.raises(KeyboardInterrupt):
            run_study(again, quiet)
    player.stops_at = None
    run_study(again, quiet)
    assert len(player.played) == 8
    assert (whole.folder.path / "numbers.json").read_text() == (again.folder.path / "numbers.json").read_text()
    tables = sorted(path.name for path in (whole.folder.path / "tables").iterdir())
    for name in (name for name in tables if not name.endswith(".html")):
        assert (whole.folder.path / "tables" / name).read_text() == (again.folder.path / "tables" / name).read_text()


@pytest.mark.slow
def test_a_cell_that_failed_is_a_named_hole_and_played_again(shop: tuple[StudyJobs, Player]) -> None:
    made, player = shop
    player.fails = {"one-demo-read-seed1": "the graph is gone: set kg.path."}
    numbers = run_study(made, quiet)
    cell = numbers["main-demo"]["cells"]["good"]["read/accuracy"]["all"]
    assert cell["seeds"] == [0] and cell["missing"] == ["the graph is gone: set kg.path."]
    assert "one-demo-read-seed1</b>: the graph is gone" in (made.folder.path / "report.html").read_text()
    assert not verify(made.folder.path).wrong
    player.fails, player.played = {}, []
    numbers = run_study(made, quiet)
    assert player.played == ["one-demo-read-seed1"]
    assert numbers["main-demo"]["cells"]["good"]["read/accuracy"]["all"]["seeds"] == [0, 1]


@pytest.mark.parametrize("change, sentence", [
    (lambda rows: rows[1:], "1 of .* test samples have no prediction"),
    (lambda rows: [*rows, rows[0]], "has two predictions"),
    (lambda rows: [{**rows[0], "sample_id": "strange"}, *rows[1:]], "samples that this cohort and split have not"),
    (lambda rows: [{**rows[0], "subject_id": 1}, *rows[1:]], "1 samples have other patients"),
    (lambda rows: [{**row, "label": "7"} for row in rows], "samples have other labels"),
])  # fmt: skip
def test_half_written_and_foreign_predictions_spoil_their_cell_alone(
    shop: tuple[StudyJobs, Player], change: Any, sentence: str
) -> None:
    made, player = shop
    player.change = lambda rows: change(rows) if player.played[-1] == "one-demo-read-seed0" else rows
    numbers = run_study(replace(made, study=replace(made.study, tasks=("read",))), quiet)
    cell = numbers["main-demo"]["cells"]["good"]["read/accuracy"]["all"]
    assert cell["seeds"] == [1] and re.search(sentence, cell["missing"][0])
    assert numbers["main-demo"]["cells"]["poor"]["read/accuracy"]["all"]["seeds"] == [0, 1]


def test_training_samples_are_no_test(shop: tuple[StudyJobs, Player]) -> None:
    frame = {"sample_id": ["a", "b"], "subject_id": ["1", "2"], "label": ["x", "x"]}
    samples = pl.DataFrame({**frame, "split": ["test", "train"]})
    with pytest.raises(BadInput, match="1 predictions are of training or validation samples"):
        check(pl.DataFrame(frame), samples, "cell")


@pytest.mark.slow
def test_what_was_changed_afterwards_is_found(shop: tuple[StudyJobs, Player]) -> None:
    made, _ = shop
    run_study(made, quiet)
    path = made.folder.path
    numbers = json.loads((path / "numbers.json").read_text())
    numbers["main-demo"]["cells"]["good"]["read/accuracy"]["all"]["value"] += 1e-6
    (path / "numbers.json").write_text(json.dumps(numbers))
    assert any("read/accuracy/all/value is" in sentence for sentence in verify(path).wrong)
    conclude(made.folder, made.study)
    table = path / "tables" / "main-demo.csv"
    line = "good,Good & right,read,accuracy,all,"
    table.write_text(table.read_text().replace(f"{line}0.", f"{line}1."))
    [wrong] = verify(path).wrong
    assert "main-demo.csv, line " in wrong and f"{line}1." in wrong and f"{line}0." in wrong
    conclude(made.folder, made.study)
    assert not verify(path).wrong
    latex = path / "tables" / "main-demo.tex"
    latex.write_text(latex.read_text().replace("\\textbf{Good", "\\textbf{Better"))
    [wrong] = verify(path).wrong
    assert "main-demo.tex, line " in wrong and "Better" in wrong
    conclude(made.folder, made.study)
    file = next((path / "predictions").glob("one-demo-read-seed0.*"))
    frame = pl.read_parquet(file)
    frame.with_columns(pl.lit(True).alias("correct")).write_parquet(file)
    assert any("is not as cell one-demo-read-seed0 left it" in sentence for sentence in verify(path).wrong)


@pytest.mark.slow
def test_a_study_goes_on_in_a_folder_from_before_a_field_was_added(shop: tuple[StudyJobs, Player]) -> None:
    made, _ = shop
    run_study(made, quiet)
    file = made.folder.path / "study.yaml"
    kept = yaml.safe_load(file.read_text())
    for run in kept["content"]["runs"]:
        del run["pruned_by"]
    file.write_text(yaml.safe_dump(kept))
    run_study(made, quiet)
    del kept["content"]
    file.write_text(yaml.safe_dump(kept))
    with pytest.raises(BadInput, match=r"holds another study \(other content\)"):
        run_study(made, quiet)


def test_a_study_grows_by_seeds_tasks_and_cohorts_in_its_folder(tmp_path: Path, world_cache: Path) -> None:
    whole, player = workshop(tmp_path / "study", world_cache)
    small = replace(whole, study=of_tasks(replace(whole.study, seeds=(1,), tasks=("los",))))
    run_study(small, quiet)
    first = set(player.played)
    assert all(cell.id in first for cell in cells_of(small.study))
    numbers = run_study(whole, quiet)  # what is there is not played again
    assert len(player.played) == len(set(player.played)) == len(cells_of(whole.study)) > len(first)
    assert numbers["main-demo"]["cells"]["good"]["los/accuracy"]["all"]["seeds"] == [0, 1]
    assert kept_study(whole.folder) == whole.study and not verify(whole.folder.path).wrong
    cohorts = {**whole.study.cohorts, "other": (*whole.study.cohorts["demo"], "data.world_seed=5")}
    more = replace(whole, study=replace(whole.study, cohorts=cohorts))
    assert run_study(more, quiet).keys() > numbers.keys() and kept_study(whole.folder) == more.study
    with pytest.raises(BadInput, match=r"holds another study \(other content\)"):  # what is there would be left out
        run_study(small, quiet)


def test_another_study_does_not_enter_the_folder(shop: tuple[StudyJobs, Player]) -> None:
    made, _ = shop
    run_study(made, quiet)
    again = {"demo": (*made.study.cohorts["demo"], "data.patients=50")}
    for wrong in (again, {"other": ("data=demo",), **made.study.cohorts}):  # another cohort; another one first
        with pytest.raises(BadInput, match=r"holds another study \(other content\)"):
            run_study(replace(made, study=replace(made.study, cohorts=wrong)), quiet)
    assert kept_study(made.folder) == made.study
    with pytest.raises(BadInput, match=r"holds another study \(other content\)"):
        run_study(replace(made, study=replace(made.study, seeds=(0, 5))), quiet)
    with pytest.raises(BadInput, match="is no study's folder"):
        verify(made.folder.path / "cells")


@pytest.mark.parametrize("change, sentence", [
    ({"rows": [{"name": "a", "title": "A", "run": "three", "variant": "x"}]}, "row a is of run three"),
    ({"main": "best"}, "main is best, which is no row"),
    ({"tabels": []}, "has no key tabels: did you mean tables?"),
    ({"seeds": ["x"]}, "seeds is 'x', not int"),
    ({"tables": [{"name": "a", "title": "A", "rows": ["x"]}]}, "table a names row x"),
    ({"runs": [{"name": "one", "system": "ghar", "start": "two"}, {"name": "two", "system": "ghar", "start": "one"}]},
     "in a circle"),
    ({"runs": [{"name": "one", "system": "ghar"}, {"name": "two", "system": "ghar", "pruned_by": "three"}]},
     "run two is pruned by three, which the study has not"),
    ({"runs": [{"name": "one", "system": "ghar", "start": "three"}, {"name": "two", "system": "ghar"}]},
     "run one starts from three, which the study has not"),
    ({"runs": [*CONTENT["runs"], CONTENT["runs"][0]]}, "has one twice"),
    ({"runs": [{"name": "one", "system": "ghar", "tasks": ["dec"]}, CONTENT["runs"][1]]}, "put to task dec"),
])  # fmt: skip
def test_what_is_wrong_with_a_study_is_a_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=re.escape(sentence).replace("\\?", ".")):
        cells_of(read_study("mine", {**CONTENT, **change}))


@pytest.mark.slow
def test_systems_tasks_and_cohorts_that_cannot_meet_are_holes(tmp_path: Path, world_cache: Path) -> None:
    runs = [
        {"name": "one", "system": "gharr"},
        {"name": "two", "system": "baselines", "train": False, "tasks": ["read"]},
    ]
    made, _ = workshop(tmp_path, world_cache, runs=runs, seeds=[0],
                       cohorts={"demo": ["data=demo"], "gone": ["data=mimic4", "data.root=/nowhere"]})  # fmt: skip
    made = replace(made, study=replace(made.study, tasks=("read",)))
    numbers = run_study(made, quiet)
    cells = numbers["main-demo"]["cells"]
    assert "There is no system=gharr" in cells["good"]["read/accuracy"]["all"]["hole"]
    assert "value" in cells["poor"]["read/accuracy"]["all"]
    assert "/nowhere" in numbers["main-gone"]["cells"]["poor"]["read/accuracy"]["all"]["hole"]


def test_weights_of_the_first_cohort_are_played_on_every_other() -> None:
    runs = [*CONTENT["runs"], {"name": "far", "system": "ghar", "weights": {"run": "one", "cohort": "first"}}]
    cohorts = {"here": ["data=demo"], "there": ["data=demo_four"]}
    study = read_study("mine", {**CONTENT, "runs": runs, "cohorts": cohorts, "seeds": [0]})
    far = [cell for cell in cells_of(study) if cell.run.name == "far"]
    assert [cell.id for cell in far] == ["far-there-read-seed0", "far-there-los-seed0"]
    sources = [source_of(cell, study) for cell in far]
    assert [source.id for source in sources if source] == ["one-here-read-seed0", "one-here-los-seed0"]


def frame_of(labels: Sequence[str], answers: Sequence[str | None], who: Sequence[str]) -> pl.DataFrame:
    return pl.DataFrame({
        "sample_id": [str(i) for i in range(len(labels))], "subject_id": who, "label": labels, "prediction": answers,
        "probabilities": [[0.5, 0.5]] * len(labels), "correct": [a == b for a, b in zip(labels, answers, strict=True)],
    })  # fmt: skip


def test_one_class_and_small_groups_are_holes() -> None:
    one = frame_of(["no"] * 4, ["no", None, "no", "yes"], list("abcd"))
    for metric in ("auroc", "balanced_accuracy", "f1", "macro_f1", "weighted_f1"):
        with pytest.raises(BadInput, match="one class only among 4 samples"):
            number_of(metric, one, ("no", "yes"))
    with pytest.raises(BadInput, match="no threshold was chosen"):
        number_of("f1_at_valid", one.with_columns(threshold=pl.lit(None, pl.Float64)), ("no", "yes"))


@pytest.mark.slow
def test_time_and_size_are_of_the_model_that_answered(shop: tuple[StudyJobs, Player]) -> None:
    """Of a run's rows those after SFT have both, the base model has its size; no test is made of them."""
    made, _ = shop
    summary = {"model": {"parameters": 7_000}, "best_step": {"step": 30, "seconds": 12.5}}
    assert model_numbers(summary, "sft") == {"parameters": 7_000, "training_seconds": 12.5}
    assert model_numbers(summary, "base") == {"parameters": 7_000} and model_numbers(summary, "rule") == {}
    run_study(made, quiet)
    results = results_of(made.folder, made.study)
    done = {name: replace(cell, models={"good": model_numbers(summary, "sft")}) for name, cell in results.done.items()}
    table = replace(made.study.tables[0], metrics=("accuracy", "training_seconds", "parameters"), draw="scatter")
    numbers = table_of(replace(results, done=done), table, "demo")
    good, poor = numbers["cells"]["good"], numbers["cells"]["poor"]
    assert good["read/training_seconds"]["all"]["value"] == 12.5 and good["read/parameters"]["all"]["value"] == 7_000
    assert "kept for SFT of the warm-up" in poor["read/training_seconds"]["all"]["hole"]
    assert numbers["tests"]["poor"].keys() == {"read/accuracy", "los/accuracy"}
    assert figures_of(made.study, table, numbers)["read"][0].startswith("<svg")


def test_a_group_of_few_patients_is_not_shown(shop: tuple[StudyJobs, Player]) -> None:
    made, _ = shop
    run_study(made, quiet)
    results = results_of(made.folder, replace(made.study, smallest=1000))
    cell = numbers_of(results)["sex-demo"]["cells"]["good"]["read/accuracy"]["female"]
    assert cell == {"hole": "fewer than 1000 patients: not shown"}


def test_a_jobs_own_sentence_is_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    assert run_command([sys.executable, "-c", "pass"], log) is None
    said = run_command([sys.executable, "-c", "import sys; print('No such graph.'); sys.exit(2)"], log)
    assert said == "No such graph."
    said = run_command([sys.executable, "-c", "1 / 0"], log)
    assert said is not None and "code 1" in said and "ZeroDivisionError" in said


@pytest.mark.slow
def test_a_configuration_that_changes_the_split_has_samples_of_its_own(world_cache: Path) -> None:
    def key(*more: str) -> str:
        config: Config = load(["task=read", f"data.cache={world_cache}", *more])
        return key_of(config)

    assert key() == key("seed=3", "system=kare", "data.cache=/elsewhere") != key("task.split_seed=1")


def test_a_plan_says_what_is_done_and_what_the_rest_takes(tmp_path: Path, world_cache: Path) -> None:
    made, player = workshop(tmp_path / "study", world_cache)
    player.fails = {"two-demo-los-seed1": "out of memory"}
    run_study(made, quiet)
    said: list[str] = []
    costs = {cost.cell.id: cost for cost in plan_study(made, said.append)}
    assert [id for id, cost in costs.items() if cost.how != "done"] == ["two-demo-los-seed1"]
    assert costs["two-demo-los-seed1"].how == "measured" and "7 of 8 cells are done" in said[-1]
    assert len(said) == 10 and said[-2].startswith("two-demo-los-seed1")  # a line a cell, as it is known


@pytest.mark.slow
def test_a_plan_of_a_training_is_probed_on_this_machine(tmp_path: Path, world_cache: Path) -> None:
    tiny = ("model.hidden=32", "model.layers=2", "trainer.rl.updates=1", "trainer.rl.episodes=8")
    made, _ = workshop(tmp_path / "study", world_cache, seeds=[0])
    made = replace(made, scale=StudyScale("tiny", True, tiny), study=replace(made.study, tasks=("read",)))
    said: list[str] = []
    one, two = plan_study(made, said.append)
    assert one.how == two.how == "probed" and one.calls > 0 and one.tokens > one.calls and one.seconds > 0
    assert one.memory > 0 and one.disk > 0 and two.calls == 0 and "0 of 2 cells are done" in said[-1]
