"""The measurement of the rollout at its smallest, and what it is about: our token ids reach the trainer as sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from benchmarks import rollout as bench
from benchmarks.rollout import Slow, Watched, _lock_step, _rollout, changed_episodes, compare
from ghar.envs.rollout import EpisodeJob
from ghar.episode import Act, Completion, Episode, Prediction, Retrieve
from ghar.errors import BadInput
from ghar.llm.demo_model import build_model, build_tokenizer
from ghar.llm.hf import HFEngine
from ghar.llm.policy import EnginePolicy
from tests.envs.parts import Corpus, Drawn, make_case, make_episodes

EPISODES = make_episodes("nm", iterations=2)  # a random model names no meta-path, so look-ups go to the whole graph


def jobs(count: int) -> list[EpisodeJob]:
    return [EpisodeJob(f"s{n}", 0, lambda n=n: EPISODES.episode(make_case(n))) for n in range(count)]


@pytest.fixture(scope="module")
def tokenizer():
    words = "conditions drugs disease relates known nothing answer predict los summarise lowish midway topmost"
    return build_tokenizer([words] * 20, [], 300)


@pytest.fixture(scope="module")
def policy(tokenizer) -> EnginePolicy:
    return EnginePolicy(HFEngine(build_model(tokenizer, hidden=16, layers=1, heads=2, seed=0), tokenizer))


@pytest.mark.slow
def test_our_ids_reach_the_trainer_as_sampled_and_text_encoded_again_does_not(policy, tokenizer):
    result = compare(jobs(12), policy, nullcontext, Corpus(), tokenizer, 4, 2, seeds=1, delays=(0.01,))
    table = result["0.01 s a call"]
    ours = table["rollout"]
    assert ours["episodes with changed ids"] == 0
    assert ours["same replies as lock-step"] > 0.9
    assert ours["episodes per second"] > 0 and 0 < ours["engine busy"] <= 1
    assert table["lock-step"]["episodes with changed ids"] > 0.5 and table["lock-step"]["times lock-step"] == 1


def test_both_loops_play_the_same_episodes(tokenizer):
    ours, other, corpora = Watched(Drawn()), Watched(Drawn()), (Corpus(), Corpus())
    _rollout(jobs(10), ours, corpora[0], 3, 4, 2)
    _lock_step(jobs(10), other, corpora[1], 3, 4, tokenizer)
    assert ours.rows == other.rows and ours.rows.total() > 30
    asked = [Counter(request.query for batch in corpus.batches for request in batch) for corpus in corpora]
    assert asked[0] == asked[1] and asked[0]


def test_an_id_that_changed_is_counted_and_a_failure_is_no_result():
    episodes = [Episode("a", 0, Prediction(0)), Episode("b", 0, Prediction(0))]
    sampled = Counter({(1, 2, 3): 2, (1, 4): 1})
    assert changed_episodes(episodes, [[(1, 2, 3)], [(1, 2, 3), (1, 4)]], sampled) == 0
    assert changed_episodes(episodes, [[(1, 2, 3)], [(1, 2, 3), (1, 5)]], sampled) == 0.5
    with pytest.raises(RuntimeError, match="index is away"):
        changed_episodes([Episode("a", 0, Prediction(None), failure="index is away")], [[]], sampled)


def test_the_lock_step_loop_acts_and_looks_up_together(tokenizer):
    class Sizes:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
            self.seen.append(len(acts))
            return [Completion("yes", (1,), (2,), (0.0,)) for _ in acts]

    def start(lookups: int):
        for i in range(lookups):
            yield Act("top", "retrieve", "?")
            yield Retrieve(f"q{i}")
        return Prediction(0)

    sizes, corpus = Sizes(), Corpus()
    plan = [EpisodeJob(f"s{n}", 0, lambda n=n: start(n)) for n in (3, 1, 2, 1)]
    _lock_step(plan, Watched(sizes), Slow(corpus, 0.0), 0, 2, tokenizer)
    assert sizes.seen == [2, 1, 1, 2, 1] and [len(batch) for batch in corpus.batches] == sizes.seen


def test_an_unknown_setting_is_refused_before_anything_is_read():
    with pytest.raises(BadInput, match=r"--only has full, .*: choose among taught-64, taught-16, full-64, full-16"):
        bench.speed(1, [], 1.0, ["full"])
