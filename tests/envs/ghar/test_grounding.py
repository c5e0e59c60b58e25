"""Sub-queries that name what nobody has spoken of, and ids named twice: found, counted, charged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.envs.ghar.episode import AGENTS
from ghar.envs.ghar.grounding import NameMatcher, counted, ungrounded
from ghar.envs.records import Records
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.system import System, build
from ghar.episode import Act, Completion, Episode, Prediction, ReasoningStep, Reply, Turn
from ghar.launch.entry import load
from ghar.rewards.compose import RewardSpec, score_episode
from ghar.trainers.base import base_key
from ghar.trainers.evaluation.playing import score
from ghar.trainers.rows import summarise
from tests.envs.parts import REPLIES, Corpus, Drawn, make_case, make_episodes

NAMES = NameMatcher(
    frozenset({"heart failure", "heart failure with oedema", "gout", "warfarin", "vitamin k", "acute gout"})
)
WORDS = st.sampled_from("heart failure with oedema acute gout warfarin vitamin k and of stage".split())


def by_trying_all(words: list[str], known: frozenset[str]) -> list[str]:
    """The longest known name at the first place that has one, then on after it."""
    for start in range(len(words)):
        spans = [words[start:end] for end in range(len(words), start, -1)]
        for span in spans:
            if " ".join(span) in known:
                return [" ".join(span), *by_trying_all(words[start + len(span) :], known)]
    return []


@given(st.lists(WORDS, max_size=12))
def test_names_are_found_as_by_trying_all_spans(words: list[str]) -> None:
    assert list(NAMES.named(" ".join(words))) == by_trying_all(words, NAMES.names)


def asked(text: str, *evidence: str, record: str = "now: disease heart failure, drug warfarin") -> Act:
    case = replace(make_case(), text=record, topics=("disease gout",))
    history = tuple(ReasoningStep("q", "a", True, evidence=found) for found in evidence)
    return Act("top", "followup", "", facts={"case": case, "history": history})


@pytest.mark.parametrize("query, evidence, grounded", [
    ("disease heart failure", (), True),
    ("Does HEART-FAILURE matter with warfarin?", (), True),
    ("disease gout", (), True),  # a topic that the record had no room for
    ("disease heart failure with oedema", (), False),  # another disease whose name begins like the patient's
    ("disease acute gout", (), False),
    ("drug vitamin k", (), False),
    ("drug vitamin k", ("warfarin - antagonist - vitamin K",), True),
    ("drug vitamin k", ("vitamin\nK",), False),  # no name reaches over two items
    ("disease made up by the model", (), False),
    ("How long is the usual stay?", (), True),  # names nothing
])  # fmt: skip
def test_a_name_must_have_been_spoken_of(query: str, evidence: tuple[str, ...], grounded: bool) -> None:
    act, reply = asked(query, *evidence), Reply(Completion(query), query)
    assert ungrounded(NAMES, act, reply) == ([] if grounded else [query])
    assert counted(NAMES, act, reply) == (0 if grounded else 1, 1)


def test_what_an_answer_made_up_grounds_nothing() -> None:
    case = make_case()
    act = Act(
        "top", "followup", "", facts={"case": case, "history": (ReasoningStep("q", "vitamin k is grave", False),)}
    )
    assert ungrounded(NAMES, act, Reply(Completion(""), "drug vitamin k"))


class Careless(Drawn):
    """Replies drawn among some that name strangers and repeat ids."""

    def _one(self, act: Act, seed: int) -> Completion:
        return Completion(SAID[act.role][seed % len(SAID[act.role])])


SAID = {
    **REPLIES,
    "rewrite": ("disease gout; drug warfarin; a", "disease nobody", "disease gout", ""),
    "followup": ("heart failure", "disease gout", "", "drug warfarin"),
    "metapaths": ("4 1 1 1", "0 0", "2", "9 1 1", "none"),
}
SPEC = RewardSpec(5.0, 0.2, 3, "range", "sound", "shared", 4, 3)


@pytest.mark.parametrize("normalise", ["range", "none"])
def test_charges_are_what_a_second_count_says_and_arrive_where_they_were_earned(normalise: str) -> None:
    case = replace(make_case(), text="a", topics=("disease gout",))
    plain = replace(SPEC, normalise=normalise)
    charged = replace(plain, grounding=2.0, repeats=0.5, ungrounded=lambda act, reply: counted(NAMES, act, reply))
    seen = 0
    jobs = [EpisodeJob(f"s{n}", 0, partial(make_episodes().episode, case)) for n in range(40)]
    for episode in rollout(jobs, dict.fromkeys(AGENTS, Careless()), Corpus(), seed=0, in_flight=8):
        before, after = score_episode(episode, 0, plain), score_episode(episode, 0, charged)
        repeated = wrong = 0.0
        asked: list[Any] = [record for record in episode.trace if isinstance(record.effect, Act)]
        for record, turn in zip(asked, episode.turns, strict=True):
            if turn.role == "metapaths":
                ids = [int(x) for x in re.findall(r"\d+", record.result.text)]
                repeated += (len(ids) - len(set(ids))) / max(len(ids), 1)
            if turn.role in ("rewrite", "followup"):
                bad, every = counted(NAMES, record.effect, record.result)
                wrong += bad / max(every, 1)
        assert after.terms["repeats"] == pytest.approx(-repeated)
        assert after.terms["grounding"] == pytest.approx(-wrong)
        assert after.total == pytest.approx(before.total - 0.5 * repeated - 2.0 * wrong)
        assert {t for turn in before.per_turn for t in turn if turn[t]} <= {"reason", "path", "relevance", "orm"}
        seen += repeated > 0 and wrong > 0
    assert seen


class Stranger:
    """The scripted teacher, but it writes one sub-query about what the patient does not have, and every id twice."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        said = self.inner.answer(acts, seeds)
        return [self._worse(act, reply) for act, reply in zip(acts, said, strict=True)]

    def _worse(self, act: Act, reply: Completion) -> Completion:
        if act.role == "rewrite":
            return Completion(f"disease of nobody at all; {reply.text}")
        return Completion(f"{reply.text} {reply.text}") if act.role == "metapaths" else reply


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[System[Any], Any]:
    config = load(["data.patients=60", f"data.cache={tmp_path_factory.mktemp('cache')}", "task.max_test=20"])
    return build(Records(config)), config


