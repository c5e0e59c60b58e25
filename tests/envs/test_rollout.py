"""Many episodes in flight: same results whatever the schedule, typed failures, seeds, turns and traces."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.rollout import EpisodeJob, derive_seed, rollout
from ghar.episode import Act, Completion, Episode, Evidence, Prediction, Reply, Retrieve
from tests.envs.parts import Corpus, Drawn, evidence_for, make_case, make_episodes
from tests.running import run_python

EPISODES = make_episodes(iterations=3)


def ghar_jobs(numbers: Sequence[int], attempt: int = 0) -> list[EpisodeJob]:
    def starter(number: int) -> Callable:
        return lambda: EPISODES.episode(make_case(number))

    return [EpisodeJob(f"s{n}", attempt, starter(n)) for n in numbers]


def play(jobs, corpus=None, *, policies=None, seed=3, in_flight=4, **options) -> list[Episode]:
    policies = policies or dict.fromkeys(("top", "low"), Drawn())
    return rollout(jobs, policies, corpus or Corpus(), seed=seed, in_flight=in_flight, **options)


def timeless(episodes: Sequence[Episode]) -> list[Episode]:
    return [replace(episode, seconds=0.0) for episode in episodes]


class Late(Corpus):
    """A corpus that takes its time."""

    def retrieve(self, requests):
        time.sleep(0.002)
        return super().retrieve(requests)


class Failing(Corpus):
    """Raises in its first `times` calls that hold a query named `about` (any query where None)."""

    def __init__(self, times: int, about: str | None = None):
        super().__init__()
        self.left, self.about = times, about

    def retrieve(self, requests):
        if self.left and (self.about is None or any(r.query == self.about for r in requests)):
            self.left -= 1
            raise ConnectionError("index is away")
        return super().retrieve(requests)


@pytest.fixture(scope="module")
def undisturbed() -> list[Episode]:
    return timeless(play(ghar_jobs(range(12)), in_flight=1))


@settings(max_examples=15)
@given(st.permutations(range(12)), st.integers(1, 12), st.integers(1, 20), st.booleans())
def test_results_do_not_depend_on_schedule_company_or_delay(undisturbed, order, kept, in_flight, late):
    corpus = Late() if late else Corpus()
    found = timeless(play(ghar_jobs(order[:kept]), corpus, in_flight=in_flight))
    assert found == [undisturbed[i] for i in order[:kept]]


def test_ready_episodes_are_batched_and_never_more_than_in_flight():
    policy = Drawn()
    play(ghar_jobs(range(30)), policies={"top": policy, "low": policy}, in_flight=8)
    assert max(policy.sizes) == 8 and sum(policy.sizes) / len(policy.sizes) > 3


def test_steady_batches_do_not_depend_on_how_long_a_retrieval_takes():
    batches = []
    for corpus in (Corpus(), Late()):
        policy = Drawn()
        play(ghar_jobs(range(20)), corpus, policies={"top": policy, "low": policy}, in_flight=6, steady=True)
        batches.append(policy.sizes)
    assert batches[0] == batches[1]


def test_seeds_come_from_run_sample_attempt_turn_and_place():
    """Any of them changes the seed; every act of a rollout has its own."""

    class Seeds(Drawn):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def answer(self, acts, seeds):
            self.seen += seeds
            return super().answer(acts, seeds)

    seen: list[int] = []
    for seed in (1, 2):
        for attempt in (0, 1):
            policy = Seeds()
            episodes = play(ghar_jobs(range(5), attempt), policies={"top": policy, "low": policy}, seed=seed)
            assert sorted(policy.seen) == sorted(
                derive_seed(seed, f"s{n}", attempt, turn.index, 0) for n in range(5) for turn in episodes[n].turns
            )
            seen += policy.seen
    assert len(set(seen)) == len(seen)
    assert derive_seed(1, "a") == derive_seed(1, "a") != derive_seed("1", "a") and 0 <= derive_seed(5) < 2**63


def test_turns_and_trace_say_what_happened():
    for episode in play(ghar_jobs(range(8))):
        acts = [r for r in episode.trace if isinstance(r.effect, Act)]
        assert [t.index for t in episode.turns] == list(range(len(acts)))
        for turn, record in zip(episode.turns, acts, strict=True):
            assert (turn.agent, turn.role, turn.step) == (record.effect.agent, record.effect.role, record.effect.step)
            assert turn.completion is record.result.completion and turn.trainable
            parsed = record.effect.parse(turn.completion.text)
            assert (record.result.value, record.result.error) == (parsed.value, parsed.error)
            assert turn.format_ok == (parsed.error is None)
        for record in (r for r in episode.trace if isinstance(r.effect, Retrieve)):
            assert record.result == evidence_for(record.effect)
        assert episode.failure is None and episode.prediction.history


def test_replies_without_tokens_are_not_trained_on():
    class Fixed:
        def answer(self, acts, seeds):
            return [Completion(act.choices[0] if act.choices else "a") for act in acts]

    for episode in play(ghar_jobs(range(3)), policies={"top": Fixed(), "low": Drawn()}):
        assert all(turn.trainable == (turn.agent == "low") for turn in episode.turns)


# ---------------------------------------------------------------- several effects at once


class Named:
    """Replies with its name and the act's seed."""

    def __init__(self, name: str):
        self.name = name

    def answer(self, acts, seeds):
        return [
            Completion(f"{self.name} {act.prompt} {seed}", (1,), (2,), (0.0,))
            for act, seed in zip(acts, seeds, strict=True)
        ]


