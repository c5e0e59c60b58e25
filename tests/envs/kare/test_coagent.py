"""EHR-CoAgent: the loop, its limits, and what it does with a critic that fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ghar.data.cohort import Task
from ghar.envs.case import Case
from ghar.envs.kare.coagent import MOST, CoagentSpec, advise, learn_guidelines, read_guidelines, regulator
from ghar.envs.kare.episode import KareEpisodes, KareReading, KareSpec, join_both
from ghar.envs.kare.scripted_expert import scripted_critic
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.episode import Act, Completion, Episode
from ghar.llm.cached_llm import UnreadableAnswer
from ghar.llm.scripted import ScriptedEngine

SPEC = CoagentSpec(rounds=3, cases=40, batch=5, merged=2)


@pytest.fixture(scope="module")
def task() -> Task:
    return Task("kare_readmission", "Back within 15 days?", ("no", "yes"))


@pytest.fixture(scope="module")
def cases(task: Task) -> list[Case[KareReading]]:
    """Whoever has gout comes back; a cold does not matter."""
    made = []
    for i in range(60):
        gout, cold = i % 3 == 0, i % 2 == 0
        topics = ["disease gout"] * gout + ["disease cold"] * cold + [f"drug d{i % 7}"]
        made.append(Case(f"s{i}", i, i, "now: " + "; ".join(topics), tuple(topics), task, int(gout), KareReading()))
    return made


class Obedient:
    """A predictor that says the second label when a guideline tells it to, and else the first."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(join_both("as told", self.label(act))) for act in acts]

    def label(self, act: Act) -> str:
        case: Case[KareReading] = act.facts["case"]
        told = [topic for topic in case.topics if f"{topic} speaks for {case.task.labels[1]}." in act.prompt]
        return case.task.labels[bool(told)]


class Nothing:
    def retrieve(self, requests):
        raise AssertionError("nothing is looked up")


def playing(policy: object = None, keep: list[str] | None = None) -> Callable[..., list[Episode]]:
    def play(cases: Sequence[Case[KareReading]], advice: str, seed: int) -> list[Episode]:
        if keep is not None:
            keep.append(advice)
        episodes = KareEpisodes(KareSpec("compact", "within", 100, advice), lambda case: None, len)
        jobs = [EpisodeJob(case.sample_id, 0, partial(episodes.episode, case)) for case in cases]
        return rollout(jobs, {"top": policy or Obedient()}, Nothing(), seed=seed, in_flight=8)  # type: ignore[arg-type]

    return play


def learn(cases, store: Path, reply=scripted_critic, *, play=None, spec=SPEC, regulated=False, first=()):
    return learn_guidelines(
        play or playing(), ScriptedEngine(reply), cases, first, store, spec, regulated=regulated, seed=1
    )


