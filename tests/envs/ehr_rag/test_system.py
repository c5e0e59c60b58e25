"""EHR-RAG end to end: evaluation on generated patients and on a MEDS folder, regressions, report, training."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from envs.ehr_rag.episode import AGENTS, ROLES
from envs.rollout import derive_seed
from ghar.config import Config
from ghar.errors import BadInput
from ghar.llm.engines import make_engine
from ghar.llm.policy import EnginePolicy
from ghar.metrics.runfolder import RunFolder
from launch.entry import load
from rewards.outcome import score_outcome
from trainers.ehr_rag import evaluate
from trainers.ehr_rag_model import language_model, load_model
from trainers.ehr_rag_study import EventStudy, play_cases, prepare
from trainers.engines import serving
from trainers.linear_baselines import count_features, fit_shots, read_embeddings
from trainers.rl.mappo import update
from trainers.rl.trajectory import build
from trainers.runs.models import make_actor, mappo_config

TINY = (
    "policy=ehr_rag", "task=guo_readmission", "data.patients=120", "task.max_test=8", "eval.bootstrap=50",
    "model.hidden=32", "model.layers=1", "model.heads=2", "model.vocab=512", "ehr_rag.chunking=[6,1]",
    "ehr_rag.chunks=[100,2]", "ehr_rag.budget=[20,120]", "ehr_rag.indicators=[6,2,2]", "env.max_iterations=2",
)  # fmt: skip
ALL = "[ehr_rag,no_ether,no_air,no_der,direct,rag,uniform,rule,react,counts]"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ehr-rag")


def configured(cache: Path, *overrides: str) -> Config:
    return load([*TINY, f"data.cache={cache}", *overrides])


@pytest.fixture(scope="module")
def study(cache: Path) -> EventStudy:
    return prepare(configured(cache, f"ehr_rag.methods={ALL}"))


def test_every_method_is_evaluated_and_reported(cache: Path, tmp_path: Path) -> None:
    own = ["ehr_rag.answers=scripted", f"ehr_rag.methods={ALL}", f"run_dir={tmp_path}", "task.max_test=null"]
    summary = evaluate(configured(cache, *own))
    assert list(summary["policies"]) == ALL.strip("[]").split(",")
    told = summary["policies"]["ehr_rag"]
    assert told["accuracy"][0] > 0.6 and set(told["class_f1"]) == {"no", "yes"} and told["errors"] == {}
    assert told["macro_f1"][0] == pytest.approx(np.mean([v[0] for v in told["class_f1"].values()]))
    assert set(summary["shots"]["counts"]) >= {"1", "2", "4", "all"} and "reward" not in summary["policies"]["counts"]
    assert json.loads((tmp_path / "summary.json").read_text())["system"] == "ehr_rag"
    for name in summary["policies"]:
        for row in RunFolder(tmp_path).episodes(name):
            for lookup in row["lookups"]:
                assert all(passage["last"] < row["prediction_time"] for passage in lookup["passages"])
    page = (tmp_path / "report.html").read_text()
    for expected in ("Events looked up", "Argument for the outcome", "Argument against the outcome", "F1 of each class",
                     "What was retrieved, and when", "The patients are generated."):  # fmt: skip
        assert expected in page
    assert "This run is not complete" not in page


def test_an_untrained_model_answers_and_is_counted(cache: Path, tmp_path: Path) -> None:
    summary = evaluate(configured(cache, f"run_dir={tmp_path}", "ehr_rag.methods=[ehr_rag,direct,react]"))
    told = summary["policies"]["ehr_rag"]
    assert told["tokens"][0] > 100 and sum(told["errors"].values()) > 0
    assert set(told["errors"]) <= {"empty", "no_item", "too_long", "repeated", "no_answer", "outside_labels",
                                   "ambiguous_label"}  # fmt: skip


def test_its_episodes_are_trained_with_mappo(study: EventStudy) -> None:
    """Turns of both agents, side by side or not, go through collection, credit and an update."""
    config = study.config
    model, tokenizer = load_model(study)
    actor = make_actor(config, model)
    engine = make_engine(config, actor.model, tokenizer)
    cases = study.splits.train[:3]
    made = study.episodes("ehr_rag", lambda text: len(tokenizer.encode(text)), 120)
    with serving(engine, actor, 0):
        policy = EnginePolicy(engine, 1.0)
        episodes = play_cases(study, cases, policy, made, seed=derive_seed(0, "rollout"), title="Rollout")
    rewards = [score_outcome(e, case.label, 5.0) for e, case in zip(episodes, cases, strict=True)]
    traj = build(episodes, rewards, AGENTS, ROLES)
    assert len(traj.choice_ids) == sum(len(e.turns) for e in episodes) and traj.failed == 0
    assert {ROLES[role] for role in traj.segments.role} >= {"support", "oppose", "weigh"}
    assert traj.segments.reward.sum() == pytest.approx(sum(reward.total for reward in rewards))
    # what was retrieved is read and never trained on
    rows = list(traj.rows())
    assert traj.trainable_tokens == sum(len(row.tokens) - row.prompt for row in rows) < 0.5 * len(traj.tokens)
    import torch

    optimizer = torch.optim.AdamW(actor.parameter_groups(1e-3, 1e-3))
    before = [weight.detach().clone() for weight in actor.trainable_parameters()]
    update(actor, optimizer, traj, mappo_config(config), np.random.default_rng(0), lambda n=1: None, 0)
    after = actor.trainable_parameters()
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_counts_are_of_codes_before_the_time_and_of_their_ancestors(study: EventStudy) -> None:
    cases = study.splits.train[:5]
    records = study.records(cases, apart=False)
    above = [["LAB"] if code.startswith("LAB/") else [] for code in study.cohort.codes["code"]]
    codes = study.cohort.codes.with_columns(parents=pl.Series(above, dtype=pl.List(pl.String)))
    found = count_features(records, codes)
    for i, case in enumerate(cases):
        events = study.cohort.events.filter(
            pl.col("subject_id") == case.subject_id, (pl.col("time") < case.prediction_time).fill_null(True)
        )
        labs = events["code"].str.starts_with("LAB/").sum()
        assert found[[i]].sum() == events.height + labs


def test_shots_that_a_class_does_not_have_are_left_out(study: EventStudy) -> None:
    cases = sorted((*study.splits.train, *study.splits.valid, *study.splits.test), key=lambda c: c.place)
    row_of = {case.place: i for i, case in enumerate(cases)}
    features = np.array([[float(case.label), 1.0] for case in cases])
    found = fit_shots(features, row_of, study.splits, 2, 0, "Fitting")
    fewest = min(sum(case.label == label for case in study.splits.train) for label in (0, 1))
    assert list(found) == [str(n) for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n <= fewest] + ["all"]
    assert all(shares.sum(axis=1) == pytest.approx(1) for shares in found.values())
    truth = [case.label for case in study.splits.test]
    assert found["all"].argmax(axis=1).tolist() == truth


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_embeddings_from_elsewhere(study: EventStudy, tmp_path: Path, kind: str) -> None:
    cases = study.splits.test
    path = tmp_path / f"vectors.{kind}"
    subjects = [case.subject_id for case in cases]
    times = np.array([case.prediction_time for case in cases], dtype="datetime64[us]")
    vectors = np.arange(2.0 * len(cases), dtype=np.float32).reshape(-1, 2)
    if kind == "npz":
        np.savez(path, subject_id=subjects, prediction_time=times, vector=vectors)
    else:
        pl.DataFrame({"subject_id": subjects, "prediction_time": times, "vector": vectors.tolist()}).write_parquet(path)
    assert np.array_equal(read_embeddings(path, cases[::-1]), vectors[::-1])
    with pytest.raises(BadInput, match="has no vector of patient"):
        read_embeddings(path, study.splits.train)
    with pytest.raises(BadInput, match="does not exist"):
        read_embeddings(tmp_path / "no.npz", cases)


def test_embeddings_are_a_method(cache: Path, study: EventStudy, tmp_path: Path) -> None:
    cases = (*study.splits.train, *study.splits.valid, *study.splits.test)
    everyone = prepare(configured(cache, f"ehr_rag.methods={ALL}", "task.max_test=null")).splits
    cases = (*everyone.train, *everyone.valid, *everyone.test)
    np.savez(
        tmp_path / "v.npz",
        subject_id=[case.subject_id for case in cases],
        prediction_time=np.array([case.prediction_time for case in cases], dtype="datetime64[us]"),
        vector=np.array([[case.label, 0.5] for case in cases]),
    )
    own = [f"ehr_rag.embeddings={tmp_path}/v.npz", "ehr_rag.methods=[embeddings]", f"run_dir={tmp_path}/run"]
    summary = evaluate(configured(cache, *own))
    assert summary["policies"]["embeddings"]["accuracy"][0] == 1 and "auroc" in summary["policies"]["embeddings"]
    assert "Macro-F1 of the regressions" in (tmp_path / "run" / "report.html").read_text()


def test_the_budget_is_at_most_half_of_what_the_model_reads(study: EventStudy) -> None:
    with language_model(study) as (_, count, tokens):
        assert tokens == 120 and count("a b") > 0


@pytest.mark.parametrize("overrides, said", [
    (("task=los",), "policy=ehr_rag does not predict task=los"),
    (("retriever=tfidf",), "makes no vectors"),
    (("ehr_rag.methods=[]",), "at least one method"),
    (("ehr_rag.methods=[rag,rag]",), "each only once"),
    (("ehr_rag.chunking=[5,5]",), "overlap below the size"),
    (("ehr_rag.methods=[embeddings]",), "set both"),
])  # fmt: skip
def test_what_does_not_fit_together_is_said(overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        load(["policy=ehr_rag", *overrides])


def test_labels_and_split_that_come_with_a_meds_folder(study: EventStudy, tmp_path: Path) -> None:
    from ghar.data.readers.meds import write_meds

    write_meds(study.cohort, tmp_path / "meds")
    (tmp_path / "meds" / "labels").mkdir()
    some = study.cohort.events.filter(pl.col("time").is_not_null()).group_by("subject_id").agg(pl.max("time"))
    some = some.sort("subject_id").with_row_index()
    labels = some.select("subject_id", prediction_time="time", boolean_value=pl.col("index") % 3 == 0)
    labels.write_parquet(tmp_path / "meds" / "labels" / "guo_readmission.parquet")
    split = pl.when(pl.col("index") < 40).then(pl.lit("train")).when(pl.col("index") < 60).then(pl.lit("tuning"))
    splits = some.select("subject_id", split=split.otherwise(pl.lit("held_out")))
    splits.write_parquet(tmp_path / "meds" / "metadata" / "subject_splits.parquet")
    own = ["data=meds", f"data.root={tmp_path}/meds", f"data.cache={tmp_path}", "ehr_rag.methods=[direct]"]
    found = prepare(load([*TINY, *own, "task.max_test=null"]))
    assert (len(found.splits.train), len(found.splits.valid)) == (40, 20)
    assert [case.label for case in found.splits.train] == [int(i % 3 == 0) for i in range(40)]
    assert found.counts["labels that came with the data"] == some.height


def test_a_meds_folder_of_real_patients(shared_data: Path, tmp_path: Path) -> None:
    """The open MIMIC-IV demo, exported as MEDS: a task of two and one of four classes, strict and not."""
    from ghar.data.readers.meds import write_meds
    from ghar.data.readers.mimic4 import read_mimic4

    write_meds(read_mimic4(shared_data / "mimic-iv-demo-2.2", charts=False), tmp_path / "meds", shard_size=50)
    folder = ["policy=ehr_rag", "data=meds", f"data.root={tmp_path}/meds", f"data.cache={tmp_path}/cache"]
    folder += ["ehr_rag.answers=scripted", "eval.bootstrap=20", "task.max_test=12", "env.prompts=full"]
    for task, leakage, more in (("guo_los", "paper", ",rag"), ("lab_anemia", "strict", "")):
        run = tmp_path / task
        methods = f"ehr_rag.methods=[ehr_rag{more}]"
        summary = evaluate(load([*folder, f"task={task}", f"data.leakage={leakage}", methods, f"run_dir={run}"]))
        assert not summary["generated"] and summary["credentialed"] is not None
        rows = list(RunFolder(run).episodes("ehr_rag"))
        assert len(rows) == 12 and all(row["prediction"] is not None for row in rows)
        shown = [p for row in rows for lookup in row["lookups"] for p in lookup["passages"]]
        assert {p["kind"] for p in shown} == {"chunks", "indicators"}
        for row in rows:
            end = datetime.fromisoformat(row["prediction_time"])
            for lookup in row["lookups"]:
                assert len(lookup["passages"]) <= (10 if lookup["path"] == "numbers" else 5)
                assert all(datetime.fromisoformat(p["last"]) < end for p in lookup["passages"])
        assert "Events looked up" in (run / "report.html").read_text()
