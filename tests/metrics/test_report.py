"""The report: complete, self-contained, and safe against what a model may have written."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

import ghar.metrics.report
from ghar.errors import BadInput
from ghar.metrics import breakdown, curves
from ghar.metrics.bootstrap import mean_interval
from ghar.metrics.breakdown import RowCounts, decision_curve
from ghar.metrics.charts import PALETTE, Line, dot_chart, line_chart
from ghar.metrics.curves import agents, critic, diagnostic
from ghar.metrics.policy import policy_summary
from ghar.metrics.report import write_report
from ghar.metrics.runfolder import RunFolder
from ghar.metrics.style import ReportSection, ReportStyle, in_order
from ghar.metrics.traces import reward_line
from ghar.trainers.evaluation import report
from tests.growth import TENFOLD, times_as_long
from tests.metrics.conftest import LABELS, make_rows

LOOK = ReportStyle(
    titles={"llm_only": "LLM only", "always_rag": "Always retrieve", "ghar_sft": "After SFT", "ghar_rl": "After RL"},
    main="ghar_rl", before="ghar_sft", learns=True,
)  # fmt: skip


@pytest.mark.slow
def test_everything_is_in_one_file_without_requests(whole_run: RunFolder):
    page = write_report(whole_run.path, LOOK).read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page) and "@import" not in page
    for text in ("generated", "After RL", "Always retrieve", "Confusion", "Validation reward", "amyloidosis"):
        assert text in page, text
    assert page.count("<svg") >= 8
    assert "not complete" not in page


@pytest.mark.slow
def test_ten_patients_can_be_browsed(whole_run: RunFolder):
    page = write_report(whole_run.path).read_text()
    assert len(set(re.findall(r"\bp\d{4}\b", page))) >= 10


def test_model_text_is_shown_and_never_run(tmp_path: Path):
    run = RunFolder.open(tmp_path / "run")
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    row = {
        "policy": evil, "split": "test", "sample_id": evil, "patient": evil, "label": "1", "prediction": None,
        "correct": False, "needs_retrieval": None, "retrieved": False, "iterations": 1, "prompt_tokens": 1,
        "completion_tokens": 1, "seconds": 0.1, "rewards": {"orm": 0.0}, "reward": 0.0, "failure": None,
        "turns": [{"agent": "top", "role": "predict", "step": 0, "prompt": evil, "reply": "</script>" + evil,
                   "format_ok": False, "evidence": evil}],
    }  # fmt: skip
    run.write_episodes("ghar_rl", [row])
    page = write_report(run.path).read_text()
    assert "<script>alert" not in page and "<img src=x" not in page
    assert "alert(1)" in page


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["summary.json", "metrics.jsonl", "config.yaml"])
def test_a_part_that_is_missing_is_named(whole_run: RunFolder, gone: str):
    (whole_run.path / gone).unlink()
    page = write_report(whole_run.path, LOOK).read_text()
    assert "not complete" in page and gone in page


@pytest.mark.slow
def test_credentialed_patients_are_marked(whole_run: RunFolder):
    summary = json.loads((whole_run.path / "summary.json").read_text())
    whole_run.write_summary({**summary, "generated": False})
    assert "Keep this file where the data may be kept" in write_report(whole_run.path).read_text()


def test_a_folder_that_is_no_run(tmp_path: Path):
    with pytest.raises(BadInput, match="folder of a run"):
        write_report(tmp_path)


@pytest.mark.slow
def test_it_says_how_many_stays_of_how_many_patients(whole_run: RunFolder):
    page = write_report(whole_run.path, LOOK).read_text()
    assert page.count("60 stays of 30 patients; intervals by resampling patients") == 2
    summary = json.loads((whole_run.path / "summary.json").read_text())
    for policy in summary["policies"].values():
        del policy["patients"]
    whole_run.write_summary(summary)
    page = write_report(whole_run.path, ReportStyle(samples="questions")).read_text()
    assert "60 questions; intervals by resampling questions" in page and "resampling patients" not in page


@pytest.mark.slow
def test_variants_are_shown_as_the_look_says(whole_run: RunFolder):
    page = write_report(whole_run.path, LOOK).read_text()
    head = page[page.index('<th scope="col">Metric</th>') :].partition("</tr>")[0]
    names = ["After RL", "LLM only", "Always retrieve", "After SFT", "scripted"]  # the main one first
    assert re.findall(r"</span>([^<]+)</th>", head) == names
    assert re.findall(r"background:(#\w+)", head) == [PALETTE[3], *PALETTE[:3], PALETTE[4]]
    assert "Numbers of <b>After RL</b>" in page and "<span>After SFT: " in page and "After RL minus After SFT" in page
    plain = write_report(whole_run.path).read_text()
    assert "Numbers of <b>always_rag</b>" in plain and "After" not in plain
    assert "not complete" not in write_report(whole_run.path, ReportStyle(main="nothing")).read_text()


@pytest.mark.slow
def test_sections_stand_in_the_page_as_they_are(whole_run: RunFolder):
    parts = (ReportSection("One & two", "<table><tr><td>3</td></tr></table>"), ReportSection("Last", "<p>end</p>"))
    page = write_report(whole_run.path, ReportStyle({}, "scripted", True, parts)).read_text()
    assert '<section id="section-1"><h2>One &amp; two</h2>\n<table><tr><td>3</td></tr></table>' in page
    assert '<a href="#section-2">Last</a>' in page


@pytest.mark.slow
def test_an_evaluation_is_concluded_with_the_look_of_its_system(
    whole_run: RunFolder, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def sections(folder: RunFolder, summary) -> list[ReportSection]:
        assert summary["extra"] == 1 and folder.summary() == summary
        return [ReportSection("Mine", "<b>here</b>")]

    monkeypatch.setattr(report, "sections", sections)
    monkeypatch.setattr(report, "table", lambda summary: f"seed {summary['seed']}")
    summary = report.conclude(whole_run, {"extra": 1})
    assert summary["extra"] == 1 and summary["seed"] == 0 and capsys.readouterr().out.startswith("seed 0\nReport: ")
    assert "<b>here</b>" in (whole_run.path / "report.html").read_text()


def test_order_of_variants():
    assert in_order(["d", "b", "c", "a"], {"c": "C", "x": "X", "b": "B"}) == ["c", "b", "a", "d"]


@pytest.mark.parametrize(("weighted", "expected"), [
    ({"orm": 10.0, "path": -0.5}, "Reward 9.500 = orm +10.000, path -0.500"),
    (None, "Reward 9.500; terms before their weights: orm +2.000, path -0.500"),
    ({"orm": 3.0}, "Reward 9.500; terms, which do not add up to it: orm +3.000"),
    ({}, "Reward 9.500"),
])  # fmt: skip
def test_the_arithmetic_of_a_reward_adds_up(weighted, expected):
    row = {"reward": 9.5, "rewards": {"orm": 2.0, "path": -0.5}}
    assert reward_line(row if weighted is None else {**row, "weighted": weighted}) == expected
    assert (
        reward_line({"reward": 1.5, "rewards": {"orm": 2.0, "path": -0.5}}) == "Reward 1.500 = orm +2.000, path -0.500"
    )
    assert reward_line({"reward": None, "rewards": {}}) == "Reward unknown"
    unknown = reward_line({"reward": 1.0, "rewards": {"orm": None}})
    assert unknown == "Reward 1.000; terms before their weights: orm unknown"


def test_no_two_curves_of_a_diagnostic_have_one_colour():
    row = {"step": 1, "phase": "rl", "train/entropy": 0.5, "train/entropy/top": 0.4, "train/low/entropy": 0.6,
           "train/old_entropy": 1.0, "train/loss": 2.0}  # fmt: skip
    assert agents([row]) == ["low", "top"]
    lines = diagnostic([row], "entropy", dict(zip(agents([row]), PALETTE, strict=False)))
    assert [line.label for line in lines] == ["all agents", "top", "low"] and len({line.color for line in lines}) == 3


@pytest.mark.slow
def test_calibration_has_a_part_in_the_table(whole_run: RunFolder):
    summary = json.loads((whole_run.path / "summary.json").read_text())
    summary["policies"]["ghar_rl"]["ece"] = mean_interval([0.125] * 4, patients=None).as_list()
    whole_run.write_summary(summary)
    page = write_report(whole_run.path, LOOK).read_text()
    assert "Expected calibration error" in page and "0.125<small>0.125 to 0.125</small>" in page


@pytest.mark.slow
def test_ten_times_the_rows_take_about_ten_times_as_long(
    tmp_path: Path, episodes: dict[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
):
    for draw in (line_chart, dot_chart):  # each time anew
        monkeypatch.setattr(ghar.metrics.report, draw.__name__, draw)
    rows = episodes["ghar_rl"]

    def of(count: int) -> Path:
        folder = RunFolder.open(tmp_path / str(count))
        many = ({**rows[i % len(rows)], "sample_id": f"q{i:05d}", "subject_id": i // 2} for i in range(count))
        folder.write_episodes("ghar_rl", many)
        return folder.path

    small, large = of(1_000), of(10_000)
    assert times_as_long(lambda: write_report(small, LOOK), lambda: write_report(large, LOOK)) < TENFOLD
    assert "q09999" in (large / "report.html").read_text()


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100)), min_size=2, max_size=40))
def test_a_decision_curve_is_the_net_benefit_counted_directly(rows: list[tuple[bool, int]]):
    labels = ("no", "yes")
    tally = RowCounts(shares=[(labels[sick], [1 - risk / 100, risk / 100]) for sick, risk in rows])
    everyone, curve = decision_curve({"a": tally}, labels, {"a": "red"})
    for threshold, net in zip(curve.x, curve.y, strict=True):
        odds = threshold / (1 - threshold)
        acted = [sick for sick, risk in rows if risk / 100 >= threshold]
        assert net == pytest.approx((sum(acted) - (len(acted) - sum(acted)) * odds) / len(rows))
    share = sum(sick for sick, _ in rows) / len(rows)
    for threshold, net in zip(everyone.x, everyone.y, strict=True):
        assert net == pytest.approx(share - (1 - share) * threshold / (1 - threshold))
    assert not decision_curve({"a": tally}, (*labels, "maybe"), {"a": "red"})


@pytest.mark.slow
def test_a_page_of_two_labels_shows_decision_curves(tmp_path: Path):
    run = RunFolder.open(tmp_path / "run")
    for name in ("ghar_sft", "ghar_rl"):
        rows = make_rows(name, 60)
        for i, row in enumerate(rows):
            label = ("no", "yes")[i % 3 == 0]
            row |= {"label": label, "prediction": label, "label_probabilities": [0.8, 0.2] if i % 2 else [0.3, 0.7]}
        run.write_episodes(name, rows)
    run.write_summary({"task": {"name": "read", "labels": ["no", "yes"]}, "generated": True})
    page = write_report(run.path, LOOK).read_text()
    drawn = next(part for part in re.findall(r"<svg.*?</svg>", page, re.DOTALL) if "net benefit" in part)
    assert all(name in drawn for name in ("After SFT", "After RL", "act on everyone"))


def test_episodes_are_a_data_set_as_they_are(whole_run: RunFolder, episodes: dict[str, list[dict[str, Any]]]):
    """docs/training.md: what `datasets` reads is what the run has written."""
    import datasets

    file, cache = whole_run.path / "episodes" / "ghar_rl.jsonl", whole_run.path / "cache"
    found = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(cache))
    assert [{key: row[key] for key in own} for row, own in zip(found, episodes["ghar_rl"], strict=True)] == [
        json.loads(line) for line in file.read_text().splitlines()
    ]


def test_the_critic_is_judged_in_words() -> None:
    def row(step: int, own: float, boosting: float | None, worthless: float = 0.0) -> dict[str, object]:
        numbers = {"train/explained_variance": own, "train/critic/worthless": worthless}
        return {"phase": "rl", "step": step, **numbers, "train/explained_variance/boosting": boosting}

    assert critic([{"phase": "rl", "step": 0}]) is None
    good = critic([row(1, 0.0, None), *(row(step, 0.3, 0.4) for step in range(2, 8))])
    assert good is not None and "last 5 updates the critic explains 30%" in good and "so far 40%" in good
    bad = critic([row(step, 0.0, 0.4, 1.0) for step in range(1, 12)])
    assert bad is not None and "no more than a constant" in bad


def test_curves_of_thresholds_are_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    risk = rng.integers(0, 8, 200) / 8
    truth = (rng.random(200) < 0.2 + 0.5 * risk).astype(int)
    tally = breakdown.RowCounts()
    tally.shares = [("yes" if y else "no", [1 - p, p]) for y, p in zip(truth, risk, strict=True)]
    colors = {"a": "#000000"}
    chance, roc = breakdown.roc_curve({"a": tally}, ("no", "yes"), colors)
    alarms, caught, _ = metrics.roc_curve(truth, risk, drop_intermediate=False)
    assert roc.x == pytest.approx(alarms) and roc.y == pytest.approx(caught) and chance.x == chance.y
    everyone, found = breakdown.precision_recall({"a": tally}, ("no", "yes"), colors)
    precision, recall, _ = metrics.precision_recall_curve(truth, risk)
    assert found.x == pytest.approx(recall[:-1][::-1]) and found.y == pytest.approx(precision[:-1][::-1])
    assert everyone.y == [truth.mean()] * 2
    tally.shares = [("no", [0.5, 0.5])] * 4
    assert breakdown.roc_curve({"a": tally}, ("no", "yes"), colors) == []


def test_a_legend_of_long_names_stays_in_its_picture() -> None:
    lines = [Line(f"Table of severities, with all graph evidence {i}", [0, 1], [0, i], "#000000") for i in range(8)]
    svg = line_chart("x", lines, x_label="x", y_label="y")
    width = float(re.findall(r'viewBox="0 0 ([0-9.]+) ', svg)[0])
    places = [float(x) for x in re.findall(r'x="([0-9.]+)"[^>]*>Table of severities', svg)]
    assert len(places) == 8 and max(places) + 4 * len(lines[0].label) < width


def test_ten_reward_terms_have_ten_colours() -> None:
    rows = [{"phase": "rl", "step": s, **{f"train/reward/{t}": 1.0 for t in "abcdefghij"}} for s in (1, 2)]
    assert len({line.color for line in curves.reward_terms(rows)}) == 10


def count_rows(truth: np.ndarray, shares: list[list[float] | None], who: list[int]) -> breakdown.RowCounts:
    tally = breakdown.RowCounts()
    for i, (sick, own) in enumerate(zip(truth, shares, strict=True)):
        tally.count({
            "sample_id": f"s{i}", "subject_id": who[i], "label": ("no", "yes")[int(sick)], "label_probabilities": own,
            "correct": bool(sick), "needs_retrieval": None, "turns": [], "prompt_tokens": 0, "completion_tokens": 0,
            "seconds": 0.0,
        })  # fmt: skip
    return tally


def test_curves_count_samples_without_probabilities_as_the_table_does() -> None:
    """Dropped, they would leave a ROC curve of a larger area than the AUROC of the same page."""
    rng = np.random.default_rng(1)
    truth, unreadable = rng.random(400) < 0.2, rng.random(400) < 0.4
    risk = np.clip(0.1 + 0.2 * truth + rng.normal(0, 0.1, 400), 0.01, 0.99)
    shares = [None if lost else [1 - p, p] for p, lost in zip(risk, unreadable, strict=True)]
    tally, labels, colors = count_rows(truth, shares, list(range(400))), ("no", "yes"), {"a": "#000000"}
    _, roc = breakdown.roc_curve({"a": tally}, labels, colors)
    assert metrics.auc(roc.x, roc.y) == pytest.approx(metrics.roc_auc_score(truth, np.where(unreadable, 0.5, risk)))
    everyone, curve = breakdown.precision_recall({"a": tally}, labels, colors)
    assert everyone.y[0] == pytest.approx(truth.mean()) and curve.x[-1] == 1
    everyone, net = breakdown.decision_curve({"a": tally}, labels, colors)
    at = everyone.x.index(0.1)
    assert everyone.y[at] == pytest.approx(truth.mean() - (1 - truth.mean()) / 9)
    acted = ~unreadable & (risk >= 0.1)
    assert net.y[net.x.index(0.1)] == pytest.approx(((acted & truth).sum() - (acted & ~truth).sum() / 9) / 400)


def test_a_subgroup_of_few_patients_has_no_interval() -> None:
    """Twelve stays of one patient would have an interval of no width."""
    truth = np.array([True] * 12 + [False] * 30)
    tally = count_rows(truth, [None] * 42, [1] * 12 + list(range(2, 32)))
    lines = {group: cells[0] for group, _, cells in breakdown.subgroups({"a": tally})["lines"]}
    assert lines["label yes"] == ("1.000", "too few patients")
    assert lines["label no"] == ("0.000", "0.000 to 0.000")


def test_a_page_leaves_out_episodes_of_an_earlier_evaluation(tmp_path: Path) -> None:
    """They may be of other weights: the summary has no number of them."""
    run = RunFolder.open(tmp_path / "run")
    for name in ("ghar_sft", "ghar_rl"):
        run.write_episodes(name, make_rows(name, 12))
    run.write_summary({"task": {"name": "los", "labels": list(LABELS)}, "policies": {
        "ghar_rl": policy_summary(make_rows("ghar_rl", 12), LABELS, resamples=10)}})  # fmt: skip
    page = write_report(run.path, LOOK).read_text()
    assert "After RL" in page and "After SFT" not in page
