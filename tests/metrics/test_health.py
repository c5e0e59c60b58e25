"""The verdicts at the top of a page, each side of its threshold, and the page of several runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ghar.errors import BadInput
from ghar.metrics.health import outcome, verdicts
from ghar.metrics.run_comparison import write_several
from ghar.metrics.style import ReportStyle
from ghar.trainers.runs.kept_config import kept_config
from tests.metrics.conftest import HABITS, build_run, make_rows


def states(summary: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, str]:
    return {verdict.about: verdict.state for verdict in verdicts(summary, rows, "ghar_rl")}


def rows_with(**numbers: float) -> list[dict[str, Any]]:
    return [{"phase": "rl", "step": step, **{f"train/{k}": v for k, v in numbers.items()}} for step in range(1, 8)]


def numbered(**numbers: Any) -> dict[str, Any]:
    return {"policies": {"ghar_rl": numbers}}


def test_every_part_of_a_runs_health_has_a_verdict() -> None:
    nothing = states({"policies": {"ghar_rl": {}}}, [])
    assert nothing == {"calibration": "unknown", "replies": "unknown", "leakage": "unknown", "patients": "bad"}
    good = numbered(patients=400, ece=[0.03, 0.02, 0.04], format_errors=[0.0, 0.0, 0.0], failures=0)
    good["audit"] = {"used": "strict", "modes": {"strict": {"leak_score": 0.0}}}
    rows = rows_with(explained_variance=0.4, entropy=0.5, **{"kl/reference": 0.02, "mismatch/mean": 1e-6})
    assert set(states(good, rows).values()) == {"good"}
    bad = numbered(patients=12, ece=[0.3, 0.2, 0.4], format_errors=[0.2, 0.1, 0.3], failures=3)
    bad["audit"] = {"used": "paper", "modes": {"paper": {"leak_score": 1.0}}}
    rows = rows_with(explained_variance=-0.1, entropy=0.01, **{"kl/reference": 3.0, "mismatch/mean": 0.5})
    rows[0]["train/entropy"] = 1.0
    assert set(states(bad, rows).values()) == {"bad"}


def test_decisions_that_were_chosen_are_not_taken_for_readable_replies() -> None:
    summary = numbered(format_errors=[0.0, 0.0, 0.0], completed_decisions=[0.4, 0.3, 0.5])
    [found] = [verdict for verdict in verdicts(summary, [], "ghar_rl") if verdict.about == "replies"]
    assert "0.0% of the replies could not be read. 40.0% left their decision open" in found.sentence


@pytest.mark.parametrize("right, state", [(0.75, "doubtful"), (0.79, "doubtful"), (0.82, "good")])
def test_a_base_that_decides_as_the_most_common_reply_has_not_learned_to_read(right: float, state: str) -> None:
    summary = numbered()
    summary["base_replies"] = {
        "predict": {"right": 0.9, "usual": 0.9, "replies": 400},
        "weigh": {"right": right, "usual": 0.74, "replies": 400},
    }  # fmt: skip
    [base] = [verdict for verdict in verdicts(summary, [], "ghar_rl") if verdict.about == "base model"]
    assert base.state == state and f"weigh {right:.0%} (most common reply 74%)" in base.sentence
    assert ("trainer.base.steps" in base.sentence) == (state == "doubtful")


def test_a_temperature_that_was_fitted_counts() -> None:
    summary = numbered(patients=400, ece=[0.3, 0.2, 0.4], ece_calibrated=[0.02, 0.01, 0.03])
    found = {verdict.about: verdict for verdict in verdicts(summary, [], "ghar_rl")}
    assert found["calibration"].state == "good" and "validation" in found["calibration"].sentence


@pytest.mark.parametrize("interval, state", [
    ([0.1, 0.05, 0.15], "good"), ([-0.1, -0.2, -0.01], "bad"), ([0.01, -0.02, 0.04], "doubtful"),
])  # fmt: skip
def test_whether_it_worked(interval: list[float], state: str) -> None:
    other = {"accuracy": [0, 0, 0]}
    summary = {"differences": {"ghar_rl - llm_only": other, "ghar_rl - ghar_sft": {"accuracy": interval}}}
    found = outcome(summary, ReportStyle(before="ghar_sft", titles={"ghar_sft": "After SFT"}), "ghar_rl")
    assert found[0][:2] == ("ghar_sft", state) and "After SFT" in found[0][2] and len(found) == 2


def test_a_comparison_is_in_the_main_metric_and_names_it() -> None:
    """All texts that are written count as right, so that their accuracies tell nothing."""
    differences = {"lead - nearest": {"accuracy": [0, 0, 0], "rouge_l": [-0.07, -0.09, -0.05]}}
    [(_, state, words)] = outcome({"differences": differences}, ReportStyle(metric="rouge_l"), "lead")
    assert state == "bad" and words == "worse than nearest: -0.070 [-0.090, -0.050] in ROUGE-L, paired"
    [(_, state, words)] = outcome({"differences": differences}, ReportStyle(), "lead")
    assert state == "doubtful" and words.startswith("no different, as far as these patients show, from nearest")


def test_questions_are_of_no_patients() -> None:
    summary = {"policies": {"lead": {"patients": 40}}, "task": {"samples": "questions"}}
    assert verdicts(summary, [], "lead")[-1][::2] == ("questions", "40 test questions; intervals draw whole questions.")
    same = {"differences": {"a - b": {"accuracy": [0, 0, 0]}}}
    [(_, _, words)] = outcome(same, ReportStyle(samples="questions"), "a")
    assert words.startswith("no different, as far as these questions show, from b")


def test_doubts_about_a_comparison_name_whose_answers_they_mean() -> None:
    same, unread = [[11, 0, 0], [1, 0, 0]], [[0, 0, 11], [0, 0, 1]]
    summary = {
        "policies": {"ghar_rl": {"patients": 12, "confusion": same}, "ghar_sft": {"confusion": unread}},
        "differences": {"ghar_rl - ghar_sft": {"accuracy": [0.1, 0.05, 0.15]}},
    }
    [(_, state, words)] = outcome(summary, ReportStyle(titles={"ghar_sft": "A", "ghar_rl": "B"}), "ghar_rl")
    assert state == "doubtful" and words.endswith(
        "; but 100% of the answers of A could not be read, and there are too few patients to compare, and the answers "
        "of B have collapsed"
    )


@pytest.mark.slow
def test_several_runs_stand_side_by_side(tmp_path: Path) -> None:
    folders = []
    for seed in (0, 1):
        run = build_run(tmp_path / f"seed{seed}", {name: make_rows(name, 40, seed) for name in HABITS})
        run.write_config(f"seed: {seed}\ntrainer:\n  lr: 0.1\n")
        folders.append(run.path)
    other = build_run(tmp_path / "other", {name: make_rows(name, 40) for name in HABITS})
    other.write_config("seed: 0\nrun_dir: other\ntrainer:\n  lr: 0.2\n")
    page = write_several([*folders, other.path], tmp_path / "runs.html", kept_config).read_text()
    assert "Means over seeds" in page and "seed0, seed1</th><td>2</td>" in page
    assert '<th scope="row">trainer.lr</th><td>0.1</td><td>0.1</td><td>0.2</td>' in page
    assert ">run_dir<" not in page  # each has its own
    again = build_run(tmp_path / "again", {name: make_rows(name, 40, 1) for name in HABITS})
    again.write_config("seed: 1\ntrainer:\n  lr: 0.1\n")
    copied = write_several([*folders, again.path], tmp_path / "copied.html", kept_config).read_text()
    assert "seed0, seed1</th><td>2</td>" in copied  # a run once more is no third one
    assert "<script" not in page and not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)
    with pytest.raises(BadInput, match="train or evaluate it first"):
        write_several([tmp_path], tmp_path / "none.html", kept_config)


def test_runs_on_texts_are_compared_by_likeness(tmp_path: Path) -> None:
    """All texts that were written are right, so that by accuracy runs on texts are the same."""
    folders = []
    for seed in (0, 1):
        likeness = {"likeness": {"rouge_l": 0.25 + 0.5 * seed}}
        rows = {name: [row | likeness for row in make_rows(name, 40, seed)] for name in HABITS}
        run = build_run(tmp_path / f"seed{seed}", rows)
        run.write_config(f"seed: {seed}\n")
        summary = run.summary()
        assert summary is not None
        for numbers in summary["policies"].values():
            numbers |= {"rouge_l": [0.25, 0.2, 0.3], "own_metrics": {"rouge_l": 40}}
        run.write_summary(summary | {"metric": "rouge_l", "task": {"name": "summary", "samples": "texts"}})
        folders.append(run.path)
    page = write_several(folders, tmp_path / "runs.html", kept_config).read_text()
    assert '<th scope="col">ROUGE-L</th><th scope="col">Accuracy</th>' in page
    assert "ROUGE-L on the test patients" in page and "seed0, seed1</th><td>2</td><td>0.500 [" in page


def test_a_run_of_before_is_compared_under_the_keys_of_today(tmp_path: Path) -> None:
    """Two runs of one configuration, one kept in the keys of 28c2b18: one group, and no key that differs."""
    folders = []
    for name, text in (("old", "model: {finetune: full, lora_rank: 8}"), ("new", "model: {lora_rank: null}")):
        run = build_run(tmp_path / name, {habit: make_rows(habit, 40) for habit in HABITS})
        run.write_config(text + "\n")
        folders.append(run.path)
    page = write_several(folders, tmp_path / "runs.html", kept_config).read_text()
    assert "old, new</th>" in page and "model." not in page
