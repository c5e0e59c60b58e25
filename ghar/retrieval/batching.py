"""Micro-batching: requests of many callers are answered together, because searches share work."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from ghar.episode import Retrieve

T = TypeVar("T")  # an answer: evidence, or what is made of it on the same thread

WAIT = 0.002  # seconds that the first request of a batch waits for others
BATCH = 64  # requests that are answered together
ROOM = 16_384  # requests that may wait; whoever comes then is told to come again
WHOLE = 3.0  # what a search of the whole graph counts as, in searches of one partition
SHARE = 4.0  # what a batch may cost, in such searches for each of its places


class Busy(RuntimeError):
    """More requests wait than there is room for."""


@dataclass(eq=False)
class _Call(Generic[T]):
    """What one caller asks at once. asked: how many of its requests have been taken into a batch;
    cost: what these have cost."""

    requests: list[Retrieve]
    future: asyncio.Future[list[T]]
    answers: list[T] = field(default_factory=list)
    asked: int = 0
    cost: float = 0.0

    @property
    def left(self) -> int:
        return len(self.requests) - self.asked


class MicroBatcher(Generic[T]):
    """Collects what callers ask until `batch` requests wait or the first has waited `wait` seconds, then answers.

    While a batch is computed (on a thread) the next one collects. Callers take turns: next is the request of the call
    that has cost least so far, and a batch ends when it costs `SHARE` searches a place, so neither a long list nor wide
    requests delay a short one. An exception goes to every caller of its batch.
    """

    def __init__(
        self, answer: Callable[[Sequence[Retrieve]], list[T]], batch: int = BATCH, wait: float = WAIT, room: int = ROOM
    ):
        self._answer = answer
        self._batch = batch
        self._wait = wait
        self._room = room
        self._calls: list[tuple[float, int, _Call[T]]] = []  # a heap: by cost, then by arrival
        self._numbers = count()
        self._arrived = asyncio.Event()

    async def ask(self, requests: Sequence[Retrieve]) -> list[T]:
        """One answer per request, in order. `run` must be running. Busy when no more may wait."""
        if not requests:
            return []
        if self._open() + len(requests) > self._room:
            raise Busy(f"{self._room} requests wait already")
        call = _Call[T](list(requests), asyncio.get_running_loop().create_future())
        heapq.heappush(self._calls, (0.0, next(self._numbers), call))
        self._arrived.set()
        return await call.future

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            await self._collect()
            calls = self._take()
            together = [call.requests[place] for call, place in calls]
            try:
                answers = await asyncio.to_thread(self._answer, together)
            except Exception as error:  # whatever it is, the callers are told and the service goes on
                for call, _ in calls:
                    if not call.future.done():
                        call.future.set_exception(error)
                continue
            for (call, _), answer in zip(calls, answers, strict=True):
                call.answers.append(answer)  # batches end in order, and so do a call's places
                if len(call.answers) == len(call.requests) and not call.future.done():
                    call.future.set_result(call.answers)

    async def _collect(self) -> None:
        """Until a batch is full, or its first request has waited long enough."""
        while not self._calls:
            self._arrived.clear()
            await self._arrived.wait()
        deadline = asyncio.get_running_loop().time() + self._wait
        while self._open() < self._batch:
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._arrived.wait()
            except TimeoutError:
                break

    def _open(self) -> int:
        return sum(call.left for _, _, call in self._calls)

    def _take(self) -> list[tuple[_Call[T], int]]:
        """Up to `batch` requests, the cheapest calls first; one who has gone (a timeout) is not worth a search."""
        taken: list[tuple[_Call[T], int]] = []
        spent = 0.0
        while self._calls and len(taken) < self._batch and spent < SHARE * self._batch:
            _, number, call = heapq.heappop(self._calls)
            if call.future.done():
                continue
            taken.append((call, call.asked))
            price = _price(call.requests[call.asked])
            spent += price
            call.cost += price
            call.asked += 1
            if call.left:
                heapq.heappush(self._calls, (call.cost, number, call))
        return taken


def _price(request: Retrieve) -> float:
    """What a request costs, in searches of one partition for one best item."""
    searches = WHOLE if request.partitions is None else max(1, len(request.partitions))
    return searches * (1 + request.top_n / 50)
