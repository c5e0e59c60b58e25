"""A run's own table: baselines beside the agent, label-only SFT of the same base, and policies trained with a fixed
decision."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ghar.config import Config
from ghar.data.tasks.splits import Splits
from ghar.envs.baseline_table import with_baselines
from ghar.envs.baselines.fitted import EVIDENCED, FITS
from ghar.envs.ghar.label_only import STAGE
from ghar.envs.records import Records
from ghar.envs.system import WORDS, Reporting, build
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.evaluation.compare import ComparedSystem, compare
from ghar.trainers.evaluation.evaluate import evaluate, evaluate_system
from ghar.trainers.recipe import train

pytestmark = pytest.mark.slow

SHORT = [
    "+experiment=mimic4_los", "threads=1", "data.patients=120", "model.hidden=32", "model.layers=2",
    "model.vocab=1600", "trainer.base.steps=2", "trainer.base.batch=16", "trainer.warmup.samples=40",
    "trainer.warmup.epochs=1", "trainer.rl.updates=1", "trainer.rl.episodes=8", "trainer.rl.eval_samples=4",
    "task.max_train=60", "task.max_valid=10", "task.max_test=8", "eval.bootstrap=20",
]  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def short(run: Path, cache: Path, *overrides: str) -> Config:
    return load([*SHORT, f"run_dir={run}", f"data.cache={cache}", *overrides])


def test_baselines_answer_as_they_do_at_home(cache: Path, tmp_path: Path) -> None:
    names = ["usual", "severities", "counts_lr", "memory"]
    both = f"eval.variants=[scripted,{','.join(names)}]"
    table = evaluate(short(tmp_path / "ghar", cache, both))
    alone = evaluate(short(tmp_path / "home", cache, "system=baselines", f"eval.variants=[{','.join(names)}]"))
    for name in names:
        here, there = (list(RunFolder(tmp_path / run).episodes(name)) for run in ("ghar", "home"))
        for key in ("sample_id", "prediction", "label_probabilities", "label"):
            assert [row[key] for row in here] == [row[key] for row in there], (name, key)
        assert table["policies"][name]["accuracy"] == alone["policies"][name]["accuracy"]
        assert "reward" not in table["policies"][name], "no agent acted, so there is nothing to reward"
        assert table["answered_by"][name] == "no one"
    assert table["titles"]["counts_lr"] == "Regression on counts" and table["chosen"]["counts_lr"]["C"] > 0
    assert table["policies"]["scripted"]["reward"][0] != 0
    assert set(table["differences"]["scripted - usual"]) == {"accuracy", "same"}
    page = (tmp_path / "ghar" / "report.html").read_text()
    assert "Table of severities" in page and re.search(r"memory(, \w+)* ceiling 0", page)  # equal ones share a line


def test_kare_stands_beside_the_same_baselines(cache: Path, tmp_path: Path) -> None:
    names = ["scripted", "usual", "memory", "severities_evidence"]
    own = ("+experiment=kare_demo", "data.patients=120", "threads=1", "task.max_test=8", "eval.bootstrap=20")
    more = (f"eval.variants=[{','.join(names)}]", f"data.cache={cache}", f"run_dir={tmp_path}")
    summary = evaluate(load([*own, *more]))
    assert list(summary["policies"]) == names
    assert set(summary["differences"]["scripted - usual"]) == {"accuracy", "same"}
    assert "with all graph evidence" in (tmp_path / "report.html").read_text()


def test_what_asks_a_policy_cannot_be_borrowed(cache: Path, tmp_path: Path) -> None:
    config = short(tmp_path, cache)
    records = Records(config)
    system = build(records)
    joined = with_baselines(system, records)
    assert set(joined.listed) == {*system.listed, *FITS, *EVIDENCED}
    assert set(joined.read_by(WORDS).variants) == set(joined.variants)
    with pytest.raises(BadInput, match="both have it"):
        with_baselines(replace(joined, report=Reporting(baselines="baselines")), records)
    with pytest.raises(BadInput, match="it asks a policy"):
        with_baselines(replace(system, report=Reporting(baselines="exprag")), records)


def test_a_run_trains_label_only_sft_from_its_own_base(cache: Path, tmp_path: Path) -> None:
    run, asked = tmp_path / "run", f"eval.variants=[{STAGE},ghar_base,ghar_rl,usual]"
    train(short(run, cache, asked))
    summary = json.loads((run / "summary.json").read_text())
    assert summary["answered_by"] == {STAGE: STAGE, "ghar_base": "base", "ghar_rl": "trained", "usual": "no one"}
    assert summary["time"][STAGE] > 0 and not (run / "checkpoints" / f"{STAGE}-steps").exists()
    rows = list(RunFolder(run).episodes(STAGE))
    assert all([turn["role"] for turn in row["turns"]] == ["predict"] and not row["retrieved"] for row in rows)
    assert "label-only sft" in (run / "report.html").read_text().lower()
    again = evaluate(short(run, cache, asked))
    assert again["policies"][STAGE]["accuracy"] == summary["policies"][STAGE]["accuracy"]


def test_label_only_sft_learns_the_labels(cache: Path, tmp_path: Path) -> None:
    """On its own training samples it must come above the usual label: else the baseline is broken, not weak."""
    run = tmp_path / "run"
    own = f"eval.variants=[{STAGE}]", "system.label_epochs=120", "trainer.rl.updates=0", "trainer.warmup.lr=1e-2"
    config = short(run, cache, *own, "task=read")
    train(config)
    records = Records(config)
    system = build(records)
    usual = max(sum(c.label == label for c in system.cases.train) for label in (0, 1)) / len(system.cases.train)
    def seen(reader: Any) -> Any:
        own = system.read_by(reader)
        return replace(own, cases=Splits(own.cases.train, own.cases.valid, own.cases.train))

    told = replace(system, read_by=seen, cases=Splits(*(system.cases.train, system.cases.valid, system.cases.train)))
    found = evaluate_system(told, config, RunFolder.open(tmp_path / "seen"))
    assert found["policies"][STAGE]["accuracy"][0] >= usual


def test_a_fixed_decision_is_fixed_in_training_and_in_the_table(cache: Path, tmp_path: Path) -> None:
    asked = "eval.variants=[ghar_rl,scripted]"
    for decision, rate in (("never", 0.0), ("always", 1.0)):
        run = tmp_path / decision
        train(short(run, cache, f"system.decision={decision}", asked))
        summary = json.loads((run / "summary.json").read_text())
        assert all(numbers["retrieval_rate"][0] == rate for numbers in summary["policies"].values())
        assert summary["titles"]["ghar_rl"] == f"Trained to {decision} retrieve"
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert {row["train/retrieval_rate"] for row in rows if "train/retrieval_rate" in row} == {rate}
        assert all(turn["role"] != "retrieve" for row in RunFolder(run).episodes("ghar_rl") for turn in row["turns"])
    runs = [tmp_path / "never", tmp_path / "always"]
    entries = [ComparedSystem("ghar", short(tmp_path / "unused", cache), "")]
    table = compare(entries, runs, ["ghar_rl"], tmp_path / "compared")
    assert list(table["policies"]) == ["ghar.ghar_rl", "ghar-always.ghar_rl"]
    assert [table["policies"][name]["retrieval_rate"][0] for name in table["policies"]] == [0.0, 1.0]


def test_every_source_is_asked_in_training_too(cache: Path, tmp_path: Path) -> None:
    run = tmp_path / "everyone"
    own = ("data=demo_four", "system.sources=[graph,past,reports]", "system.decision=everyone")
    train(short(run, cache, *own, "eval.variants=[ghar_rl,scripted]"))
    summary = json.loads((run / "summary.json").read_text())
    assert summary["titles"]["ghar_rl"] == "Trained to ask every source"
    for row in RunFolder(run).episodes("ghar_rl"):
        asked = [step for step in row["turns"] if step["role"] == "metapaths"]
        assert asked and len(asked) % 3 == 0 and len(set(row["asked"].values())) == 1
        assert all(turn["role"] != "retrieve" for turn in row["turns"])


def test_a_variant_that_does_not_exist_stops_a_training_before_it_starts(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has no variant ghar_lr: choose among .* Did you mean ghar_rl\?"):
        train(short(tmp_path / "run", cache, "eval.variants=[ghar_lr]"))
    assert not (tmp_path / "run" / "checkpoints" / "sft").exists()


def test_always_retrieving_cannot_be_told_never_to() -> None:
    with pytest.raises(BadInput, match=r"system.ablation=nt always retrieves: leave system.decision=never out"):
        load(["system.ablation=nt", "system.decision=never"])
