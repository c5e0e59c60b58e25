"""The rollout: many episode generators in flight against one set of policies and one corpus.

Whoever is ready is asked for at once; retrieval runs beside the language model; nobody waits for the slowest patient,
nor (with an engine that takes requests while it works) for the longest reply of a batch.
Seeds derive from (run seed, sample, attempt, turn), so results do not depend on scheduling.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Protocol

from ghar.episode import (
    Act,
    Completion,
    Episode,
    EpisodeGenerator,
    Evidence,
    Prediction,
    Record,
    Retrieve,
    Turn,
    read_reply,
)
from ghar.llm.policy import Desk, Policy, open_desk


class Corpus(Protocol):
    """Answers `Retrieve`s in order."""

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]: ...


@dataclass(frozen=True)
class Job:
    """One episode to play: `start` makes its generator."""

    sample_id: str
    attempt: int
    start: Callable[[], EpisodeGenerator]


@dataclass(eq=False)
class _Flight:
    """An episode under way: the effects it waits for and what has come back. `silent`: acts without a reply yet;
    `missing`: effects without a result."""

    number: int
    job: Job
    generator: EpisodeGenerator
    began: float
    effects: tuple[Any, ...] = ()
    single: bool = True
    silent: int = 0
    missing: int = 0
    results: dict[int, Any] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    trace: list[Record] = field(default_factory=list)
    episode: Episode | None = None

    def places(self, kind: type) -> list[int]:
        return [i for i, effect in enumerate(self.effects) if isinstance(effect, kind)]


@dataclass(frozen=True, eq=False)
class _Lookup:
    """One batch of retrievals on its way."""

    future: Future[list[Evidence]]
    waiting: list[tuple[_Flight, int]]
    tries: int
    deadline: float


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from any values, the same on every machine."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def rollout(
    jobs: Sequence[Job],
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
    desks: dict[int, Desk] = {id(policy): open_desk(policy) for policy in policies.values()}
    by_agent = {agent: desks[id(policy)] for agent, policy in policies.items()}
    try:
        return _play(jobs, by_agent, corpus, seed, in_flight, on_done, timeout, tries, steady, lookups)
    finally:
        for desk in desks.values():
            desk.cancel()  # what an episode that ended early, or an error, left behind


def _play(
    jobs: Sequence[Job],
    desks: Mapping[str, Desk],
    corpus: Corpus,
    seed: int,
    in_flight: int,
    on_done: Callable[[], None],
    timeout: float,
    tries: int,
    steady: bool,
    lookups: int,
) -> list[Episode]:
    flights: list[_Flight] = []
    ready: list[_Flight] = []  # whoever can go on: nothing is missing, or a look-up has failed for good
    seeking: list[tuple[_Flight, int]] = []  # retrievals that are not under way yet
    under_way: list[_Lookup] = []
    waiting: Counter[int] = Counter()  # open acts at each desk, by its id
    every = list({id(desk): desk for desk in desks.values()}.values())
    live = 0
    while len(flights) < len(jobs) or live:
        while len(flights) < len(jobs) and live < in_flight:
            job, live = jobs[len(flights)], live + 1
            flights.append(_Flight(len(flights), job, job.start(), time.perf_counter()))
            ready.append(flights[-1])
        now, ready[:] = sorted(ready, key=_number), []
        for flight in now:
            if flight.episode is None:
                _resume(flight)
            if flight.episode is not None:
                live -= 1
                on_done()
                continue
            if not flight.effects:  # an empty tuple
                ready.append(flight)
            seeking += [(flight, i) for i in flight.places(Retrieve)]
            _hand_in(flight, desks, seed, waiting, ready)
        if seeking and len(under_way) < lookups:
            under_way.append(_submit(sorted(seeking, key=lambda sought: _number(sought[0])), corpus, timeout, 1))
            seeking.clear()
        busy = [desk for desk in every if waiting[id(desk)]]
        for desk in busy:
            desk.step()
        ended = _ended(under_way, patient=steady or not (busy or ready))
        under_way = [lookup for lookup in under_way if lookup not in ended]
        for lookup in ended:
            under_way += _finish_lookup(lookup, corpus, timeout, tries, ready)
    return [flight.episode for flight in flights if flight.episode is not None]


def _number(flight: _Flight) -> int:
    return flight.number


def _resume(flight: _Flight) -> None:
    """Send the results into the generator and note what it asks for next, or its end."""
    results = tuple(flight.results[i] for i in range(len(flight.effects)))
    flight.trace.extend(Record(effect, result) for effect, result in zip(flight.effects, results, strict=True))
    try:
        effect = flight.generator.send(next(iter(results), None) if flight.single else results)
    except StopIteration as stop:
        _end(flight, stop.value)
        return
    flight.single = not isinstance(effect, tuple)
    flight.effects = (effect,) if flight.single else effect
    for wrong in (e for e in flight.effects if not isinstance(e, Act | Retrieve)):
        raise TypeError(f"episode {flight.job.sample_id} yielded {wrong!r}, which is neither an Act nor a Retrieve")
    flight.results, flight.silent, flight.missing = {}, len(flight.places(Act)), len(flight.effects)


def _end(flight: _Flight, prediction: Prediction, failure: str | None = None) -> None:
    flight.generator.close()
    seconds = time.perf_counter() - flight.began
    job = flight.job
    flight.episode = Episode(
        job.sample_id, job.attempt, prediction, tuple(flight.turns), tuple(flight.trace), failure, seconds
    )


def _hand_in(
    flight: _Flight, desks: Mapping[str, Desk], seed: int, waiting: Counter[int], ready: list[_Flight]
) -> None:
    """Put the flight's acts to the desks. Replies may come at once, or while a desk works."""
    for i in flight.places(Act):
        desk = desks[flight.effects[i].agent]
        own_seed = derive_seed(seed, flight.job.sample_id, flight.job.attempt, len(flight.turns), i)

        def done(completion: Completion, i: int = i, desk: int = id(desk)) -> None:
            waiting[desk] -= 1
            if flight.episode is None:  # else a look-up that it also waited for has failed
                _answered(flight, i, completion, ready)

        waiting[id(desk)] += 1
        desk.submit(flight.effects[i], own_seed, done)


