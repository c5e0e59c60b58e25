"""Parts of a study by themselves: label words between tasks, groups, forks, and intervals that hold the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from sklearn.metrics import f1_score, roc_auc_score

from ghar.config import Config
from ghar.data.cohort import Cohort, Sample, Visit
from ghar.data.groups import KINDS, groups_of
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.clinical import length_of_stay, risk
from ghar.metrics.policy import policy_summary
from ghar.metrics.runfolder import RunFolder
from ghar.metrics.seeds import drawn_over_seeds
from ghar.trainers.runs.resume import as_yaml, open_run
from ghar.trainers.study.figures import figures_of
from ghar.trainers.study.jobs import fork
from ghar.trainers.study.metrics import bounds_of, check_metric, number_of
from ghar.trainers.study.numbers import FinishedCell, Results, as_json, table_of
from ghar.trainers.study.render import as_latex, size_of
from ghar.trainers.study.schema import Names, Study, StudyRow, StudyRun, StudyTable
from ghar.trainers.study.translate import translation
from ghar.trainers.study.verify import by_sklearn

ROOT = Path(__file__).resolve().parents[2]


def test_a_number_of_days_stands_for_the_answer_of_its_rank() -> None:
    """Four in ten are readmitted, so the longest four of ten classes of stay stand for yes."""
    days = tuple(str(i) for i in range(10))
    read = translation(days, [99] * 10, ("no", "yes"), [599, 399])
    assert [read(f"answer: {day}") for day in days] == ["no"] * 6 + ["yes"] * 4
    assert read("answer: yes") is None and read("no idea") is None  # in no words of its own task
    back = translation(("no", "yes"), [589, 409], days, [99] * 10)
    assert (back("answer: no"), back("answer: yes")) == ("2", "7")
    same = translation(("no", "yes"), [9, 9], ("no", "yes"), [9, 9])
    assert (same("no"), same("yes")) == ("no", "yes")


def sample(number: int, visits: int, code: str) -> Sample:
    when = datetime(2150, 1, number)
    history = tuple(Visit(10 * number + i, when, (code,)) for i in range(visits))
    return Sample(f"s{number}", number, history[-1].visit_id, when, history, 0)


def test_groups_come_from_the_cohort_and_the_sources_own_table(tmp_path: Path) -> None:
    samples = [sample(1, 1, "a"), sample(2, 2, "b"), sample(3, 5, "c")]
    visits = [s.visit_id for s in samples]
    events = pl.DataFrame({
        "subject_id": [1, 2, 3, 1, 2], "code": ["AGE", "AGE", "AGE", "GENDER/F", "GENDER/M"],
        "numeric_value": [17.0, 64.0, 90.0, None, None], "visit_id": [*visits, None, None],
    })  # fmt: skip
    cohort = Cohort("test", events, pl.DataFrame(), pl.DataFrame())
    (tmp_path / "hosp").mkdir()
    rows = f"{visits[0]},BLACK/CAPE VERDEAN,EW EMER.", f"{visits[1]},UNKNOWN,ELECTIVE"
    lines = "hadm_id,race,admission_type", *rows
    (tmp_path / "hosp" / "admissions.csv").write_text("\n".join(lines) + "\n")
    found = groups_of(cohort, tmp_path, samples, samples)
    assert [found[s.sample_id]["age"] for s in samples] == ["under 18", "45-64", "80 and older"]
    assert [found[s.sample_id]["sex"] for s in samples] == ["female", "male", None]
    assert [found[s.sample_id]["race"] for s in samples] == ["Black", "other or unknown", None]
    assert [found[s.sample_id]["admission"] for s in samples] == ["emergency", "elective", None]
    assert [found[s.sample_id]["visits"] for s in samples] == ["1", "2-3", "4 or more"]
    assert set(found["s1"]) == set(KINDS) and found["s1"]["site"] is None
    assert groups_of(cohort, None, samples, samples)["s1"]["race"] is None


def test_intervals_over_patients_hold_the_truth_as_often_as_they_say() -> None:
    """Of 200 studies of 120 patients with 1 to 6 stays each, which are alike, 93 to 97% hold the true accuracy."""
    hits = 0
    for study in range(200):
        rng = np.random.default_rng([7, study])
        stays = rng.integers(1, 7, 120)
        chance = np.repeat(rng.beta(3, 2, 120), stays)
        frame = pl.DataFrame({"correct": rng.random(len(chance)) < chance})
        who = np.repeat(np.arange(120), stays).tolist()
        _, drawn = drawn_over_seeds([number_of("accuracy", frame, ())], [who], seed=study, resamples=500)
        low, high = np.percentile(drawn, [2.5, 97.5])
        hits += low <= 0.6 <= high
    assert 0.93 <= hits / 200 <= 0.97


def test_net_benefit_and_calibration_are_their_formulas() -> None:
    rng = np.random.default_rng(0)
    truth, chance = rng.random(50) < 0.4, rng.random(50)
    frame = pl.DataFrame({
        "label": ["yes" if t else "no" for t in truth], "prediction": ["no"] * 50,
        "probabilities": [[1 - c, c] for c in chance], "correct": ~truth, "threshold": [0.3] * 50,
    })  # fmt: skip
    every = np.ones((1, 50))

    def number(metric: str) -> float:
        return float(number_of(metric, frame, ("no", "yes"))(every)[0])

    said = chance >= 0.2
    assert number("net_benefit@0.2") == pytest.approx(((said & truth).sum() - 0.25 * (said & ~truth).sum()) / 50)
    near = np.abs(chance - 0.55) <= 0.05
    assert number("observed@0.55") == pytest.approx(truth[near].mean())
    at = chance >= 0.3
    assert number("sensitivity_at_valid") == pytest.approx(at[truth].mean())
    assert number("specificity_at_valid") == pytest.approx((~at[~truth]).mean())
    assert number("distance@1") == pytest.approx(truth.mean())
    assert number("class_f1@0") == pytest.approx(f1_score(~truth, np.ones(50, bool)))  # all replies are "no"
    assert number("class_f1@1") == 0
    with pytest.raises(BadInput, match="2 labels"):
        number("class_f1@2")


def test_a_threshold_says_nothing_for_samples_without_probabilities() -> None:
    """A probability of 0.5 in their place would be a yes at the low thresholds of rare outcomes."""
    rng = np.random.default_rng(2)
    truth, chance, lost = rng.random(200) < 0.3, rng.random(200), rng.random(200) < 0.4
    answered = lost & (rng.random(200) < 0.5)  # in words, without probabilities
    frame = pl.DataFrame({
        "label": ["yes" if t else "no" for t in truth],
        "prediction": ["yes" if a else None if n else "no" for a, n in zip(answered, lost, strict=True)],
        "probabilities": [None if n else [1 - c, c] for c, n in zip(chance, lost, strict=True)],
        "threshold": [0.3] * 200,
    })  # fmt: skip
    every = np.ones((1, 200))

    def number(metric: str) -> float:
        return float(number_of(metric, frame, ("no", "yes"))(every)[0])

    yes = np.where(lost, answered, chance >= 0.3)
    wrong = lost & ~answered
    assert number("sensitivity_at_valid") == pytest.approx((yes & ~wrong)[truth].mean())
    assert number("specificity_at_valid") == pytest.approx((~yes & ~wrong)[~truth].mean())
    assert number("f1_at_valid") == pytest.approx(f1_score(truth, np.where(wrong, ~truth, yes)))
    acted = np.where(lost, answered, chance >= 0.2)
    assert number("net_benefit@0.2") == pytest.approx(((acted & truth).sum() - 0.25 * (acted & ~truth).sum()) / 200)
    near = ~lost & (np.abs(chance - 0.45) <= 0.05)
    assert number("observed@0.45") == pytest.approx(truth[near].mean())


def half_readable(seed: int, lost: np.ndarray) -> list[dict[str, Any]]:
    """Rows of a policy whose replies are unreadable where `lost`."""
    rng = np.random.default_rng(seed)
    truth, chance = rng.random(len(lost)) < 0.4, rng.random(len(lost))
    about = {"retrieved": False, "iterations": 1, "prompt_tokens": 1, "completion_tokens": 1, "seconds": 0.0,
             "reward": 0.0, "needs_retrieval": None, "turns": [], "failure": None}  # fmt: skip
    return [
        {**about, "sample_id": f"s{i:03}", "subject_id": i // 2, "label": "yes" if t else "no",
         "prediction": None if n else "no", "correct": not (t or n),
         "label_probabilities": None if n else [1 - c, c]}
        for i, (t, c, n) in enumerate(zip(truth, chance, lost, strict=True))
    ]  # fmt: skip


def study_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    columns = ("sample_id", "subject_id", "label", "prediction", "correct")
    own = pl.DataFrame([{name: row[name] for name in columns} for row in rows])
    return own.with_columns(pl.Series("probabilities", [row["label_probabilities"] for row in rows]))


def table_numbers(folder: Path, frames: Mapping[str, pl.DataFrame], main: str) -> dict[str, Any]:
    """A table of calibration of rows that one cell has left, each compared with `main`."""
    rows = tuple(StudyRow(name, name, "run", name) for name in frames)
    table = StudyTable("table", "Table", metrics=("brier", "ece"))
    study = Study("s", "S", "", ("read",), (StudyRun("run", "ghar"),), rows, (table,), main, seeds=(0,))
    for name, frame in frames.items():
        frame.write_parquet(folder / name)
    done = FinishedCell("run-demo-read-seed0", ("no", "yes"), {name: folder / name for name in frames}, {})
    return table_of(Results(study, {done.cell: done}, {}, resamples=200), table, "demo")


def test_a_study_has_the_reports_calibration_of_half_readable_replies(tmp_path: Path) -> None:
    """Value and interval: of the samples that have probabilities, that of the calibration error moved."""
    rows = half_readable(3, np.random.default_rng(0).random(120) < 0.4)
    report = policy_summary([row for row in rows if row["label_probabilities"]], ("no", "yes"), resamples=200)
    frame, labels = study_frame(rows), ("no", "yes")
    for name in ("brier", "ece"):
        assert policy_summary(rows, labels, resamples=20)[name][0] == pytest.approx(report[name][0])
        assert number_of(name, frame, labels)(np.ones((1, 120)))[0] == pytest.approx(report[name][0])
    found = table_numbers(tmp_path, {"row": frame.filter(pl.col("probabilities").is_not_null())}, "row")
    for name in ("brier", "ece"):
        own = found["cells"]["row"][f"read/{name}"]["all"]
        assert (own["value"], own["low"], own["high"]) == pytest.approx(tuple(report[name]))
    assert by_sklearn("brier", frame, labels) == pytest.approx(report["brier"][0])
    with pytest.raises(BadInput, match="no label probabilities"):
        number_of("ece", frame.filter(pl.col("probabilities").is_null()), labels)


def test_calibration_is_compared_on_the_samples_of_which_both_say_how_probable(tmp_path: Path) -> None:
    """A policy that is silent on half of the samples, and else says what the other does, is no better than it."""
    rows = half_readable(4, np.zeros(80, bool))
    silent = [row | {"label_probabilities": None} if i % 2 else row for i, row in enumerate(rows)]
    found = table_numbers(tmp_path, {"main": study_frame(rows), "other": study_frame(silent)}, "main")
    for name in ("brier", "ece"):
        assert found["tests"]["other"][f"read/{name}"]["all"]["difference"] == pytest.approx(0)


def test_weighted_f1_agrees_with_scikit_learn() -> None:
    """Also under whole weights, as of a draw of patients; labels that are never true or never answered among them."""
    rng = np.random.default_rng(0)
    truth, guess = rng.choice(["0", "1", "2"], 40), rng.choice(["0", "1", "3", None], 40)
    frame = pl.DataFrame({"label": truth, "prediction": guess.tolist()})
    weights = np.vstack([np.ones(40), rng.integers(0, 3, 40)]).astype(float)
    drawn = number_of("weighted_f1", frame, ("0", "1", "2", "3"))(weights)
    answers = ["none" if one is None else one for one in guess]
    for value, own in zip(drawn, weights, strict=True):
        expected = f1_score(truth, answers, labels=["0", "1", "2"], average="weighted", sample_weight=own)
        assert value == pytest.approx(expected, abs=1e-12)


def test_the_logarithm_of_retrievals_is_of_all_samples_together() -> None:
    frame = pl.DataFrame({"retrievals": [2, 0, 3, 1]})
    weights = np.array([[1.0, 1, 1, 1], [0, 2, 0, 2], [0, 4, 0, 0]])
    drawn = number_of("log_retrievals", frame, ("no", "yes"))(weights)
    assert drawn.tolist() == pytest.approx([np.log(6), np.log(2), 0])
    assert bounds_of("log_retrievals") == (0, np.inf)
    with pytest.raises(BadInput, match="never retrieves"):
        number_of("log_retrievals", pl.DataFrame({"retrievals": [0, 0]}), ())


@pytest.mark.parametrize("classes", [2, 4])
def test_graphwalkers_numbers_agree_with_scikit_learn(classes: int) -> None:
    """Micro AUROC, and F1 at the threshold that is best on the very samples."""
    rng = np.random.default_rng(classes)
    labels = tuple(str(i) for i in range(classes))
    truth, shares = rng.integers(classes, size=80), rng.dirichlet(np.ones(classes), size=80).round(2)
    frame = pl.DataFrame({
        "sample_id": [str(i) for i in range(80)], "subject_id": [str(i) for i in range(80)],
        "label": [labels[i] for i in truth], "prediction": [labels[0]] * 80, "probabilities": shares.tolist(),
        "options_f1": rng.random(80), "entropy_drop": rng.normal(size=80),
    })  # fmt: skip
    whole = np.ones((1, 80))
    micro = number_of("micro_auroc", frame, labels)(whole)[0]
    assert micro == pytest.approx(roc_auc_score(np.eye(classes)[truth], shares, average="micro"))
    for metric in ("options_f1", "entropy_drop"):
        assert number_of(metric, frame, ())(whole)[0] == pytest.approx(frame[metric].mean())
    assert bounds_of("entropy_drop") == (-np.inf, np.inf)  # examples may also mislead
    with pytest.raises(BadInput, match="played before entropy drop, nats a token was kept"):
        number_of("entropy_drop", frame.drop("entropy_drop"), labels)
    if classes == 2:
        each = [f1_score(truth, shares[:, 1] >= cut) for cut in np.unique(shares[:, 1])]
        assert number_of("f1_best_on_test", frame, labels)(whole)[0] == pytest.approx(max(each))


@pytest.mark.parametrize("classes", [2, 3])
def test_a_study_has_the_numbers_of_graphwalkers_report_of_half_readable_replies(classes: int) -> None:
    """Who is silent is at the wrong end in both, and gains nothing by it."""
    rng = np.random.default_rng(5)
    labels, truth = tuple("abc"[:classes]), rng.integers(classes, size=90)
    drawn = rng.dirichlet(np.ones(classes), 90).tolist()
    shares = [None if lost else row for lost, row in zip(rng.random(90) < 0.4, drawn, strict=True)]
    frame = pl.DataFrame({
        "sample_id": [str(i) for i in range(90)], "subject_id": [str(i) for i in range(90)],
        "label": [labels[i] for i in truth], "prediction": [None if row is None else labels[0] for row in shares],
    }).with_columns(pl.Series("probabilities", shares))  # fmt: skip
    if classes == 2:
        given = [None if row is None else row[1] for row in shares]
        name, report = "f1_best_on_test", risk(truth.tolist(), given, 0.5, patients=None, resamples=5)["best_f1"]
    else:
        name, report = "micro_auroc", length_of_stay(truth.tolist(), shares, 3, patients=None, resamples=5)["mi_roc"]
    assert number_of(name, frame, labels)(np.ones((1, 90)))[0] == pytest.approx(report.value)


def source_run(path: Path, config: Config) -> Path:
    """A run folder as it is after RL, with files in place of weights."""
    folder = RunFolder.open(path)
    folder.write_config(as_yaml(replace(config, run_dir=str(path))))
    for phase, step in (("base", 1), ("sft", 1), ("rl", 0), ("rl", 1)):
        folder.log({"phase": phase, "step": step, "train/loss": 1.0})
    for name in ("base", "sft", "step-1"):
        (path / "checkpoints" / name).mkdir(parents=True)
        (path / "checkpoints" / name / "config.json").write_text(name)
    (path / "checkpoints" / "lessons.npz").write_bytes(b"lessons")
    return path


def test_published_numbers_are_on_the_scale_of_ours() -> None:
    """Shares and no percentages, of metrics that a study knows: of an unknown one no number would ever be printed."""
    entries = yaml.safe_load((ROOT / "conf" / "study" / "_published.yaml").read_text())
    for entry, content in entries.items():
        for cells in (content.get("cells") or {}, *(content.get("models") or {}).values()):
            for row, columns in cells.items():
                for column, value in columns.items():
                    metric = column.partition("/")[2]
                    check_metric(metric)
                    low, high = bounds_of(metric)
                    assert low <= value <= high, (entry, row, column)


def test_a_run_starts_from_anothers_base_and_sft_and_nothing_after(tmp_path: Path) -> None:
    config = load(["seed=4", "trainer.base.seed=4"])
    source = source_run(tmp_path / "ghar", config)
    own = load(["seed=4", "trainer.base.seed=4", "system.composition=separate", f"run_dir={tmp_path / 'ns'}"])
    (tmp_path / ".ns.fork").mkdir()  # of a start that was killed
    fork(source, own)
    kept = sorted(path.name for path in (tmp_path / "ns" / "checkpoints").iterdir())
    assert kept == ["base", "lessons.npz", "sft"]
    assert [row["phase"] for row in RunFolder(tmp_path / "ns").metrics()] == ["base", "sft"]
    opened = open_run(own)
    assert opened is not None and opened[1], "it goes on as an unfinished run of its own configuration"
    (tmp_path / "ns" / "checkpoints" / "step-1").mkdir()
    fork(source, own)
    assert (tmp_path / "ns" / "checkpoints" / "step-1").is_dir(), "what has begun is not begun again"


@pytest.mark.parametrize("change, part", [
    ("seed=5", "seed"), ("task=read", "task"), ("model.hidden=96", "model"),
    ("trainer.warmup.epochs=9", "trainer.warmup"),
])  # fmt: skip
def test_runs_that_share_no_warm_up_do_not_start_from_one_another(tmp_path: Path, change: str, part: str) -> None:
    source = source_run(tmp_path / "ghar", load(["trainer.base.seed=0"]))
    with pytest.raises(BadInput, match=f"cannot start from ghar: they differ in {part}"):
        fork(source, load(["trainer.base.seed=0", change, f"run_dir={tmp_path / 'other'}"]))
    assert not (tmp_path / "other").exists()


def test_a_number_that_rests_on_one_patient_is_a_hole_with_its_count() -> None:
    """Six positive samples of one patient are one positive patient; six of six are enough."""

    def frame(patients: list[str]) -> pl.DataFrame:
        return pl.DataFrame({
            "sample_id": [f"s{i}" for i in range(12)], "subject_id": [*patients, *(f"n{i}" for i in range(6))],
            "label": ["yes"] * 6 + ["no"] * 6, "prediction": ["yes"] * 6 + ["no"] * 6,
            "probabilities": [[0.1, 0.9]] * 6 + [[0.9, 0.1]] * 6, "correct": [True] * 12,
        })  # fmt: skip

    for metric in ("auroc", "micro_auroc", "auprc", "f1_best_on_test", "sensitivity", "balanced_accuracy"):
        with pytest.raises(BadInput, match="too few: 1 patient with label yes"):
            number_of(metric, frame(["p"] * 6), ("no", "yes"))
        number_of(metric, frame([f"p{i}" for i in range(6)]), ("no", "yes"))
    number_of("specificity", frame(["p"] * 6), ("no", "yes"))
    number_of("accuracy", frame(["p"] * 6), ("no", "yes"))


def results_with(
    folder: Path, frames: Mapping[str, Sequence[pl.DataFrame]], table: StudyTable, labels: Names
) -> Results:
    """What a cell a seed has left. frames: row -> predictions, a seed each; the first row is the main one."""
    rows, seeds = tuple(StudyRow(name, name, "run", name) for name in frames), range(len(next(iter(frames.values()))))
    study = Study("s", "S", "", ("los",), (StudyRun("run", "ghar"),), rows, (table,), rows[0].name, seeds=tuple(seeds))
    done = {}
    for seed in seeds:
        files = {name: folder / f"{name}{seed}" for name in frames}
        for name, file in files.items():
            frames[name][seed].write_parquet(file)
        cell = FinishedCell(f"run-demo-los-seed{seed}", labels, files, {})
        done[cell.cell] = cell
    return Results(study, done, {}, resamples=200)


def test_numbers_and_differences_keep_to_what_they_can_be(tmp_path: Path) -> None:
    """Brier of three labels runs to 2; the accuracies of two seeds that differ much differ by 1 at most."""
    sure = pl.DataFrame({
        "sample_id": [f"s{i}" for i in range(30)], "subject_id": [f"p{i}" for i in range(30)],
        "label": ["a", "b", "c"] * 10, "prediction": ["b"] * 30, "correct": [False, True, False] * 10,
        "probabilities": [[0.0, 1.0, 0.0]] * 30,
    })  # fmt: skip
    right, wrong = (sure.with_columns(correct=pl.lit(one)) for one in (True, False))
    table = StudyTable("t", "T", metrics=("accuracy", "brier"))
    results = results_with(tmp_path, {"one": [right, wrong], "two": [wrong, wrong]}, table, ("a", "b", "c"))
    found = table_of(results, table, "demo")
    brier = found["cells"]["one"]["los/brier"]["all"]
    assert brier["value"] == pytest.approx(4 / 3) and brier["low"] < brier["value"] < brier["high"] < 2
    test = found["tests"]["two"]["los/accuracy"]["all"]
    assert (test["low"], test["difference"], test["high"]) == (-1, 0.5, 1) and test["p"] > 0.4


def test_a_group_without_a_number_has_no_part_in_the_gap(tmp_path: Path) -> None:
    """Predicted at about 0.5 is no one of the third group: it is a hole, and the gap is that of the other two."""
    frame = pl.DataFrame({
        "sample_id": [f"s{i}" for i in range(36)], "subject_id": [f"p{i}" for i in range(36)],
        "label": ["no", "yes"] * 18, "prediction": ["no"] * 36, "correct": [True, False] * 18,
        "probabilities": [[0.5, 0.5]] * 24 + [[0.9, 0.1]] * 12, "sex": ["a"] * 12 + ["b"] * 12 + ["c"] * 12,
    })  # fmt: skip
    frame = frame.with_columns(threshold=pl.lit(0.5))
    table = StudyTable("t", "T", metrics=("observed@0.5",), by="sex")
    found = table_of(results_with(tmp_path, {"one": [frame]}, table, ("no", "yes")), table, "demo")
    assert found["cells"]["one"]["los/observed@0.5"]["c"] == {"hole": "undefined on these samples"}
    assert found["gaps"]["one"]["los/observed@0.5"]["groups"] == ["a", "b"]
    as_json({"t": found})


def test_latex_keeps_every_sign_of_a_title_and_says_what_it_is_of(tmp_path: Path) -> None:
    frame = pl.DataFrame({
        "sample_id": ["a", "b"], "subject_id": ["1", "2"], "label": ["no", "yes"], "prediction": ["no", None],
        "correct": [True, False], "probabilities": [[0.5, 0.5]] * 2, "seconds": [1e-5, 2e-5],
    })  # fmt: skip
    table = StudyTable("t", "T", metrics=("accuracy", "seconds", "reward"))
    frames = {"one": [frame.with_columns(reward=pl.lit(1.0))], "two": [frame]}
    results = results_with(tmp_path, frames, table, ("no", "yes"))
    title = r"~ \ ^x <b> 5%"
    study = replace(results.study, rows=(replace(results.study.rows[0], title=title), results.study.rows[1]))
    found = table_of(results, table, "demo")
    text = as_latex(study, table, found, ["2 test samples"])
    assert text.startswith("% T\n% 2 test samples\n") and "$<$0.001" in text
    own = r"\textbf{\textasciitilde{} \textbackslash{} \textasciicircum{}x $<$b$>$ 5\%}"
    assert own in text and size_of(found) == "2 test samples of 2 patients"


def test_a_metric_without_a_number_has_no_panel(tmp_path: Path) -> None:
    frame = pl.DataFrame({
        "sample_id": ["a", "b"], "subject_id": ["1", "2"], "label": ["no", "no"], "prediction": ["no", None],
        "correct": [True, False], "probabilities": [[0.5, 0.5]] * 2,
    })  # fmt: skip
    table = StudyTable("t", "T", metrics=("accuracy", "auroc"))
    results = results_with(tmp_path, {"one": [frame]}, table, ("no", "yes"))
    [(svg, _)] = figures_of(results.study, table, table_of(results, table, "demo")).values()
    assert "Accuracy" in svg and "AUROC" not in svg


def test_figures_name_what_lies_along_x() -> None:
    files = sorted((ROOT / "conf" / "study").glob("[a-z]*.yaml"))
    every = [(file.stem, table) for file in files for table in yaml.safe_load(file.read_text())["tables"]]
    lines = [(name, table) for name, table in every if table.get("draw") == "lines"]
    assert lines and not [(name, table["name"]) for name, table in lines if not table.get("axis")]
