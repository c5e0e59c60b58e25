"""The language-model baselines of KARE's Table 2 on a small demo world: what each is shown, and that each runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import trainers.kare as kare
from envs.kare.episode import join_both
from ghar.config import Config
from ghar.data.tasks.considerations import considerations_of
from ghar.episode import Act, Completion, Episode, Evidence
from launch.entry import load
from tests.llm.api_server import chat, listening, prompt_of
from trainers.coagent import CoagentSpec
from trainers.kare import methods_of, play_cases
from trainers.kare_study import KareStudy, prepare

SMALL = (
    "policy=kare", "data.patients=60", "task.max_test=4", "task.max_train=30", "kare.communities=[1,5,10,40]",
    "kare.paths=[3,3,5,500]", "kare.tokens=200", "retriever.top_n=3", "retriever.kind=hashing", "eval.bootstrap=20",
)  # fmt: skip
TINY = ("model.hidden=32", "model.layers=1", "model.heads=2")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Config]:
    folder = tmp_path_factory.mktemp("kare")
    fixed = [*SMALL, f"data.cache={folder / 'cache'}", "kare.methods=[zero_shot,few_shot,rag]"]
    return lambda *more: load([*fixed, f"run_dir={folder / 'run'}", *more])


@pytest.fixture(scope="module")
def study(config: Callable[..., Config]) -> KareStudy:
    return prepare(config())


class Recorder:
    """Says the first label, and keeps what it was asked."""

    def __init__(self) -> None:
        self.acts: list[Act] = []

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        self.acts += acts
        return [Completion(join_both("because", act.facts["case"].task.labels[0])) for act in acts]


def played(study: KareStudy, name: str) -> tuple[list[Act], list[Episode]]:
    """The acts and episodes of a method on the test patients, in the same order."""
    recorder, method = Recorder(), methods_of(study.kare)[name]
    cases = study.cases(study.records.splits.test, len, method.similar)
    advice = "\n".join(considerations_of(study.records.task.name))
    episodes = play_cases(study, cases, method, recorder, lambda text: len(text.split()), advice, title=name)
    acts = {act.facts["case"].sample_id: act for act in recorder.acts}
    assert len(acts) == len(recorder.acts) == len(cases)  # one question a patient
    return [acts[episode.sample_id] for episode in episodes], episodes


def test_zero_shot_sees_the_record_and_what_to_weigh(study: KareStudy):
    for act, episode in zip(*played(study, "zero_shot"), strict=True):
        case = act.facts["case"]
        assert case.text in act.prompt and considerations_of(study.records.task.name)[0] in act.prompt
        assert not case.similar and not act.facts["knowledge"] and episode.prediction.label == 0


def test_few_shot_sees_one_training_patient_of_each_label(study: KareStudy):
    train = {sample.sample_id: sample for sample in study.records.splits.train}
    texts = {case.text: case.sample_id for case in study.cases(list(train.values()), len, False)}
    for act in played(study, "few_shot")[0]:
        shown = act.facts["case"].similar.split("\noutcome: ")
        assert act.facts["case"].similar in act.prompt and not act.facts["knowledge"]
        outcomes = [text.split("\n")[0] for text in shown[1:]]
        assert outcomes == list(study.records.task.labels)
        assert shown[0] in texts  # the nearest of the first label is a training patient's record


def test_classic_rag_sees_abstracts_within_the_budget(study: KareStudy):
    acts, episodes = played(study, "rag")
    for act, episode in zip(acts, episodes, strict=True):
        evidence: Evidence = act.facts["evidence"]
        assert len(evidence.passages) == 3 and {passage.kind for passage in evidence.passages} == {"abstract"}
        assert all("GENERATED ABSTRACT." in passage.text for passage in evidence.passages)
        assert 0 < len(act.facts["knowledge"].split()) <= 200 and act.facts["knowledge"] in act.prompt
        assert not act.facts["case"].similar and episode.failure is None


def test_coagent_runs_with_a_model_of_our_own(config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kare, "ROUNDS", CoagentSpec(rounds=1, cases=3))
    summary = kare.evaluate(config("task.max_test=2", "kare.methods=[coagent]", *TINY))
    assert summary["policies"]["coagent"]["n"] == 2
    told = summary["guidelines"]["coagent"]
    assert "Keep in mind" in told["advice"] and len(told["rounds"]) == 1


@pytest.fixture
def gloomy() -> Iterator[tuple[str, list[str]]]:
    """A served model that expects the worst for everybody."""
    prompts: list[str] = []

    def reply(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        prompts.append(prompt_of(body))
        return 200, chat("Looks grave.\nanswer: yes")

    with listening(reply) as (url, _):
        yield f"m@{url}", prompts


def test_a_served_model_predicts_and_is_criticised(
    config: Callable[..., Config], gloomy: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    address, prompts = gloomy
    monkeypatch.setattr(kare, "ROUNDS", CoagentSpec(rounds=1, cases=8, shown=2))
    served = ("engine=api", "model=pretrained", f"model.path={address}", "trainer.base.steps=0")
    chosen = config(*served, "kare.methods=[zero_shot,coagent_unregulated]", f"run_dir={tmp_path / 'run'}")
    summary = kare.evaluate(chosen)
    learned = summary["guidelines"]["coagent_unregulated"]
    assert learned["rounds"][0]["wrong"] > 0 and " speaks for no." in learned["advice"]
    assert learned["cost"]["prompt_tokens"] > 0 and not learned["rounds"][0]["failed"]
    rows = [json.loads(line) for line in (tmp_path / "run/episodes/coagent_unregulated.jsonl").read_text().splitlines()]
    assert {row["prediction"] for row in rows} == {"yes"} and all(row["prompt_tokens"] == 7 for row in rows)
    assert sum(learned["advice"] in prompt for prompt in prompts) == len(rows) == 4