def both(number: int):
    """Two agents and two searches at once, then one; agent "b" alone first for odd numbers."""

    def start():
        if number % 2:
            yield Act("b", "x", "alone")
        found = yield (Act("a", "x", "first"), Retrieve("q"), Act("b", "x", "second"), Retrieve("r", (1,)))
        assert isinstance(found, tuple) and [type(f) for f in found] == [Reply, Evidence, Reply, Evidence]
        assert "first" in found[0].text and "second" in found[2].text
        assert (found[1], found[3]) == (evidence_for(Retrieve("q")), evidence_for(Retrieve("r", (1,))))
        (only,) = yield (Act("a", "x", "last"),)
        assert "last" in only.text
        yield ()
        return Prediction(number)

    return EpisodeJob(f"s{number}", 0, start)


def test_effects_asked_together_come_back_together_in_their_order():
    policies = {"a": Named("a"), "b": Named("b")}
    alone = [timeless(play([both(n)], policies=policies))[0] for n in range(4)]
    for order in ((0, 1, 2, 3), (3, 2, 1, 0)):
        together = timeless(play([both(n) for n in order], policies=policies))
        assert together == [alone[n] for n in order]  # whichever agent's batch was formed first
    assert [t.agent for t in alone[0].turns] == ["a", "b", "a"]
    assert [t.agent for t in alone[1].turns] == ["b", "a", "b", "a"]
    assert [type(r.effect) for r in alone[0].trace] == [Act, Retrieve, Act, Retrieve, Act]


def test_an_episode_that_asks_nothing_ends_at_once():
    def start():
        return Prediction(4)
        yield

    done = []
    (episode,) = play([EpisodeJob("s", 0, start)], on_done=lambda: done.append(1))
    assert episode.prediction == Prediction(4) and episode.turns == () and done == [1]


def test_something_else_than_an_effect_is_named():
    def start():
        yield "retrieve, please"
        return Prediction(None)

    with pytest.raises(TypeError, match="retrieve, please"):
        play([EpisodeJob("s", 0, start)])


# ---------------------------------------------------------------- a policy that answers while it is asked


class Trickling(Drawn):
    """Takes acts at any time and answers some of those it has, in any order."""

    def __init__(self, seed: int):
        super().__init__()
        self.rng = random.Random(seed)
        self.waiting: list[tuple] = []
        self.most = self.cancelled = 0

    def queue(self):
        return self

    def submit(self, act, seed, done):
        self.waiting.append((act, seed, done))
        self.most = max(self.most, len(self.waiting))

    def step(self):
        assert self.waiting
        self.rng.shuffle(self.waiting)
        for _ in range(self.rng.randint(0, len(self.waiting))):
            act, seed, done = self.waiting.pop()
            done(self._one(act, seed))

    def cancel(self):
        self.cancelled += len(self.waiting)
        self.waiting.clear()


@settings(max_examples=15)
@given(st.permutations(range(12)), st.integers(1, 20), st.integers(0, 99))
def test_results_do_not_depend_on_the_order_of_answers(undisturbed, order, in_flight, seed):
    policy = Trickling(seed)
    found = timeless(play(ghar_jobs(order), policies={"top": policy, "low": policy}, in_flight=in_flight))
    assert found == [undisturbed[i] for i in order]
    assert policy.most <= in_flight and not policy.waiting and not policy.cancelled


