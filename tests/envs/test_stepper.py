"""One episode under way: the same as in the rollout, whoever answers; failures of the corpus; the transcript."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.stepper import Scene, SteppedEpisode, transcript
from ghar.episode import Act, Completion, Episode, Evidence, Prediction, Retrieve
from ghar.rewards.compose import EpisodeReward
from tests.envs.parts import Corpus, Drawn, make_case, make_episodes

EPISODES = make_episodes(iterations=3)


def no_reward(episode: Episode, case: object) -> EpisodeReward:
    return EpisodeReward({}, 0.0, tuple({} for _ in episode.turns), "shared")


def scene(episode=EPISODES.episode, corpus: Corpus | None = None) -> Scene:
    cases = [make_case(n) for n in range(6)]
    return Scene("Test", ("top", "low"), ("a", "b"), cases, episode, corpus or Corpus(), no_reward)


def finish(paused: SteppedEpisode) -> Episode:
    """Answer everything as the rollout of tests/envs/parts.py would, turn by turn."""
    policy = Drawn()
    while paused.acts:
        place, act = next(iter(paused.acts.items()))
        paused.answer(place, policy.answer([act], [len(paused.turns)])[0])
    assert paused.episode is not None
    return paused.episode


@pytest.mark.parametrize("number", range(6))
def test_it_is_the_rollouts_episode(number: int) -> None:
    """The replies of one, given to the other, lead to the same trace, turns and prediction."""
    mine = finish(SteppedEpisode(scene(), make_case(number)))

    class Same:
        said = iter(turn.completion for turn in mine.turns)

        def answer(self, acts, seeds):
            return [next(self.said) for _ in acts]

    job = EpisodeJob(f"s{number}", 0, lambda: EPISODES.episode(make_case(number)))
    policies = dict.fromkeys(("top", "low"), Same())
    theirs = rollout([job], policies, Corpus(), seed=0, in_flight=1)[0]
    assert replace(theirs, seconds=0.0) == mine


def test_fixed_policies_answer_with_the_rollouts_seeds() -> None:
    roles = ("rewrite", "retrieve", "metapaths", "summarise", "answer", "continue", "followup", "predict")
    whole = SteppedEpisode(scene(), make_case(1), dict.fromkeys(roles, Drawn()), seed=5)
    assert whole.episode is not None and not whole.acts
    job = EpisodeJob("s1", 0, lambda: EPISODES.episode(make_case(1)))
    theirs = rollout([job], dict.fromkeys(("top", "low"), Drawn()), Corpus(), seed=5, in_flight=1)[0]
    assert replace(theirs, seconds=0.0) == whole.episode


def together(case: object) -> Iterator:
    """Two questions and a look-up at once, then one more."""
    first, found, second = yield Act("top", "a", "one?"), Retrieve("q"), Act("low", "a", "two?")
    last = yield Act("low", "b", f"{first.text} {second.text} {found.text}")
    return Prediction(len(last.text))


def test_what_is_asked_together_is_open_together_and_answered_in_any_order() -> None:
    paused = SteppedEpisode(scene(together), make_case())
    assert [(place, act.agent) for place, act in paused.acts.items()] == [(0, "top"), (2, "low")]
    paused.answer(2, Completion("2"))
    assert list(paused.acts) == [0] and paused.episode is None
    paused.answer(0, Completion("1"))
    assert paused.acts[0].prompt.startswith("1 2 <found node q in all>")
    paused.answer(0, Completion("end"))
    assert paused.episode is not None and paused.episode.prediction == Prediction(3)
    assert [type(r.effect) for r in paused.episode.trace] == [Act, Retrieve, Act, Act]
    assert [turn.index for turn in paused.episode.turns] == [0, 1, 2]


class Failing(Corpus):
    def __init__(self, times: int):
        super().__init__()
        self.left = times

    def retrieve(self, requests) -> list[Evidence]:
        if self.left:
            self.left -= 1
            raise ConnectionError("index is away")
        return super().retrieve(requests)


def test_a_corpus_that_fails_once_is_asked_again_and_one_that_fails_twice_ends_the_episode() -> None:
    once = SteppedEpisode(scene(together, Failing(1)), make_case())
    assert once.episode is None and once.acts
    twice = SteppedEpisode(scene(together, Failing(2)), make_case())
    assert twice.episode is not None and not twice.acts
    assert twice.episode.failure == "retrieval: ConnectionError: index is away"
    assert twice.episode.prediction == Prediction(None)


def test_an_effect_of_no_kind_is_a_bug_that_is_named() -> None:
    def episode(case):
        yield "what?"

    with pytest.raises(TypeError, match="yielded 'what\\?'"):
        SteppedEpisode(scene(episode), make_case())


def test_the_transcript_holds_every_word() -> None:
    paused = SteppedEpisode(scene(), make_case(2))
    assert transcript(paused).endswith("\n    ?")
    finish(paused)
    shown = transcript(paused)
    for record in paused.trace:
        words = record.effect.prompt if isinstance(record.effect, Act) else record.effect.query
        assert all(line in shown for line in words.splitlines())
        assert all(line in shown for line in record.result.text.splitlines())
    assert paused.episode is not None and f"== prediction {paused.episode.prediction.label} ==" in shown


@pytest.mark.parametrize("answer", ["yes", None, 3, Completion(None)])  # type: ignore[arg-type]
def test_a_policy_that_answers_with_the_wrong_type_is_named(answer: Any) -> None:
    class Wrong:
        def answer(self, acts: Any, seeds: Any) -> Any:
            return [answer for _ in acts]

    with pytest.raises(TypeError, match=r"top's policy answered 'rewrite' with .*: a policy's answer is a"):
        SteppedEpisode(scene(), make_case(), {"rewrite": Wrong()})
    job = EpisodeJob("s0", 0, lambda: EPISODES.episode(make_case()))
    with pytest.raises(TypeError, match="top's policy answered 'rewrite'"):
        rollout([job], dict.fromkeys(("top", "low"), Wrong()), Corpus(), seed=0, in_flight=1)
