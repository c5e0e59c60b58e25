"""Several look-ups under way at once: the same episodes, no more calls than allowed, and failures where they belong."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.rollout import EpisodeJob, rollout
from ghar.episode import Act, Completion, Episode, Prediction, Retrieve
from tests.envs.parts import Corpus, Drawn, make_case, make_episodes
from tests.envs.test_rollout import timeless

EPISODES = make_episodes(iterations=3)


class Counted(Corpus):
    """Takes `delay` seconds and remembers how many calls were under way at once."""

    def __init__(self, delay: float):
        super().__init__()
        self.delay, self.now, self.most, self.lock = delay, 0, 0, threading.Lock()

    def retrieve(self, requests):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.delay)
        with self.lock:
            self.now -= 1
        return super().retrieve(requests)


class Thinking(Drawn):
    """Takes a moment, so that look-ups are asked for at different times."""

    def answer(self, acts, seeds):
        time.sleep(0.001)
        return super().answer(acts, seeds)


def play(corpus: Corpus, **options) -> list[Episode]:
    jobs = [EpisodeJob(f"s{n}", 0, lambda n=n: EPISODES.episode(make_case(n))) for n in range(12)]
    return timeless(rollout(jobs, dict.fromkeys(("top", "low"), Thinking()), corpus, seed=3, **options))


@pytest.mark.slow
@settings(max_examples=8)
@given(st.integers(1, 5), st.integers(1, 12), st.booleans(), st.sampled_from([0.0, 0.004]))
def test_episodes_do_not_depend_on_how_many_lookups_are_under_way(lookups, in_flight, steady, delay):
    corpus = Counted(delay)
    assert play(corpus, in_flight=in_flight, lookups=lookups, steady=steady) == play(Corpus(), in_flight=1)
    assert corpus.most <= (1 if steady else lookups)


def test_a_slow_corpus_is_asked_again_while_it_works():
    corpus = Counted(0.02)
    play(corpus, in_flight=6, lookups=3)
    assert corpus.most == 3


def test_a_hanging_lookup_is_given_up_while_others_go_on():
    free = threading.Event()

    class Hanging(Corpus):
        def retrieve(self, requests):
            if any(request.query == "hang" for request in requests):
                free.wait(30)
            return super().retrieve(requests)

    class Quick:
        def answer(self, acts, seeds):
            time.sleep(0.01)
            return [Completion("yes") for _ in acts]

    def start(query: str, wait: int):
        for _ in range(wait):
            yield Act("top", "retrieve", query)
        yield Retrieve(query)
        yield Act("top", "predict", query)
        return Prediction(1)

    jobs = [EpisodeJob("hang", 0, lambda: start("hang", 0))]
    jobs += [EpisodeJob(f"s{n}", 0, lambda n=n: start(f"q{n}", n + 1)) for n in range(4)]
    try:
        episodes = rollout(jobs, {"top": Quick()}, Hanging(), seed=0, in_flight=5, timeout=0.1, lookups=2)
    finally:
        free.set()
    assert [e.failure is None for e in episodes] == [False, True, True, True, True]
    assert (episodes[0].failure or "").startswith("retrieval: TimeoutError")
