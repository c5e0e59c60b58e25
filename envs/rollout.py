"""The rollout: many episode generators in flight against one set of policies and one corpus.

Whoever is ready is asked for at once; retrieval runs beside the language model; no one waits for the slowest patient,
nor (with an engine that takes requests while it works) for the longest reply of a batch.
Seeds derive from (run seed, sample, attempt, turn), so results do not depend on scheduling.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import Any, Protocol

from ghar.envs.generators import Returned, resume
from ghar.episode import (
    Act,
    AuditRecord,
    Completion,
    Episode,
    EpisodeGenerator,
    Evidence,
    Prediction,
    Retrieve,
    Turn,
    read_reply,
)
from ghar.llm.policy import Policy, RequestQueue, open_queue


class Corpus(Protocol):
    """Answers `Retrieve`s in order."""

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]: ...


@dataclass(frozen=True)
class EpisodeJob:
    """One episode to play: `start` makes its generator.

    credentialed: of its patient. Everything the episode asks for carries this mark.
    """

    sample_id: str
    attempt: int
    start: Callable[[], EpisodeGenerator]
    credentialed: bool = True


@dataclass(eq=False)
class _Active:
    """An episode under way: the effects it waits for and what has come back. `silent`: acts without a reply yet;
    `missing`: effects without a result; `seconds`: of retrieval; `tokens`: read and written, by agent."""

    number: int
    job: EpisodeJob
    generator: EpisodeGenerator
    effects: tuple[Any, ...] = ()
    single: bool = True
    silent: int = 0
    missing: int = 0
    results: dict[int, Any] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    trace: list[AuditRecord] = field(default_factory=list)
    episode: Episode | None = None
    seconds: float = 0.0
    tokens: Counter[str] = field(default_factory=Counter)

    def places(self, kind: type) -> list[int]:
        return [i for i, effect in enumerate(self.effects) if isinstance(effect, kind)]


@dataclass(frozen=True, eq=False)
class _Lookup:
    """One batch of retrievals on its way."""

    future: Future[tuple[list[Evidence], float]]  # with the seconds that it took
    waiting: list[tuple[_Active, int]]
    tries: int
    deadline: float


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from any values, the same on every machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def rollout(
    jobs: Sequence[EpisodeJob],
    policies: Mapping[str, Policy],
    corpus: Corpus,
    *,
    seed: int,
    in_flight: int,
    on_done: Callable[[], None] = lambda: None,
    timeout: float = 120.0,
    tries: int = 2,
    steady: bool = False,
    lookups: int = 1,
) -> list[Episode]:
    """Play every job to its end; episodes come back in the order of `jobs`.

    steady: wait for a look-up before the next requests are handed in. Which requests share a batch, and so the last
    bits of their log-probs, then depends on no clock; worth it where look-ups are short.

    lookups: calls of `corpus` that may be under way at once. One gathers what becomes ready meanwhile into the next
    call; several keep a slow corpus from holding episodes up, where it can answer calls side by side.

    A retrieval that raises or outlasts `timeout` seconds is tried `tries` times; then the episodes that wait for it
    fail (`Episode.failure`), and no failure text is ever shown to a policy. One that hangs is left behind on its
    thread, so a corpus may be asked again while an earlier call has not returned.
    """
    queues: dict[int, RequestQueue] = {id(policy): open_queue(policy) for policy in policies.values()}
    by_agent = {agent: queues[id(policy)] for agent, policy in policies.items()}
    try:
        return _play(jobs, by_agent, corpus, seed, in_flight, on_done, timeout, tries, steady, lookups)
    finally:
        for queue in queues.values():
            queue.cancel()  # what an episode that ended early, or an error, left behind


def _play(
    jobs: Sequence[EpisodeJob],
    queues: Mapping[str, RequestQueue],
    corpus: Corpus,
    seed: int,
    in_flight: int,
    on_done: Callable[[], None],
    timeout: float,
    tries: int,
    steady: bool,
    lookups: int,
) -> list[Episode]:
    started: list[_Active] = []
    ready: list[_Active] = []  # whoever can go on: nothing is missing, or a look-up has failed for good
    seeking: list[tuple[_Active, int]] = []  # retrievals that are not under way yet
    under_way: list[_Lookup] = []
    waiting: Counter[int] = Counter()  # open acts at each queue, by its id
    clock: dict[int, float] = dict.fromkeys(map(id, queues.values()), 0.0)  # seconds that each queue has worked
    every = list({id(queue): queue for queue in queues.values()}.values())
    live = 0
    while len(started) < len(jobs) or live:
        while len(started) < len(jobs) and live < in_flight:
            job, live = jobs[len(started)], live + 1
            started.append(_Active(len(started), job, job.start()))
            ready.append(started[-1])
        now, ready[:] = sorted(ready, key=_number), []
        for active in now:
            if active.episode is None:
                _resume(active)
            if active.episode is not None:
                live -= 1
                on_done()
                continue
            if not active.effects:  # an empty tuple
                ready.append(active)
            seeking += [(active, i) for i in active.places(Retrieve)]
            _hand_in(active, queues, seed, waiting, ready, clock)
        if seeking and len(under_way) < lookups:
            under_way.append(_submit(sorted(seeking, key=lambda sought: _number(sought[0])), corpus, timeout, 1))
            seeking.clear()
        busy = [queue for queue in every if waiting[id(queue)]]
        for queue in busy:
            began = time.perf_counter()
            queue.step()
            clock[id(queue)] += time.perf_counter() - began
        ended = _ended(under_way, patient=steady or not (busy or ready))
        under_way = [lookup for lookup in under_way if lookup not in ended]
        for lookup in ended:
            under_way += _finish_lookup(lookup, corpus, timeout, tries, ready)
    return _with_seconds(started, {agent: id(queue) for agent, queue in queues.items()}, clock)


def _with_seconds(
    played: Sequence[_Active], queue_of: Mapping[str, int], clock: Mapping[int, float]
) -> list[Episode]:
    """The episodes with what each has cost: its share of every queue's seconds by tokens read and written, and its
    share of each look-up that it waited for. Waiting for others in the same batch costs nothing."""
    total: Counter[int] = Counter()
    for active in played:
        for agent, own in active.tokens.items():
            total[queue_of[agent]] += own
    rate = {queue: clock[queue] / total[queue] for queue in total}
    return [
        replace(a.episode, seconds=a.seconds + sum(rate[queue_of[agent]] * own for agent, own in a.tokens.items()))
        for a in played
        if a.episode is not None
    ]


def _number(active: _Active) -> int:
    return active.number


def _resume(active: _Active) -> None:
    """Send the results into the generator and note what it asks for next, or its end."""
    results = tuple(active.results[i] for i in range(len(active.effects)))
    active.trace.extend(AuditRecord(effect, result) for effect, result in zip(active.effects, results, strict=True))
    effect = resume(active.generator, next(iter(results), None) if active.single else results)
    if isinstance(effect, Returned):
        _end(active, effect.value)
        return
    active.single = not isinstance(effect, tuple)
    active.effects = (effect,) if active.single else effect
    for wrong in (e for e in active.effects if not isinstance(e, Act | Retrieve)):
        raise TypeError(f"episode {active.job.sample_id} yielded {wrong!r}, which is neither an Act nor a Retrieve")
    if not active.job.credentialed:
        active.effects = tuple(replace(asked, credentialed=False) for asked in active.effects)
    active.results, active.silent, active.missing = {}, len(active.places(Act)), len(active.effects)


def _end(active: _Active, prediction: Prediction, failure: str | None = None) -> None:
    active.generator.close()
    job = active.job
    active.episode = Episode(job.sample_id, job.attempt, prediction, tuple(active.turns), tuple(active.trace), failure)


def _hand_in(
    active: _Active,
    queues: Mapping[str, RequestQueue],
    seed: int,
    waiting: Counter[int],
    ready: list[_Active],
    clock: dict[int, float],
) -> None:
    """Put the acts of an episode to the queues. Replies may come at once, or while a queue works."""
    for i in active.places(Act):
        queue = queues[active.effects[i].agent]
        own_seed = derive_seed(seed, active.job.sample_id, active.job.attempt, len(active.turns), i)

        def done(completion: Completion, i: int = i, queue: int = id(queue)) -> None:
            waiting[queue] -= 1
            if active.episode is None:  # else a look-up that it also waited for has failed
                _answered(active, i, completion, ready)

        waiting[id(queue)] += 1
        began = time.perf_counter()
        queue.submit(active.effects[i], own_seed, done)
        clock[id(queue)] += time.perf_counter() - began


def _answered(active: _Active, place: int, completion: Completion, ready: list[_Active]) -> None:
    """Once all acts are answered: read the replies, as turns in the order of the effects, whoever was first."""
    active.results[place] = completion
    active.silent -= 1
    if not active.silent:
        for i in active.places(Act):
            turn, active.results[i] = read_reply(active.effects[i], active.results[i], len(active.turns))
            active.turns.append(turn)
            active.tokens[turn.agent] += max(1, sum(turn.completion.tokens))
    _arrived(active, ready)


def _arrived(active: _Active, ready: list[_Active]) -> None:
    active.missing -= 1
    if not active.missing:
        ready.append(active)


def _submit(waiting: list[tuple[_Active, int]], corpus: Corpus, timeout: float, tries: int) -> _Lookup:
    """Ask on a thread of its own: one that hangs blocks neither the next try nor the end of the process."""
    requests = [active.effects[i] for active, i in waiting]
    future: Future[tuple[list[Evidence], float]] = Future()

    def ask() -> None:
        began = time.perf_counter()
        try:
            evidence = _right(corpus.retrieve(requests), len(requests))
            future.set_result((evidence, time.perf_counter() - began))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=ask, name="retrieval", daemon=True).start()
    return _Lookup(future, waiting, tries, time.monotonic() + timeout)


def _right(answers: list[Evidence], asked: int) -> list[Evidence]:
    """What a corpus gave, where it is one evidence a request; else the next answers would reach other episodes."""
    if not isinstance(answers, list | tuple):
        raise ValueError(f"the corpus gave one {type(answers).__name__} in place of {asked} answers")
    if len(answers) != asked:
        raise ValueError(f"the corpus gave {len(answers)} answers to {asked} requests")
    wrong = next((type(answer).__name__ for answer in answers if not isinstance(answer, Evidence)), None)
    if wrong is not None:
        raise ValueError(f"the corpus gave a {wrong} in place of an Evidence")
    return list(answers)


def _ended(under_way: Sequence[_Lookup], patient: bool) -> list[_Lookup]:
    """Look-ups that are answered or out of time; where `patient`, waits for the first of them."""
    if patient and under_way:
        left = min(lookup.deadline for lookup in under_way) - time.monotonic()
        wait([lookup.future for lookup in under_way], max(0.0, left), FIRST_COMPLETED)
    now = time.monotonic()
    return [lookup for lookup in under_way if lookup.future.done() or now >= lookup.deadline]


def _finish_lookup(lookup: _Lookup, corpus: Corpus, timeout: float, tries: int, ready: list[_Active]) -> list[_Lookup]:
    """Hand out what came back. After a failure: the next try, or the end of the episodes that wait."""
    try:
        answers, seconds = lookup.future.result(timeout=0)
    except Exception as error:  # any failure of a corpus is an episode's typed failure, counted by the caller
        if lookup.tries < tries:
            return [_submit(lookup.waiting, corpus, timeout, lookup.tries + 1)]
        for active in dict.fromkeys(active for active, _ in lookup.waiting):
            if active.episode is None:
                _end(active, Prediction(None), failure=f"retrieval: {type(error).__name__}: {error}")
                ready.append(active)
        return []
    for (active, i), evidence in zip(lookup.waiting, answers, strict=True):
        active.seconds += seconds / len(answers)
        if active.episode is None:
            active.results[i] = evidence
            _arrived(active, ready)
    return []
