"""The language-model baselines of KARE's Table 2 on a small demo world: what each is shown, and that each runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ghar.envs.kare import learner
from ghar.envs.kare.coagent import CoagentSpec
from ghar.envs.kare.episode import KareReading, join_both
from ghar.envs.kare.graph.considerations import considerations_of
from ghar.envs.records import Records
from ghar.envs.system import WORDS, System, build
from ghar.episode import Act, Completion, Episode, Evidence
from ghar.launch.entry import load
from ghar.llm.engines import asking
from ghar.llm.policy import EnginePolicy
from tests.envs.kare.playing import played
from tests.llm.api_server import chat, listening, prompt_of

SMALL = (
    "system=kare", "data.patients=60", "task.max_test=4", "task.max_train=30", "system.leiden_runs=1",
    "system.small=10", "system.large=40", "system.concepts=3", "system.path_length=3", "system.path_count=5",
    "system.path_nodes=500", "system.tokens=200", "retriever.top_n=3", "retriever.kind=hashing",
)  # fmt: skip


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> System[KareReading]:
    folder = tmp_path_factory.mktemp("kare")
    return build(Records(load([*SMALL, f"data.cache={folder / 'cache'}", f"run_dir={folder / 'run'}"])))


class Recorder:
    """Says the first label, and keeps what it was asked."""

    def __init__(self) -> None:
        self.acts: list[Act] = []

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        self.acts += acts
        return [Completion(join_both("because", act.facts["case"].task.labels[0])) for act in acts]


def asked(system: System[KareReading], name: str) -> tuple[list[Act], list[Episode]]:
    """The acts and episodes of a variant on the test patients, in the same order."""
    recorder = Recorder()
    episodes = played(system, system.variant(name), recorder)
    acts = {act.facts["case"].sample_id: act for act in recorder.acts}
    assert len(acts) == len(recorder.acts) == len(system.cases.test)  # one question a patient
    return [acts[episode.sample_id] for episode in episodes], episodes


@pytest.mark.slow
def test_zero_shot_sees_the_record_and_what_to_weigh(system: System[KareReading]) -> None:
    for act, episode in zip(*asked(system, "zero_shot"), strict=True):
        case = act.facts["case"]
        assert case.text in act.prompt and considerations_of(system.task.name)[0] in act.prompt
        assert not case.reads.similar and not act.facts["knowledge"] and episode.prediction.label == 0


def test_few_shot_sees_training_patients_of_each_label(system: System[KareReading]) -> None:
    texts = {case.text for case in system.cases.train}
    for act in asked(system, "few_shot")[0]:
        shown = act.facts["case"].reads.similar.split("\noutcome: ")
        assert act.facts["case"].reads.similar in act.prompt and not act.facts["knowledge"]
        outcomes = [text.split("\n")[0] for text in shown[1:]]
        assert outcomes == list(system.task.labels)
        assert shown[0] in texts  # the nearest of the first label is a training patient's record
    longer = [act.facts["case"].reads.similar.count("outcome: ") for act in asked(system, "few_shot_4")[0]]
    assert max(longer) == 4


def test_few_shot_in_kares_context_sees_communities_and_patients_of_each_label(system: System[KareReading]) -> None:
    acts, _ = asked(system, "kare_few_shot")
    for act in acts:
        case = act.facts["case"]
        assert case.reads.similar in act.prompt and case.reads.similar.count("outcome: ") == len(system.task.labels)
        assert considerations_of(system.task.name)[0] in act.prompt
        assert {passage.kind for passage in act.facts["evidence"].passages} <= {"community"}
        assert act.facts["knowledge"] in act.prompt
    assert any(act.facts["knowledge"] for act in acts)


def test_the_tuned_rag_learns_labels_from_contexts_with_abstracts(system: System[KareReading]) -> None:
    pairs = system.training.stages["rag_tuned"](WORDS)
    assert [reply for _, reply, _, _ in pairs.train] == [c.task.labels[c.label] for c in system.cases.train]
    assert all("GENERATED ABSTRACT." in prompt for prompt, *_ in pairs.train)
    prompts = {prompt for prompt, *_ in system.training.stages["label_only"](WORDS).train}
    assert prompts.isdisjoint(prompt for prompt, *_ in pairs.train)
    acts, _ = asked(system, "rag_tuned")
    assert all("GENERATED ABSTRACT." in act.prompt and act.role == "predict" for act in acts)


def test_classic_rag_sees_abstracts_within_the_budget(system: System[KareReading]) -> None:
    acts, episodes = asked(system, "rag")
    for act, episode in zip(acts, episodes, strict=True):
        evidence: Evidence = act.facts["evidence"]
        assert len(evidence.passages) == 3 and {passage.kind for passage in evidence.passages} == {"abstract"}
        assert all("GENERATED ABSTRACT." in passage.text for passage in evidence.passages)
        assert 0 < len(act.facts["knowledge"].split()) <= 200 and act.facts["knowledge"] in act.prompt
        assert not act.facts["case"].reads.similar and episode.failure is None


def test_a_variant_without_its_guidelines_is_refused(system: System[KareReading]) -> None:
    with pytest.raises(ValueError, match="no guidelines yet"):
        system.episode(system.cases.test[0], system.variant("coagent"))
    assert system.prepare(system.variant("few_shot"), Recorder()) == system.variant("few_shot")


def test_coagent_learns_how_rare_an_outcome_is(system: System[KareReading], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner, "ROUNDS", CoagentSpec(rounds=1, cases=3))
    prepared = system.prepare(system.variant("coagent"), Recorder())
    [episode, *_] = played(system, prepared, Recorder())
    assert "Keep in mind" in prepared.spec.advice and episode.prediction.label == 0
    found = system.report.summary({"coagent": []})["guidelines"]["coagent"]
    assert found["advice"] == prepared.spec.advice and len(found["rounds"]) == 1
    assert not system.report.summary({"kare": []})["guidelines"]


def test_coagent_learns_within_the_budget_that_it_will_have(
    system: System[KareReading], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(learner, "ROUNDS", CoagentSpec(rounds=1, cases=3))
    kare, recorder = system.read_by.__self__, Recorder()  # type: ignore[attr-defined]
    env = replace(kare.records.config.env, reply_tokens={"reason": 77, "both": 77, "predict": 77})
    config = replace(kare.records.config, run_dir=str(tmp_path), env=env)
    own = replace(kare, records=Records(config), learned={}).read_by(WORDS)
    own.prepare(own.variant("coagent"), recorder)
    assert len(recorder.acts) == 3 and {act.max_tokens for act in recorder.acts} == {77}


@pytest.fixture
def gloomy() -> Iterator[tuple[str, list[str]]]:
    """A served model that expects the worst for everyone."""
    prompts: list[str] = []

    def reply(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        prompts.append(prompt_of(body))
        return 200, chat("Looks grave.\nanswer: yes")

    with listening(reply) as (url, _):
        yield f"m@{url}", prompts


@pytest.mark.slow
def test_a_served_model_predicts_and_is_criticised(
    system: System[KareReading], gloomy: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address, prompts = gloomy
    monkeypatch.setattr(learner, "ROUNDS", CoagentSpec(rounds=1, cases=8, batch=2))
    kare = system.read_by.__self__  # type: ignore[attr-defined]
    config = replace(kare.records.config, run_dir=str(tmp_path))
    own = replace(kare, records=Records(config), learned={}).read_by(WORDS)
    with asking(config, address, False) as engine:
        policy = EnginePolicy(engine, temperature=0)
        variant = own.prepare(own.variant("coagent_unregulated"), policy)
        episodes = played(own, variant, policy)
    learned = own.report.summary({"coagent_unregulated": []})["guidelines"]["coagent_unregulated"]
    assert learned["rounds"][0]["wrong"] > 0 and " speaks for no." in learned["advice"]
    assert not learned["rounds"][0]["failed"] and list((tmp_path / "coagent").glob("*.jsonl"))
    assert {episode.prediction.label for episode in episodes} == {1}
    assert sum(learned["advice"] in prompt for prompt in prompts) == len(episodes) == 4
