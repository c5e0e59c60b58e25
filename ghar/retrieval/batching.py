"""Micro-batching: requests of many callers are answered together, because searches share work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ghar.episode import Evidence, Retrieve

Answer = Callable[[Sequence[Retrieve]], list[Evidence]]
Waiting = tuple[list[Retrieve], asyncio.Future[list[Evidence]]]

WAIT = 0.002  # seconds that the first request of a batch waits for others


class MicroBatcher:
    """Collects what callers ask until `batch` requests wait or the first has waited `wait` seconds, then answers.

    While a batch is computed (on a thread) the next one collects. An exception goes to every caller of its batch.
    """

    def __init__(self, answer: Answer, batch: int, wait: float = WAIT):
        self._answer = answer
        self._batch = batch
        self._wait = wait
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue()

    async def ask(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One answer per request, in order. `run` must be running."""
        future: asyncio.Future[list[Evidence]] = asyncio.get_running_loop().create_future()
        await self._queue.put((list(requests), future))
        return await future

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            waiting = await self._collect()
            # A caller who has gone (a timeout) is not worth a search.
            waiting = [(requests, future) for requests, future in waiting if not future.done()]
            together = [request for requests, _ in waiting for request in requests]
            try:
                answers = iter(await asyncio.to_thread(self._answer, together))
            except Exception as error:  # whatever it is, the callers are told and the service goes on
                for _, future in waiting:
                    if not future.done():
                        future.set_exception(error)
                continue
            for requests, future in waiting:
                own = [next(answers) for _ in requests]
                if not future.done():
                    future.set_result(own)

    async def _collect(self) -> list[Waiting]:
        waiting = [await self._queue.get()]
        deadline = asyncio.get_running_loop().time() + self._wait
        while sum(len(requests) for requests, _ in waiting) < self._batch:
            try:
                async with asyncio.timeout_at(deadline):
                    waiting.append(await self._queue.get())
            except TimeoutError:
                break
        return waiting