def test_a_short_reply_does_not_wait_for_a_long_one():
    """The episode whose replies come at once ends while the other still waits for its first."""

    class Slow(Trickling):
        def step(self):
            late = [w for w in self.waiting if w[0].prompt == "slow"]
            for waiting in [w for w in self.waiting if w not in late] or late:
                self.waiting.remove(waiting)
                waiting[2](Completion("yes", (1,), (2,), (0.0,)))

    ended: list[str] = []

    def talker(name: str, turns: int):
        def start():
            for _ in range(turns):
                yield Act("top", "answer", name)
            ended.append(name)
            return Prediction(0)

        return EpisodeJob(name, 0, start)

    play([talker("slow", 1), talker("quick", 5)], policies={"top": Slow(0)})
    assert ended == ["quick", "slow"]


def test_what_was_asked_together_is_answered_in_any_order():
    class Backwards(Trickling):
        def step(self):
            act, _, done = self.waiting.pop()
            done(Completion(act.prompt, (1,), (2,), (0.0,)))

    def start():
        found = yield tuple(Act("top", "answer", f"q{i}") for i in range(4))
        assert [reply.text for reply in found] == [f"q{i}" for i in range(4)]
        return Prediction(0)

    (episode,) = play([EpisodeJob("s", 0, start)], policies={"top": Backwards(0)})
    assert [turn.completion.text for turn in episode.turns] == [f"q{i}" for i in range(4)]
    assert [turn.index for turn in episode.turns] == [0, 1, 2, 3]


def test_requests_nobody_waits_for_any_more_are_cancelled():
    class Never(Trickling):
        def step(self):
            time.sleep(0.001)

    def start():
        yield Act("top", "answer", "q"), Retrieve("away")
        return Prediction(0)

    policy = Never(0)
    (episode,) = play([EpisodeJob("s", 0, start)], Failing(9), policies={"top": policy})
    assert episode.failure is not None and policy.cancelled == 1


# ---------------------------------------------------------------- failures


def test_a_retrieval_that_fails_once_is_tried_again(undisturbed):
    corpus = Failing(times=1)
    assert timeless(play(ghar_jobs(range(12)), corpus, in_flight=1)) == undisturbed and corpus.left == 0


def test_one_that_fails_twice_ends_the_episodes_that_wait_for_it_and_no_other(undisturbed):
    text = next(s.query for e in undisturbed for s in e.prediction.history if s.evidence)
    done = []
    episodes = play(ghar_jobs(range(12)), Failing(10**6, text), in_flight=1, on_done=lambda: done.append(1))
    failed = [e for e in episodes if e.failure is not None]
    asked = [any(s.query == text and s.evidence for s in e.prediction.history) for e in undisturbed]
    assert [e.failure is not None for e in episodes] == asked and 0 < len(failed) < 12 and len(done) == 12
    for episode, plain in zip(timeless(episodes), undisturbed, strict=True):
        if episode.failure is None:
            assert episode == plain
        else:
            assert episode.failure == "retrieval: ConnectionError: index is away"
            assert episode.prediction == Prediction(None)
            assert episode.trace == plain.trace[: len(episode.trace)]  # up to what could not be answered
            assert not any("index is away" in r.effect.prompt for r in episode.trace if isinstance(r.effect, Act))


def test_episodes_come_back_in_order_with_failures_among_them():
    episodes = play(ghar_jobs(range(20)), Failing(2), in_flight=5)
    assert [e.sample_id for e in episodes] == [f"s{n}" for n in range(20)]
    assert 0 < sum(e.failure is not None for e in episodes) <= 5


class Lying(Corpus):
    """Changes what it found in its first `times` calls."""

    def __init__(self, change, times: int):
        super().__init__()
        self.change, self.left = change, times

    def retrieve(self, requests):
        found = super().retrieve(requests)
        if not self.left:
            return found
        self.left -= 1
        return self.change(found)


LIES = {
    "fewer": (lambda found: found[:-1], "answers to"),
    "more": (lambda found: [*found, found[0]], "answers to"),
    "none": (lambda found: None, "one NoneType in place of"),
    "another kind": (lambda found: ["text"] * len(found), "a str in place of an Evidence"),
    "nothing among them": (lambda found: [None] * len(found), "a NoneType in place of an Evidence"),
}


