"""Fig. 8(c) of GHAR as a benchmark: how its three improvements shorten inference, one added to the other.

The paper's bars are 4gpu, 4gpu-meta, 4gpu-meta-ray and 4gpu-meta-ray-gunicorn; its workload is a test epoch on four
GPUs. Here the language model is a stand-in that takes `TOKEN` seconds for a token of every open request and no
processor, as one on a GPU would; replies differ in length. The rungs are:

    whole graph       batch after batch: the model until its longest reply is there, then the look-ups one by one, each
                      over the whole graph
    + meta-paths      the same, look-ups inside their meta-path
    + distributed     the look-ups of a batch are dealt out to `WORKERS` processes (the paper: Ray; here those of
                      launch/serve_retrieval.py's service); all wait for the last one
    + asynchronous    envs/rollout.py with the same service: look-ups run beside the model, and no one waits for the
                      slowest patient (the paper: gunicorn)

The last three must end with the same evidence.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from ghar.envs.rollout import Corpus, EpisodeJob, rollout
from ghar.episode import Act, Completion, Episode, EpisodeGenerator, Evidence, Prediction, Retrieve
from ghar.errors import BadInput
from ghar.llm.policy import Done, RequestQueue
from ghar.progress import track
from ghar.retrieval.client import RemoteRetriever, connect
from ghar.retrieval.partition import PartitionRetriever
from ghar.retrieval.service import ServiceSettings, serve
from ghar.retrieval.wire import ServiceVersion

TOKEN = 0.005  # seconds of the stand-in
LONGEST = 8  # tokens of a reply, at most
EPISODES = 32
LOOKUPS = 3  # at most, per episode; the number varies, as in the paper's imbalanced batches
Plan = Sequence[Sequence[tuple[Act, Retrieve | None]]]  # of every episode: what it says, and then looks up
WORKERS = 2
READY = 300.0  # seconds the service may take to start


def requests_ladder(
    retriever: PartitionRetriever, wishes: Sequence[Retrieve], settings: ServiceSettings, *, seed: int
) -> dict[str, float]:
    """Seconds per rung. wishes: at least EPISODES * LOOKUPS requests, each for one partition."""
    wanted = _plan(wishes, np.random.default_rng(seed))
    everywhere = [[(act, wish and replace(wish, partitions=None)) for act, wish in own] for own in wanted]
    retriever.retrieve([wishes[0], replace(wishes[0], partitions=None)])  # maps the index into memory
    result: dict[str, float] = {}

    def timed(rung: str, run: Callable[[], list[list[Evidence]]]) -> list[list[Evidence]]:
        start = time.perf_counter()
        evidence = run()
        result[f"{rung}, s"] = time.perf_counter() - start
        return evidence

    def one_by_one(requests: Sequence[Retrieve]) -> list[Evidence]:
        return [retriever.retrieve([request])[0] for request in requests]

    timed("whole graph", lambda: _in_step(everywhere, one_by_one))
    first = timed("+ meta-paths", lambda: _in_step(wanted, one_by_one))
    with _service(settings, retriever) as remote, ThreadPoolExecutor(WORKERS) as pool:
        _dealt(wishes, remote, pool)  # workers map the index when they are first asked
        second = timed("+ distributed", lambda: _in_step(wanted, lambda requests: _dealt(requests, remote, pool)))
        third = timed("+ asynchronous", lambda: _in_flight(wanted, remote))
    if not first == second == third:
        raise AssertionError("the rungs of Fig. 8(c) gave different evidence")
    return result


def _plan(wishes: Sequence[Retrieve], rng: np.random.Generator) -> Plan:
    lengths = rng.integers(1, LONGEST + 1, (EPISODES, LOOKUPS + 1)).tolist()
    plan: list[list[tuple[Act, Retrieve | None]]] = []
    for i, lookups in enumerate(rng.integers(0, LOOKUPS + 1, EPISODES).tolist()):
        own = [*wishes[LOOKUPS * i : LOOKUPS * i + lookups], None]  # after the last one it predicts
        plan.append([(Act("top", "", "", max_tokens=n), wish) for n, wish in zip(lengths[i], own, strict=False)])
    return plan


def _in_step(plan: Plan, ask: Callable[[Sequence[Retrieve]], list[Evidence]]) -> list[list[Evidence]]:
    """Every episode does its k-th step before any does its next: the model for all, then the look-ups of all."""
    results: list[list[Evidence]] = [[] for _ in plan]
    for step in track(range(LOOKUPS + 1), "Step by step"):
        acting = [(own[step], evidence) for own, evidence in zip(plan, results, strict=True) if step < len(own)]
        _StandIn().answer([act for (act, _), _ in acting], [])
        seeking = [(wish, evidence) for (_, wish), evidence in acting if wish is not None]
        for (_, evidence), answer in zip(seeking, ask([wish for wish, _ in seeking]), strict=True):
            evidence.append(answer)
    return results


def _dealt(requests: Sequence[Retrieve], remote: RemoteRetriever, pool: ThreadPoolExecutor) -> list[Evidence]:
    """One call for each worker, all at once."""
    shares = [requests[i::WORKERS] for i in range(WORKERS)]
    answers = list(pool.map(remote.retrieve, shares))
    return [answers[i % WORKERS][i // WORKERS] for i in range(len(requests))]


def _in_flight(plan: Plan, corpus: Corpus) -> list[list[Evidence]]:
    jobs = [EpisodeJob(str(i), 0, lambda own=own: _episode(own)) for i, own in enumerate(plan)]
    episodes = rollout(jobs, {"top": _StandIn()}, corpus, seed=0, in_flight=len(jobs), lookups=WORKERS)
    return [_evidence(episode) for episode in episodes]


def _episode(own: Sequence[tuple[Act, Retrieve | None]]) -> EpisodeGenerator:
    for act, wish in own:
        yield act
        if wish is not None:
            yield wish
    return Prediction(0)


def _evidence(episode: Episode) -> list[Evidence]:
    if episode.failure is not None:
        raise RuntimeError(f"episode {episode.sample_id}: {episode.failure}")
    return [record.result for record in episode.trace if isinstance(record.result, Evidence)]


class _StandIn:
    """A model that costs time and says nothing; one that streams, too, and then is its own queue."""

    def __init__(self) -> None:
        self.open: list[tuple[int, Done]] = []

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        time.sleep(TOKEN * max(act.max_tokens for act in acts))
        return [Completion("yes") for _ in acts]

    def queue(self) -> RequestQueue:
        return self

    def submit(self, act: Act, seed: int, done: Done) -> None:
        self.open.append((act.max_tokens, done))

    def step(self) -> None:
        time.sleep(TOKEN)
        ended = [done for left, done in self.open if left == 1]
        self.open = [(left - 1, done) for left, done in self.open if left > 1]
        for done in ended:
            done(Completion("yes"))

    def cancel(self) -> None:
        self.open.clear()


@contextmanager
def _service(settings: ServiceSettings, retriever: PartitionRetriever) -> Iterator[RemoteRetriever]:
    """A service in processes of its own, ended afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    process = get_context("spawn").Process(target=serve, args=(url, settings, WORKERS))
    process.start()
    try:
        yield _connect(url, ServiceVersion(retriever.graph.fingerprint, settings.kind, settings.probes))
    finally:
        process.terminate()
        process.join(30)


def _connect(url: str, version: ServiceVersion) -> RemoteRetriever:
    end = time.monotonic() + READY
    while True:
        try:
            return connect(url, version, credentialed=False, allow=())
        except BadInput:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def settings_of(graph_folder: Path, kind: str, cache: Path, retriever: PartitionRetriever) -> ServiceSettings:
    """What the service of this benchmark is started with."""
    return ServiceSettings(str(graph_folder), kind, str(cache), retriever.probes)
