"""EXPRAG end to end on generated patients and reports: evaluation, report, study of rankers, training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from trainers.exprag import ExpragStudy, evaluate, play_questions, prepare
from trainers.exprag_model import token_pieces
from trainers.exprag_rankers import judge_rankers, sample_candidates

from envs.exprag.episode import ExpragEpisodes
from envs.exprag.rule import MajorityOfExperiences
from ghar.config import Config
from ghar.episode import Act, Completion
from ghar.errors import BadInput
from ghar.metrics.runfolder import RunFolder
from ghar.retrieval.reports import similarities
from launch.entry import load
from trainers import exprag, exprag_train

TINY = (
    "policy=exprag", "data.patients=120", "model.hidden=32", "model.layers=1", "model.heads=2", "model.vocab=512",
    "exprag.words=60", "exprag.excerpts=6", "env.history_tokens=30", "task.max_test=12", "eval.bootstrap=50",
)  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exprag")


def configured(cache: Path, *overrides: str) -> Config:
    return load([*TINY, f"data.cache={cache}", *overrides])


@pytest.fixture(scope="module")
def study(cache: Path) -> ExpragStudy:
    return prepare(configured(cache))


def f1_of(summary: dict, name: str) -> float:
    return summary["policies"][name]["f1"][0]


def test_every_policy_is_evaluated_and_reported(cache: Path, tmp_path: Path) -> None:
    summary = evaluate(configured(cache, f"run_dir={tmp_path}"))
    names = ["direct", "exprag", "scripted_direct", "scripted"]
    assert list(summary["policies"]) == names and summary["generated"] and not summary["credentialed"]
    assert json.loads((tmp_path / "summary.json").read_text())["system"] == "exprag"
    untrained = summary["policies"]["exprag"]
    assert sum(untrained["errors"].values()) > 0 and set(untrained["errors"]) <= {
        "empty", "no_option", "unknown_option",
    }  # fmt: skip
    assert summary["policies"]["direct"]["retrieval_rate"][0] == 0 and untrained["retrieval_rate"][0] == 1
    assert untrained["tokens"][0] > summary["policies"]["direct"]["tokens"][0]
    row = next(iter(RunFolder(tmp_path).episodes("scripted")))
    assert len(row["experience"]["ranked"]) == 15 and row["experience"]["found"]
    assert {o["letter"] for o in row["experience"]["options"] if o["right"]} == set(row["label"])
    page = (tmp_path / "report.html").read_text()
    for told in ("Ranked stays", "What their reports say", "How it was used", "The patients are generated."):
        assert told in page
    assert "This run is not complete" not in page


@pytest.mark.parametrize("task", ["dischargeqa_diagnosis", "dischargeqa_medication", "dischargeqa_instruction"])
def test_experience_helps_the_fixed_rule(cache: Path, tmp_path: Path, task: str) -> None:
    """The habits of the generated hospital stand in the reports of other patients alone."""
    own = [f"task={task}", "task.max_test=null", "exprag.policies=[scripted_direct,scripted]", f"run_dir={tmp_path}"]
    summary = evaluate(configured(cache, "exprag.excerpts=48", *own))
    better = summary["differences"]["scripted - scripted_direct"]
    assert better["accuracy"][0] > 0.1 and f1_of(summary, "scripted") > f1_of(summary, "scripted_direct")


@pytest.mark.parametrize("overrides", [
    ("exprag.ranker=released",), ("exprag.ranker=text",), ("exprag.ranker=text", "retriever.kind=hashing"),
    ("exprag.ranker=complementary", "exprag.retriever=fusion"), ("exprag.retriever=sentence_window",),
    ("data.leakage=strict", "exprag.retriever=bm25"),
])  # fmt: skip
def test_other_rankers_and_retrievers_play(cache: Path, overrides: tuple[str, ...]) -> None:
    made = prepare(configured(cache, "task.max_test=4", *overrides))
    episodes = ExpragEpisodes(made.spec(True))
    played = play_questions(made, made.splits.test, MajorityOfExperiences(), episodes, seed=0, title="Play")
    assert all(e.failure is None and e.prediction.label for e in played)
    assert any(e.prediction.history[0].retrieved for e in played)


def test_strict_asks_training_patients_alone(cache: Path, study: ExpragStudy) -> None:
    strict = prepare(configured(cache, "data.leakage=strict"))
    train = {question.subject_id for question in strict.splits.train}
    assert set(strict.corpus.index.subject_id.tolist()) <= train
    assert len(strict.corpus.index) < len(study.corpus.index)


def test_flare_asks_an_engine_how_sure_it_is(cache: Path, tmp_path: Path) -> None:
    config = configured(
        cache, "exprag.retriever=flare", "exprag.policies=[exprag]", "task.max_test=2", f"run_dir={tmp_path}"
    )
    evaluate(config)
    for row in RunFolder(tmp_path).episodes("exprag"):
        roles = [turn["role"] for turn in row["turns"]]
        assert roles[-1] == "predict" and "answer" in roles and len(row["experience"]["queries"]) >= 1


def test_replies_without_probabilities_are_refused() -> None:
    with pytest.raises(BadInput, match="log-probabilities"):
        token_pieces(None, Completion("said by a person"))


class Alike:
    """A judge that sees what the ranker sees, in thirds of ten."""

    def __init__(self, study: ExpragStudy):
        self.study = study

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(self._says(act)) for act in acts]

    def _says(self, act: Act) -> str:
        index = self.study.corpus.index
        own = similarities(index, self.study.corpus.queries[act.facts["first"]], (1 / 3, 1 / 3, 1 / 3))
        score = own[index.visit_id.tolist().index(act.facts["second"])]
        return "nothing" if act.facts["second"] % 10 == 0 else f"{10 * score:.4f}, {10 * score:.4f}, {10 * score:.4f}"


def test_a_judge_that_thinks_like_a_ranker_agrees_with_it(cache: Path) -> None:
    made = prepare(configured(cache, "exprag.judged=3"))
    found = judge_rankers(made, Alike(made))
    ehr, text = found["rankers"]["ehr"], found["rankers"]["text"]
    assert ehr["pearson"][0] > 0.999 and ehr["spearman"][0] > 0.99 and ehr["patients"] == 3
    assert text["pearson"][0] < ehr["pearson"][0]
    assert 0 < found["unreadable"] < found["pairs"] <= 300


def test_candidates_are_other_patients(study: ExpragStudy) -> None:
    question = study.splits.test[0]
    rows = sample_candidates(study, question)
    assert 20 <= len(rows) <= 100 and len(set(rows.tolist())) == len(rows)
    assert question.subject_id not in study.corpus.index.subject_id[rows]
    assert rows.tolist() == sample_candidates(study, question).tolist()


def test_warm_up_and_ppo_train_the_reader(cache: Path, tmp_path: Path) -> None:
    config = configured(
        cache, "trainer.warmup.batch=8", "trainer.warmup.micro_batch=8", "trainer.warmup.epochs=1",
        "trainer.warmup.samples=32", "trainer.rl.updates=1",
        "trainer.rl.episodes=8", "trainer.rl.eval_samples=4", "exprag.policies=[exprag]", "task.max_test=4",
        f"run_dir={tmp_path}",
    )  # fmt: skip
    summary = exprag_train.train(config)
    rows = RunFolder(tmp_path).metrics()
    update = next(row for row in rows if row["phase"] == "rl" and row["step"] == 1)
    assert update["train/ratio/first"] == pytest.approx(1.0, abs=1e-3) and "train/reward/f1" in update
    assert {"sft", "rl"} == {row["phase"] for row in rows} and update["eval/f1"] is not None
    assert summary["policies"]["exprag"]["n"] == 4
    with pytest.raises(BadInput, match="holds a trained model"):
        exprag_train.train(config)


@pytest.mark.parametrize("overrides, said", [
    (("data=mimic4", "data.root=tables"), "exprag.notes is null"),
    (("data=mimic3",), "data=mimic3 needs data.root"),
])  # fmt: skip
def test_missing_sources_are_named(cache: Path, overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        exprag.prepare(configured(cache, *overrides))