@pytest.mark.parametrize("how", LIES)
def test_a_corpus_that_lies_ends_the_episodes_that_asked_and_no_other(undisturbed, how: str):
    change, said = LIES[how]
    assert timeless(play(ghar_jobs(range(12)), Lying(change, 1), in_flight=1)) == undisturbed  # the second try is right
    episodes = timeless(play(ghar_jobs(range(12)), Lying(change, 2), in_flight=1))
    failed = [e for e in episodes if e.failure is not None]
    assert len(failed) == 1 and failed[0].failure.startswith("retrieval: ValueError: the corpus gave")
    assert said in failed[0].failure
    assert [e for e in episodes if e.failure is None] == [
        plain for e, plain in zip(episodes, undisturbed, strict=True) if e.failure is None
    ]


class Hanging(Corpus):
    """Hangs in its first `times` calls until it is let go."""

    def __init__(self, times: int):
        super().__init__()
        self.left, self.free = times, threading.Event()

    def retrieve(self, requests):
        if self.left:
            self.left -= 1
            self.free.wait(30)
        return super().retrieve(requests)


@pytest.fixture
def hanging():
    made: list[Hanging] = []

    def make(times: int) -> Hanging:
        made.append(Hanging(times))
        return made[-1]

    yield make
    for corpus in made:
        corpus.free.set()


def test_a_retrieval_that_hangs_once_is_tried_again_beside_it(undisturbed, hanging):
    assert timeless(play(ghar_jobs(range(12)), hanging(1), in_flight=3, timeout=0.5)) == undisturbed


@pytest.mark.slow
def test_one_that_keeps_hanging_ends_its_episodes_and_the_next_retrieval_works(hanging):
    episodes = play(ghar_jobs(range(12)), hanging(2), in_flight=2, timeout=0.3)
    failures = {e.failure for e in episodes if e.failure is not None}
    assert len(failures) == 1 and failures.pop().startswith("retrieval: TimeoutError")
    assert sum(e.failure is None for e in episodes) >= 10


def test_a_hanging_retrieval_does_not_keep_the_process_alive():
    script = """
import time
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.episode import Prediction, Retrieve

class Hangs:
    def retrieve(self, requests):
        time.sleep(1e6)

def episode():
    yield Retrieve("q")
    return Prediction(1)

print(rollout([EpisodeJob("s", 0, episode)], {}, Hangs(), seed=0, in_flight=1, timeout=0.05)[0].failure)
"""
    done = run_python("-c", script)
    assert done.returncode == 0 and done.stdout.startswith("retrieval: TimeoutError"), done.stderr


def test_a_policys_exception_is_no_failure_of_an_episode():
    class Broken(Drawn):
        def answer(self, acts, seeds):
            if any(act.role == "predict" for act in acts):
                raise RuntimeError("out of memory")
            return super().answer(acts, seeds)

    with pytest.raises(RuntimeError, match="out of memory"):
        play(ghar_jobs(range(4)), policies=dict.fromkeys(("top", "low"), Broken()))


def test_an_episodes_own_exception_propagates():
    def start():
        yield Act("top", "predict", "?")
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        play([EpisodeJob("s", 0, start)])


class Ticking(Drawn):
    """A policy of which each answer takes a second of a clock that stands still otherwise."""

    def __init__(self, clock: list[float]):
        super().__init__()
        self.clock = clock

    def answer(self, acts, seeds):
        self.clock[0] += len(acts)
        return super().answer(acts, seeds)


@pytest.mark.parametrize("in_flight", [1, 4, 12])
def test_an_answer_costs_its_share_of_a_batch_and_not_the_wait_for_others(
    monkeypatch: pytest.MonkeyPatch, in_flight: int
) -> None:
    clock = [0.0]
    monkeypatch.setattr("ghar.envs.rollout.time.perf_counter", lambda: clock[0])
    policy = Ticking(clock)
    found = play(ghar_jobs(range(12)), policies=dict.fromkeys(("top", "low"), policy), in_flight=in_flight)
    assert sum(episode.seconds for episode in found) == pytest.approx(clock[0])
    tokens = [sum(max(1, sum(turn.completion.tokens)) for turn in episode.turns) for episode in found]
    for episode, own in zip(found, tokens, strict=True):
        assert episode.seconds == pytest.approx(clock[0] * own / sum(tokens))
