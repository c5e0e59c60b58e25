"""Fig. 8(c) of GHAR as a benchmark: how three improvements shorten inference, one added to the other.

The paper's ladder is whole graph -> meta-path partitions -> distributed requests (Ray) -> asynchronous request system
(gunicorn); its workload is a test epoch on four GPUs. Here the language model is a stand-in that takes `MODEL` seconds
a batch and no processor, as one on a GPU would, and the rungs are:

    whole graph       batch after batch: the model, then the look-ups one by one, each over the whole graph
    + partitions      the same, look-ups inside their meta-path
    + in flight       envs/rollout.py: look-ups are batched and run beside the model
    + service         the same through launch/serve_retrieval.py's service with `WORKERS` processes and micro-batching

The last three must end with the same episodes. An actor pool (Ray) takes the service's place later: any object with
`retrieve(requests)` is a corpus.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from envs.rollout import Corpus, Job, rollout
from ghar.episode import Act, Completion, Episode, EpisodeGenerator, Evidence, Prediction, Retrieve
from ghar.errors import BadInput
from ghar.progress import track
from ghar.retrieval.client import RemoteRetriever, connect
from ghar.retrieval.partition import PartitionRetriever
from ghar.retrieval.service import Settings, serve
from ghar.retrieval.wire import Version

MODEL = 0.02  # seconds the stand-in takes for a batch
EPISODES = 32
LOOKUPS = 3  # at most, per episode; the number varies, as in the paper's imbalanced batches
WORKERS = 2
READY = 300.0  # seconds the service may take to start


def requests_ladder(
    retriever: PartitionRetriever, wishes: Sequence[Retrieve], settings: Settings, *, seed: int
) -> dict[str, float]:
    """Seconds per rung. wishes: at least EPISODES * LOOKUPS requests, each for one partition."""
    plan = np.random.default_rng(seed).integers(0, LOOKUPS + 1, EPISODES)
    wanted = [wishes[LOOKUPS * i : LOOKUPS * i + n] for i, n in enumerate(plan.tolist())]
    everywhere = [[replace(wish, partitions=None) for wish in own] for own in wanted]
    retriever.retrieve([wishes[0], replace(wishes[0], partitions=None)])  # maps the index into memory
    result: dict[str, float] = {}
    start = time.perf_counter()
    _one_by_one(everywhere, retriever)
    result["whole graph, s"] = time.perf_counter() - start
    start = time.perf_counter()
    first = _one_by_one(wanted, retriever)
    result["+ partitions, s"] = time.perf_counter() - start
    second, result["+ in flight, s"] = _in_flight(wanted, retriever)
    with _service(settings, retriever) as remote:
        remote.retrieve(wishes)
        third, result["+ service, s"] = _in_flight(wanted, remote)
    if not first == second == third:
        raise AssertionError("the rungs of Fig. 8(c) gave different evidence")
    return result


def _one_by_one(wanted: Sequence[Sequence[Retrieve]], corpus: Corpus) -> list[list[Evidence]]:
    """Every episode does its k-th step before any does its next: model for all, then one look-up after the other."""
    found: list[list[Evidence]] = [[] for _ in wanted]
    for step in track(range(LOOKUPS), "One by one"):
        time.sleep(MODEL)
        for own, evidence in zip(wanted, found, strict=True):
            if step < len(own):
                evidence += corpus.retrieve([own[step]])
    time.sleep(MODEL)
    return found


def _in_flight(wanted: Sequence[Sequence[Retrieve]], corpus: Corpus) -> tuple[list[list[Evidence]], float]:
    jobs = [Job(str(i), 0, lambda own=own: _episode(own)) for i, own in enumerate(wanted)]
    start = time.perf_counter()
    episodes = rollout(jobs, {"top": _StandIn()}, corpus, seed=0, in_flight=len(jobs))
    seconds = time.perf_counter() - start
    return [_evidence(episode) for episode in episodes], seconds


def _episode(wishes: Sequence[Retrieve]) -> EpisodeGenerator:
    for wish in wishes:
        yield Act("top", "retrieve", "look up?")
        yield wish
    yield Act("top", "predict", "and now?")
    return Prediction(0)


def _evidence(episode: Episode) -> list[Evidence]:
    if episode.failure is not None:
        raise RuntimeError(f"episode {episode.sample_id}: {episode.failure}")
    return [record.result for record in episode.trace if isinstance(record.result, Evidence)]


class _StandIn:
    """A policy that costs time and says nothing."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        time.sleep(MODEL)
        return [Completion("yes") for _ in acts]


@contextmanager
def _service(settings: Settings, retriever: PartitionRetriever) -> Iterator[RemoteRetriever]:
    """A service in processes of its own, ended afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    process = get_context("spawn").Process(target=serve, args=(url, settings, WORKERS))
    process.start()
    try:
        yield _connect(url, Version(retriever.graph.fingerprint, settings.kind, settings.probes))
    finally:
        process.terminate()
        process.join(30)


def _connect(url: str, version: Version) -> RemoteRetriever:
    end = time.monotonic() + READY
    while True:
        try:
            return connect(url, version, credentialed=False, allow=())
        except BadInput:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def settings_of(graph_folder: Path, kind: str, cache: Path, retriever: PartitionRetriever) -> Settings:
    """What the service of this benchmark is started with: the configuration's micro-batches."""
    from launch.entry import load

    own = load().retriever
    return Settings(str(graph_folder), kind, str(cache), retriever.probes, own.batch, own.wait_ms)