def test_the_critic_finds_what_the_predictor_missed(cases: list[Case[KareReading]], task: Task, tmp_path: Path):
    advices: list[str] = []
    play, spec = playing(keep=advices), replace(SPEC, rounds=9)
    found = learn(cases, tmp_path / "s.jsonl", play=play, spec=spec, first=("Read carefully.",))
    no, yes = task.labels
    assert advices == [advise(points, "") for points in (("Read carefully.",), *(r.points for r in found.rounds[:-1]))]
    first, last = found.rounds[0], found.rounds[-1]
    assert first.wrong > 10 and first.lists == -(-first.wrong // SPEC.batch) and not first.failed
    assert {"Read carefully.", f"disease gout speaks for {yes}."} <= set(first.points)
    assert (last.right, last.wrong, last.lists) == (40, 0, 0) and len(found.rounds) < 9  # nothing left to learn from
    assert f"disease cold speaks for {no}." in last.points and found.advice == advise(last.points, "")
    assert all(r.right + r.wrong == 40 and len(r.points) < MOST for r in found.rounds)
    assert found.cost.asked > sum(r.lists for r in found.rounds) and found.cost.prompt_tokens > 0


def test_resumed_it_asks_nothing_again(cases: list[Case[KareReading]], tmp_path: Path):
    calls: list[str] = []

    def dying(prompt: str) -> str:
        if len(calls) == 4:
            raise ConnectionError("gone")
        calls.append(prompt)
        return scripted_critic(prompt)

    whole = learn(cases, tmp_path / "whole.jsonl")
    with pytest.raises(ConnectionError):
        learn(cases, tmp_path / "s.jsonl", dying)
    resumed = learn(cases, tmp_path / "s.jsonl")
    assert resumed.rounds == whole.rounds and resumed.advice == whole.advice and resumed.cost.reused >= 3
    again = learn(cases, tmp_path / "s.jsonl", lambda p: pytest.fail("asked again"))
    assert again.advice == whole.advice and again.cost.reused == whole.cost.asked


def test_the_regulator_is_told_from_the_first_round_to_the_end(
    cases: list[Case[KareReading]], task: Task, tmp_path: Path
):
    advices: list[str] = []
    found = learn(cases, tmp_path / "s.jsonl", play=playing(keep=advices), regulated=True)
    rule = regulator(task, [case.label for case in cases])
    assert f"{task.labels[0]} 67%, {task.labels[1]} 33%" in rule
    assert advices[0] == rule and all(advice.endswith(rule) for advice in [*advices, found.advice])
    assert all("Keep in mind" not in point for r in found.rounds for point in r.points)


def test_a_critic_that_says_nothing_usable_changes_nothing(cases: list[Case[KareReading]], tmp_path: Path):
    found = learn(cases, tmp_path / "s.jsonl", lambda prompt: "I am sorry.", first=("Read carefully.",))
    assert len(found.rounds) == 3 and all(r.points == ("Read carefully.",) and r.lists == 0 for r in found.rounds)
    assert set(found.rounds[0].failed.values()) == {"no_list"}
    assert found.cost.by_reason == {"no_list": found.cost.asked}


def test_unreadable_predictions_are_counted_and_not_criticised(cases: list[Case[KareReading]], tmp_path: Path):
    class Mumbling(Obedient):
        def label(self, act: Act) -> str:
            return "perhaps"

    found = learn(cases, tmp_path / "s.jsonl", lambda p: pytest.fail("nothing to ask"), play=playing(Mumbling()))
    assert [(r.unreadable, r.wrong, r.right) for r in found.rounds] == [(40, 0, 0)]


def test_the_critic_sees_no_case_that_was_right_and_no_regulator(cases: list[Case[KareReading]], tmp_path: Path):
    prompts: list[str] = []
    learn(cases, tmp_path / "s.jsonl", lambda p: prompts.append(p) or scripted_critic(p), regulated=True)
    shown = [p for p in prompts if "# Wrong predictions" in p]
    assert shown and not any("Keep in mind" in p for p in prompts)
    for prompt in shown:
        answers = re.findall(r"Predicted: (.+)\nWhat happened: (.+)", prompt)
        assert 0 < len(answers) <= SPEC.batch and all(predicted != happened for predicted, happened in answers)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=30), merged=st.integers(2, 5))
def test_whatever_the_critic_writes_the_final_list_is_short(tmp_path_factory, cases, sizes, merged):
    """A critic whose n-th list has sizes[n] points, and never the same ones."""
    asked: list[str] = []

    def reply(prompt: str) -> str:
        asked.append(prompt)
        number = len(asked)
        return "\n".join(f"{i + 1}. point {number}-{i}" for i in range(sizes[number % len(sizes)])) or "prose"

    store = tmp_path_factory.mktemp("any") / "s.jsonl"
    spec = CoagentSpec(rounds=2, cases=60, batch=2, merged=merged)
    found = learn(cases, store, reply, spec=spec, play=playing(type("Stubborn", (Obedient,), {"label": _first})()))
    assert all(len(r.points) < MOST for r in found.rounds)
    assert found.cost.asked == len(asked) < 400


def _first(self: object, act: Act) -> str:
    return act.facts["case"].task.labels[0]


@pytest.mark.parametrize(("reply", "points"), [
    ("1. Look.\n 2) Listen.\n- Feel.\n* Look.\nThat is all.", ("Look.", "Listen.", "Feel.")),
    ("Sorry.", "no_list"), ("", "no_list"), ("1.\n2.", "no_list"),
    ("1. Look.\n2. Compare with the ground truth.", "speaks_of_truth"),
])
def test_reading_guidelines(reply: str, points: object):
    if isinstance(points, tuple):
        assert read_guidelines(reply) == points
    else:
        with pytest.raises(UnreadableAnswer, match=str(points)):
            read_guidelines(reply)


def test_the_scripted_critic_answers_nothing_else():
    with pytest.raises(ValueError, match="something else"):
        scripted_critic("Hello")