@pytest.mark.slow
def test_rows_and_numbers_tell_a_grounded_policy_from_one_that_is_not(demo: tuple[System[Any], Any]) -> None:
    system, config = demo
    variant, teacher = system.variants["scripted"], system.fixed["teacher"]()
    found = {}
    for name, policy in (("teacher", teacher), ("stranger", Stranger(teacher))):
        rows = score(system, config, variant, policy, "test")
        found[name] = summarise(system, rows, 0, 50)
        for row in rows:
            assert row["ids"] >= row["repeated_ids"] >= 0 and row["sub_queries"] >= len(row["ungrounded"])
    assert found["teacher"]["ungrounded"][0] == 0.0
    assert found["stranger"]["ungrounded"][0] > 0.2
    assert found["stranger"]["repeated_ids"][0] > found["teacher"]["repeated_ids"][0] + 0.3
    assert found["stranger"]["reward"][0] < found["teacher"]["reward"][0]


def test_balanced_classes_are_fitted_to_training_labels(demo: tuple[System[Any], Any]) -> None:
    """R_orm of a right answer, by its label, against shares counted here."""
    config = load([f"data.cache={demo[1].data.cache}", "data.patients=60", "task=dec", "system.class_weights=balanced"])
    system = build(Records(config))
    labels = [case.label for case in system.cases.train]
    for label in (0, 1):
        case = next(case for case in system.cases.train if case.label == label)
        right = Episode(case.sample_id, 0, Prediction(label), (Turn("top", "predict", 0, 0, Completion("x"), True),))
        weight = len(labels) / (2 * labels.count(label))
        assert system.reward(right, case).terms["orm"] == pytest.approx(weight + 2)


@pytest.mark.slow
def test_all_ablations_start_from_one_base_model(demo: tuple[System[Any], Any]) -> None:
    keys = []
    for ablation in ("none", "ni", "nt"):
        config = load(["data.patients=60", f"data.cache={demo[1].data.cache}", f"system.ablation={ablation}"])
        practice = build(Records(config)).training.pretraining
        assert practice is not None and not isinstance(practice, str)
        keys.append(base_key(config, practice))
    assert len(set(keys)) == 1