def _answered(flight: _Flight, place: int, completion: Completion, ready: list[_Flight]) -> None:
    """Once all acts are answered: read the replies, as turns in the order of the effects, whoever was first."""
    flight.results[place] = completion
    flight.silent -= 1
    if not flight.silent:
        for i in flight.places(Act):
            turn, flight.results[i] = read_reply(flight.effects[i], flight.results[i], len(flight.turns))
            flight.turns.append(turn)
    _arrived(flight, ready)


def _arrived(flight: _Flight, ready: list[_Flight]) -> None:
    flight.missing -= 1
    if not flight.missing:
        ready.append(flight)


def _submit(waiting: list[tuple[_Flight, int]], corpus: Corpus, timeout: float, tries: int) -> _Lookup:
    """Ask on a thread of its own: one that hangs blocks neither the next try nor the end of the process."""
    requests = [flight.effects[i] for flight, i in waiting]
    future: Future[list[Evidence]] = Future()

    def ask() -> None:
        try:
            future.set_result(_right(corpus.retrieve(requests), len(requests)))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=ask, name="retrieval", daemon=True).start()
    return _Lookup(future, waiting, tries, time.monotonic() + timeout)


def _right(found: list[Evidence], asked: int) -> list[Evidence]:
    """What a corpus gave, where it is one evidence a request; else the next answers would reach other episodes."""
    if not isinstance(found, list | tuple):
        raise ValueError(f"the corpus gave one {type(found).__name__} in place of {asked} answers")
    if len(found) != asked:
        raise ValueError(f"the corpus gave {len(found)} answers to {asked} requests")
    wrong = next((type(answer).__name__ for answer in found if not isinstance(answer, Evidence)), None)
    if wrong is not None:
        raise ValueError(f"the corpus gave a {wrong} in place of an Evidence")
    return list(found)


def _ended(under_way: Sequence[_Lookup], patient: bool) -> list[_Lookup]:
    """Look-ups that are answered or out of time; where `patient`, waits for the first of them."""
    if patient and under_way:
        left = min(lookup.deadline for lookup in under_way) - time.monotonic()
        wait([lookup.future for lookup in under_way], max(0.0, left), FIRST_COMPLETED)
    now = time.monotonic()
    return [lookup for lookup in under_way if lookup.future.done() or now >= lookup.deadline]


def _finish_lookup(lookup: _Lookup, corpus: Corpus, timeout: float, tries: int, ready: list[_Flight]) -> list[_Lookup]:
    """Hand out what came back. After a failure: the next try, or the end of the episodes that wait."""
    try:
        found = lookup.future.result(timeout=0)
    except Exception as error:  # any failure of a corpus is an episode's typed failure, counted by the caller
        if lookup.tries < tries:
            return [_submit(lookup.waiting, corpus, timeout, lookup.tries + 1)]
        for flight in dict.fromkeys(flight for flight, _ in lookup.waiting):
            if flight.episode is None:
                _end(flight, Prediction(None), failure=f"retrieval: {type(error).__name__}: {error}")
                ready.append(flight)
        return []
    for (flight, i), evidence in zip(lookup.waiting, found, strict=True):
        if flight.episode is None:
            flight.results[i] = evidence
            _arrived(flight, ready)
    return []
