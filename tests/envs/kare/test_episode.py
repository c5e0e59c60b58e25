"""KARE's episode: what it looks up and asks, within which budget, and that the label is never shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.cohort import Task
from ghar.envs import check
from ghar.envs.case import Case
from ghar.envs.kare.episode import (
    KareEpisodes,
    KarePrediction,
    KareReading,
    KareSpec,
    Reasoning,
    base_text,
    both_prompt,
    join_both,
    kare_scene,
    knowledge_of,
    knowledge_text,
    label_prompt,
    parse_both,
    reason_prompt,
    split_both,
)
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.views.games import TextGame
from ghar.envs.views.gym_view import GymView
from ghar.episode import Act, Completion, Episode, Evidence, Passage, Retrieve

TASK = Task("kare-mortality", "Will this patient die in the next hospital visit?", ("no", "yes"))
READS = KareReading("Similar patient 1 (answer: no): gout")
CASE = Case("s1", 1, 11, "Visit 0:\n  Conditions: sepsis", (), TASK, 1, READS)
FOUND = Evidence((
    Passage("Sepsis is grave.", "community", -1, 0.9, 7), Passage("Gout is mild.", "community", -1, 0.4, 3),
))  # fmt: skip


class Shelf:
    """A corpus with one answer."""

    def __init__(self, found: Evidence = FOUND):
        self.found = found
        self.asked: list[Retrieve] = []

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        self.asked += requests
        return [self.found for _ in requests]


class Says:
    """Replies by role."""

    def __init__(self, **replies: str):
        self.replies = replies
        self.acts: list[Act] = []

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        self.acts += acts
        return [Completion(self.replies[act.role]) for act in acts]


def words(text: str) -> int:
    return len(text.split())


def look_up(case: Case[KareReading]) -> Retrieve | None:
    return Retrieve(base_text(case), None, 2)


def play(
    policy: Says, reasoning: Reasoning = "beside", corpus: Any = None, advice: str = "", up: Any = look_up
) -> tuple[Episode, Shelf]:
    corpus = corpus or Shelf()
    episodes = KareEpisodes(KareSpec("full", reasoning, 100, advice), up, words)
    job = EpisodeJob(CASE.sample_id, 0, lambda: episodes.episode(CASE))
    [episode] = rollout([job], {"top": policy}, corpus, seed=0, in_flight=4, steady=True)
    return episode, corpus


def predicted(episode: Episode) -> KarePrediction:
    assert isinstance(episode.prediction, KarePrediction)
    return episode.prediction


def test_look_up_then_reason_and_predict_side_by_side() -> None:
    policy = Says(reason="Sepsis kills.", predict="yes")
    episode, corpus = play(policy)
    [request] = corpus.asked
    for told in (TASK.question, "sepsis", "Similar patient 1"):
        assert told in request.query
    assert [(act.agent, act.role, act.choices) for act in policy.acts] == [
        ("top", "reason", ()), ("top", "predict", ("no", "yes")),
    ]  # fmt: skip
    assert policy.acts[0].prompt.startswith("[Reasoning]") and policy.acts[1].prompt.startswith("[Label Prediction]")
    found = predicted(episode)
    assert (found.label, found.chain) == (1, "Sepsis kills.") and found.evidence == FOUND
    [step] = found.history
    assert step.retrieved and "Sepsis is grave." in step.evidence
    for act in policy.acts:
        assert "- Sepsis is grave.\n- Gout is mild." in act.prompt


def test_without_reasoning_one_question_is_asked() -> None:
    policy = Says(predict="no")
    episode, _ = play(policy, "none")
    assert [act.role for act in policy.acts] == ["predict"]
    assert (episode.prediction.label, predicted(episode).chain) == (0, "")


@pytest.mark.parametrize("reply, label, chain, error", [
    ("It is grave.\nanswer: yes", 1, "It is grave.", None),
    ("First I thought answer: yes. No.\nAnswer: no", 0, "First I thought answer: yes. No.", None),
    ("Yes, he dies.", None, "Yes, he dies.", "no_answer"),
    ("Hard to say.\nanswer: maybe", None, "Hard to say.", "no_label"),
    ("answer: yes or no", None, "", "ambiguous_label"),
    ("", None, "", "empty"),
])  # fmt: skip
def test_one_reply_with_both(reply: str, label: int | None, chain: str, error: str | None) -> None:
    episode, _ = play(Says(both=reply), "within")
    assert episode.prediction.label == label and predicted(episode).chain == chain
    [turn] = episode.turns
    assert turn.format_ok is (error is None) and parse_both(reply, TASK).error == error


def test_joined_replies_are_read_again() -> None:
    reply = join_both("1. Brief.\n2. Grave.", "yes")
    assert parse_both(reply, TASK).value == 1 and split_both(reply) == "1. Brief.\n2. Grave."


def test_nothing_is_looked_up_where_nothing_is_asked_for() -> None:
    policy = Says(both="answer: no")
    episode, corpus = play(policy, "within", up=lambda case: None, advice="Weigh the organs that fail.")
    assert not corpus.asked and not episode.prediction.history[0].retrieved
    assert "Weigh the organs that fail." in policy.acts[0].prompt


@pytest.mark.parametrize("similar", ["", "patient 3: gout"])
def test_what_is_not_given_has_no_heading_in_one_question_for_both(similar: str) -> None:
    """Zero-shot and few-shot: an untrained model reads no empty lists."""
    prompt = both_prompt(replace(CASE, reads=replace(CASE.reads, similar=similar)), "", "full")
    assert "(none)" not in prompt and "# Medical knowledge" not in prompt and "\n\n\n" not in prompt
    assert ("# Similar patients\n" in prompt) == bool(similar) and CASE.text in prompt


def test_similar_patients_may_be_of_another_hospital() -> None:
    """eICU's demo has 186 hospitals."""
    reading = KareReading(similar="Visit 1 of 1: Conditions: gout.")
    prompt = reason_prompt(replace(CASE, reads=reading), "", "full")
    assert "Records of other patients, up to a stay of theirs" in prompt and "same hospital" not in prompt


