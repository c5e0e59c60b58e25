"""The rollout: many episode generators in flight against one set of policies and one corpus.

Whoever is ready is asked for at once; retrieval runs beside the language model; nobody waits for the slowest patient,
nor (with an engine that takes requests while it works) for the longest reply of a batch.
Seeds derive from (run seed, sample, attempt, turn), so results do not depend on scheduling.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
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
    """An episode under way: the effects it waits for and what has come back. `asked`: its acts have been handed in;
    `sought`: its retrievals are on their way."""

    job: Job
    generator: EpisodeGenerator
    began: float
    effects: tuple[Any, ...] = ()
    single: bool = True
    asked: bool = False
    sought: bool = False
    results: dict[int, Any] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    trace: list[Record] = field(default_factory=list)
    episode: Episode | None = None

    def pending(self, kind: type) -> list[int]:
        return [i for i, effect in enumerate(self.effects) if isinstance(effect, kind) and i not in self.results]


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
    live: list[_Flight] = []
    under_way: list[_Lookup] = []
    while len(flights) < len(jobs) or live:
        while len(flights) < len(jobs) and len(live) < in_flight:
            job = jobs[len(flights)]
            flight = _Flight(job, job.start(), time.perf_counter())
            _resume(flight, None)
            flights.append(flight)
            live.append(flight)
        if len(under_way) < lookups:
            under_way += _start_lookup(live, corpus, timeout)
        busy = _hand_in(live, desks, seed)
        for desk in busy:
            desk.step()
        for flight in live:
            _note_turns(flight)
        ended = _ended(under_way, patient=steady or not busy)
        under_way = [lookup for lookup in under_way if lookup not in ended]
        for lookup in ended:
            under_way += _finish_lookup(lookup, corpus, timeout, tries)
        for flight in live:
            if flight.episode is None and len(flight.results) == len(flight.effects):
                results = tuple(flight.results[i] for i in range(len(flight.effects)))
                _resume(flight, results[0] if flight.single else results)
            if flight.episode is not None:
                on_done()
        live = [flight for flight in live if flight.episode is None]
    return [flight.episode for flight in flights if flight.episode is not None]


def _resume(flight: _Flight, value: Any) -> None:
    """Send a result into the generator and note what it asks for next, or its end."""
    flight.trace.extend(Record(e, flight.results[i]) for i, e in enumerate(flight.effects))
    try:
        effect = flight.generator.send(value)
    except StopIteration as stop:
        _end(flight, stop.value)
        return
    flight.single = not isinstance(effect, tuple)
    flight.effects = (effect,) if flight.single else effect
    flight.results, flight.asked, flight.sought = {}, False, False
    for wrong in (e for e in flight.effects if not isinstance(e, Act | Retrieve)):
        raise TypeError(f"episode {flight.job.sample_id} yielded {wrong!r}, which is neither an Act nor a Retrieve")


def _end(flight: _Flight, prediction: Prediction, failure: str | None = None) -> None:
    flight.generator.close()
    seconds = time.perf_counter() - flight.began
    job = flight.job
    flight.episode = Episode(
        job.sample_id, job.attempt, prediction, tuple(flight.turns), tuple(flight.trace), failure, seconds
    )


def _hand_in(live: Sequence[_Flight], desks: Mapping[str, Desk], seed: int) -> list[Desk]:
    """Hand in every act that was not yet; returns the desks that have any to answer, each once."""
    for flight in live:
        if not flight.asked:
            flight.asked = True
            for i in flight.pending(Act):
                own_seed = derive_seed(seed, flight.job.sample_id, flight.job.attempt, len(flight.turns), i)
                done = partial(flight.results.__setitem__, i)
                desks[flight.effects[i].agent].submit(flight.effects[i], own_seed, done)
    waiting = (desks[flight.effects[i].agent] for flight in live for i in flight.pending(Act))
    return list({id(desk): desk for desk in waiting}.values())


def _note_turns(flight: _Flight) -> None:
    """Once all acts are answered: read the replies, as turns in the order of the effects, whoever was first."""
    acts = [i for i, effect in enumerate(flight.effects) if isinstance(effect, Act)]
    if all(i in flight.results for i in acts):
        for i in acts:
            if isinstance(flight.results[i], Completion):
                turn, flight.results[i] = read_reply(flight.effects[i], flight.results[i], len(flight.turns))
                flight.turns.append(turn)


def _start_lookup(live: Sequence[_Flight], corpus: Corpus, timeout: float) -> list[_Lookup]:
    """One call for all retrievals that are not under way yet; none where there are none."""
    waiting = [(flight, i) for flight in live if not flight.sought for i in flight.pending(Retrieve)]
    for flight, _ in waiting:
        flight.sought = True
    return [_submit(waiting, corpus, timeout, 1)] if waiting else []


def _submit(waiting: list[tuple[_Flight, int]], corpus: Corpus, timeout: float, tries: int) -> _Lookup:
    """Ask on a thread of its own: one that hangs blocks neither the next try nor the end of the process."""
    requests = [flight.effects[i] for flight, i in waiting]
    future: Future[list[Evidence]] = Future()

    def ask() -> None:
        try:
            future.set_result(corpus.retrieve(requests))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=ask, name="retrieval", daemon=True).start()
    return _Lookup(future, waiting, tries, time.monotonic() + timeout)


def _ended(under_way: Sequence[_Lookup], patient: bool) -> list[_Lookup]:
    """Look-ups that are answered or out of time; where `patient`, waits for the first of them."""
    if patient and under_way:
        left = min(lookup.deadline for lookup in under_way) - time.monotonic()
        wait([lookup.future for lookup in under_way], max(0.0, left), FIRST_COMPLETED)
    now = time.monotonic()
    return [lookup for lookup in under_way if lookup.future.done() or now >= lookup.deadline]


def _finish_lookup(lookup: _Lookup, corpus: Corpus, timeout: float, tries: int) -> list[_Lookup]:
    """Hand out what came back. After a failure: the next try, or the end of the episodes that wait."""
    try:
        found = lookup.future.result(timeout=0)
    except Exception as error:  # any failure of a corpus is an episode's typed failure, counted by the caller
        if lookup.tries < tries:
            return [_submit(lookup.waiting, corpus, timeout, lookup.tries + 1)]
        for flight, _ in lookup.waiting:
            flight.effects = ()
            _end(flight, Prediction(None), failure=f"retrieval: {type(error).__name__}: {error}")
        return []
    for (flight, i), evidence in zip(lookup.waiting, found, strict=True):
        flight.results[i] = evidence
    return []
