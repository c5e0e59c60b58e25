"""The rollout: many episode generators in flight against one set of policies and one corpus.

Whoever is ready is batched; retrieval runs beside the language model; nobody waits for the slowest patient.
Seeds derive from (run seed, sample, attempt, turn), so results do not depend on scheduling.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from ghar.episode import Act, Completion, Episode, EpisodeGenerator, Evidence, Prediction, Record, Reply, Retrieve, Turn
from ghar.llm.policy import Policy


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
    """An episode under way: the effects it waits for and what has come back."""

    job: Job
    generator: EpisodeGenerator
    began: float
    effects: tuple[Any, ...] = ()
    single: bool = True
    results: dict[int, Any] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    trace: list[Record] = field(default_factory=list)
    episode: Episode | None = None

    def pending(self, kind: type) -> list[int]:
        return [i for i, effect in enumerate(self.effects) if isinstance(effect, kind) and i not in self.results]


@dataclass(frozen=True)
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
) -> list[Episode]:
    """Play every job to its end; episodes come back in the order of `jobs`.

    A retrieval that raises or outlasts `timeout` seconds is tried `tries` times; then the episodes that wait for it
    fail (`Episode.failure`), and no failure text is ever shown to a policy.
    """
    flights: list[_Flight] = []
    live: list[_Flight] = []
    lookup: _Lookup | None = None
    pool = ThreadPoolExecutor(1)
    try:
        while len(flights) < len(jobs) or live:
            while len(flights) < len(jobs) and len(live) < in_flight:
                job = jobs[len(flights)]
                flight = _Flight(job, job.start(), time.perf_counter())
                _resume(flight, None)
                flights.append(flight)
                live.append(flight)
            if lookup is None:
                lookup = _start_lookup(live, corpus, pool, timeout)
            answered = _answer_acts(live, policies, seed)
            if lookup is not None and (not answered or lookup.future.done()):
                lookup = _finish_lookup(lookup, corpus, pool, timeout, tries)
            for flight in live:
                if flight.episode is None and len(flight.results) == len(flight.effects):
                    results = tuple(flight.results[i] for i in range(len(flight.effects)))
                    _resume(flight, results[0] if flight.single else results)
                if flight.episode is not None:
                    on_done()
            live = [flight for flight in live if flight.episode is None]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
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
    flight.results = {}


def _end(flight: _Flight, prediction: Prediction, failure: str | None = None) -> None:
    flight.generator.close()
    seconds = time.perf_counter() - flight.began
    job = flight.job
    flight.episode = Episode(
        job.sample_id, job.attempt, prediction, tuple(flight.turns), tuple(flight.trace), failure, seconds
    )


def _answer_acts(live: Sequence[_Flight], policies: Mapping[str, Policy], seed: int) -> bool:
    """Answer every pending act, one batch per distinct policy. True when there was any."""
    batches: dict[int, list[tuple[_Flight, int]]] = {}
    for flight in live:
        for i in flight.pending(Act):
            batches.setdefault(id(policies[flight.effects[i].agent]), []).append((flight, i))
    for batch in batches.values():
        acts = [flight.effects[i] for flight, i in batch]
        seeds = [derive_seed(seed, f.job.sample_id, f.job.attempt, len(f.turns), i) for f, i in batch]
        completions = policies[acts[0].agent].answer(acts, seeds)
        for (flight, i), act, completion in zip(batch, acts, completions, strict=True):
            flight.results[i] = _read(flight, act, completion)
    return bool(batches)


def _read(flight: _Flight, act: Act, completion: Completion) -> Reply:
    parsed = act.parse(completion.text)
    turn = Turn(
        act.agent,
        act.role,
        len(flight.turns),
        act.step,
        completion,
        format_ok=parsed.error is None,
        trainable=bool(completion.token_ids),
    )
    flight.turns.append(turn)
    return Reply(completion, parsed.value, parsed.error)


def _start_lookup(
    live: Sequence[_Flight], corpus: Corpus, pool: ThreadPoolExecutor, timeout: float
) -> _Lookup | None:
    waiting = [(flight, i) for flight in live for i in flight.pending(Retrieve)]
    return _submit(waiting, corpus, pool, timeout, 1) if waiting else None


def _submit(
    waiting: list[tuple[_Flight, int]], corpus: Corpus, pool: ThreadPoolExecutor, timeout: float, tries: int
) -> _Lookup:
    future = pool.submit(corpus.retrieve, [flight.effects[i] for flight, i in waiting])
    return _Lookup(future, waiting, tries, time.monotonic() + timeout)


def _finish_lookup(
    lookup: _Lookup, corpus: Corpus, pool: ThreadPoolExecutor, timeout: float, tries: int
) -> _Lookup | None:
    """Hand out what came back. After a failure: the next try, or the end of the episodes that wait."""
    try:
        found = lookup.future.result(timeout=max(0.0, lookup.deadline - time.monotonic()))
    except Exception as error:  # any failure of a corpus is an episode's typed failure, counted by the caller
        if lookup.tries < tries:
            return _submit(lookup.waiting, corpus, pool, timeout, lookup.tries + 1)
        for flight, _ in lookup.waiting:
            flight.effects = ()
            _end(flight, Prediction(None), failure=f"retrieval: {type(error).__name__}: {error}")
        return None
    for (flight, i), evidence in zip(lookup.waiting, found, strict=True):
        flight.results[i] = evidence
    return None