def test_a_patient_without_knowledge_is_still_predicted() -> None:
    episode, _ = play(Says(reason="Little is known.", predict="no"), corpus=Shelf(Evidence()))
    assert episode.prediction.label == 0 and not episode.prediction.history[0].retrieved


@pytest.mark.parametrize("prompts", ["full", "compact"])
@pytest.mark.parametrize("prompt", [reason_prompt, label_prompt, both_prompt])
def test_no_prompt_depends_on_the_label(prompt: Any, prompts: Any) -> None:
    """The query's label is in no prompt: the text is the same whatever it is."""
    other = replace(CASE, label=0)
    assert prompt(CASE, "- known", prompts, "") == prompt(other, "- known", prompts, "")
    assert base_text(CASE) == base_text(other)


@pytest.mark.parametrize("prompts", ["full", "compact"])
def test_both_prefixes_stand_before_the_same_context(prompts: Any) -> None:
    reason, label = (prompt(CASE, "- known", prompts) for prompt in (reason_prompt, label_prompt))
    body = label.partition("\n")[2].rpartition("answer:")[0].strip()
    assert body in reason and CASE.text in body and CASE.reads.similar in body and "- known" in body


passages = st.lists(st.text("ab .\n", max_size=30), max_size=8).map(
    lambda texts: Evidence(tuple(Passage(text, "community", -1, 0.0, i) for i, text in enumerate(texts)))
)


@given(passages, st.integers(0, 40))
def test_knowledge_keeps_to_its_budget_and_order(found: Evidence, tokens: int) -> None:
    known = knowledge_of(found, tokens, words)
    lines, every = known.text.splitlines(), _direct(found)
    assert lines == every[: len(lines)] and sum(map(words, lines)) <= tokens
    assert lines == every or sum(map(words, every[: len(lines) + 1])) > tokens
    assert knowledge_text(found, tokens, words) == known.text and known.passages <= len(found.passages)
    assert lines == _direct(Evidence(found.passages[: known.passages])), "what counts as shown says what is shown"


def _direct(found: Evidence) -> list[str]:
    """A line for each passage that says something new, without what was said before."""
    lines: list[str] = []
    said: list[str] = []
    for passage in found.passages:
        new: list[str] = []
        for part in " ".join(passage.text.split()).replace(". ", ".|").split("|"):
            if part and part not in said:
                said.append(part)
                new.append(part)
        lines += [f"- {' '.join(new)}"] if new else []
    return lines


def test_a_sentence_of_an_earlier_community_is_not_shown_again() -> None:
    told = ("gout is mild. gout hurts.", "gout hurts.", "iron is grave. gout is mild.")
    found = Evidence(tuple(Passage(text, "community", -1, 0.0, i) for i, text in enumerate(told)))
    known = knowledge_of(found, 20, words)
    assert known.text == "- gout is mild. gout hurts.\n- iron is grave." and known.passages == 3


def test_it_is_an_environment() -> None:
    cases = [replace(CASE, sample_id=f"s{i}", label=i % 2) for i in range(3)]
    for reasoning in ("none", "beside"):
        spec = KareSpec("compact", reasoning, 50)
        check(GymView(TextGame(kare_scene(KareEpisodes(spec, look_up, words), Shelf(), cases, 5.0))))
