"""The retriever as Ray actors, and the Corpus that asks them. Needs the extra `ray`."""

# pyright: reportMissingImports=false
# ray is an extra that the linters' environment need not have

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from ghar.config import Config
from ghar.envs import system as systems
from ghar.envs.records import Records
from ghar.episode import Evidence, Retrieve
from ghar.retrieval.batching import MicroBatcher

ALWAYS = -1  # a lost actor is started again by Ray: it holds nothing that could be lost with it
ASKED = 3  # times more that it is asked what it was lost over
TIMEOUT = 60.0  # seconds an answer may take


class RetrievalLost(RuntimeError):
    """No answer; the rollout tries again, then makes it the typed failure of the episodes that wait."""


@ray.remote(max_restarts=ALWAYS, max_task_retries=ASKED, num_cpus=0)
class RetrievalActor:
    """A system's corpus in a process of its own; what several callers ask at once is answered together."""

    def __init__(self, config: Config) -> None:
        self.corpus = systems.build(Records(config)).corpus
        self.batcher = MicroBatcher(self.corpus.retrieve)
        self.task: asyncio.Task[None] | None = None

    async def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One `Evidence` per request, in order."""
        if self.task is None:  # there is no event loop before the first call
            self.task = asyncio.create_task(self.batcher.run())
        check = getattr(self.corpus, "check", None)
        if check is not None:
            for request in requests:  # before it is batched: others must not fail with it
                check(request)
        return await self.batcher.ask(requests)

    async def ready(self) -> None:
        """Returns when the index is open."""


class RayRetriever:
    """Answers like the retriever that the actors hold. May be sent to other processes and used from several threads."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self.actors = list(actors)
        self._next = 0

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One `Evidence` per request, in order, each actor answering a part. RetrievalLost when one does not."""
        size = -(-len(requests) // len(self.actors))
        parts = [requests[i : i + size] for i in range(0, len(requests), size)]
        first, self._next = self._next, (self._next + len(parts)) % len(self.actors)
        asked = [
            self.actors[(first + i) % len(self.actors)].retrieve.remote(list(part)) for i, part in enumerate(parts)
        ]
        try:
            answers = ray.get(asked, timeout=TIMEOUT)
        except RayError as error:  # its text may quote a query: the name of its kind must do
            raise RetrievalLost(f"a retrieval actor did not answer ({type(error).__name__})") from None
        return [evidence for part in answers for evidence in part]


def librarians(config: Config, count: int) -> list[Any]:
    """Handles of that many retrieval actors, which are still starting. They end with the process that called this."""
    return [RetrievalActor.remote(config) for _ in range(count)]  # type: ignore[attr-defined]
