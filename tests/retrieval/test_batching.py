"""Micro-batches: together when asked together, never mixed up, and a failure reaches its callers."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from ghar.episode import Evidence, Passage, Retrieve
from ghar.retrieval.batching import MicroBatcher

TIMEOUT = 20.0


class Echo:
    """Answers a request with its own query, and remembers the sizes of its batches."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.sizes: list[int] = []
        self.seconds = seconds

    def __call__(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        self.sizes.append(len(requests))
        time.sleep(self.seconds)
        if any(request.query == "boom" for request in requests):
            raise RuntimeError("broken index")
        return [Evidence((Passage(request.query, "node", 0, 1.0, 0),)) for request in requests]


def play(batcher: MicroBatcher, asking: Coroutine[Any, Any, Any]) -> Any:
    async def both() -> Any:
        task = asyncio.create_task(batcher.run())
        try:
            return await asyncio.wait_for(asking, TIMEOUT)
        finally:
            task.cancel()

    return asyncio.run(both())


def wishes(*queries: str) -> list[Retrieve]:
    return [Retrieve(query) for query in queries]


def texts(answers: Sequence[Evidence]) -> list[str]:
    return [answer.text for answer in answers]


def test_what_is_asked_together_is_answered_together_and_to_the_right_caller() -> None:
    echo = Echo()
    batcher = MicroBatcher(echo, batch=100, wait=0.3)
    groups = [[f"{i}-{j}" for j in range(i % 3 + 1)] for i in range(20)]

    async def ask() -> list[list[Evidence]]:
        return await asyncio.gather(*(batcher.ask(wishes(*group)) for group in groups))

    assert [texts(answers) for answers in play(batcher, ask())] == groups
    assert echo.sizes == [sum(len(group) for group in groups)]


def test_a_full_batch_does_not_wait() -> None:
    echo = Echo()
    batcher = MicroBatcher(echo, batch=2, wait=10 * TIMEOUT)

    async def ask() -> None:
        await asyncio.gather(*(batcher.ask(wishes(str(i))) for i in range(6)))

    play(batcher, ask())
    assert echo.sizes == [2, 2, 2]


@pytest.mark.slow
def test_while_a_batch_is_computed_the_next_one_collects() -> None:
    echo = Echo(seconds=0.3)
    batcher = MicroBatcher(echo, batch=100, wait=0.0)

    async def ask() -> None:
        first = asyncio.create_task(batcher.ask(wishes("first")))
        await asyncio.sleep(0.1)
        rest = [batcher.ask(wishes(str(i))) for i in range(5)]
        await asyncio.gather(first, *rest)

    play(batcher, ask())
    assert echo.sizes[0] == 1 and sum(echo.sizes) == 6 and len(echo.sizes) <= 3


def test_a_failure_reaches_its_callers_and_the_next_batch_is_answered() -> None:
    batcher = MicroBatcher(Echo(), batch=2, wait=0.05)

    async def ask() -> tuple[list[Any], list[Evidence]]:
        failed = await asyncio.gather(
            batcher.ask(wishes("boom")), batcher.ask(wishes("beside it")), return_exceptions=True
        )
        return failed, await batcher.ask(wishes("later"))

    failed, later = play(batcher, ask())
    assert [str(error) for error in failed] == ["broken index"] * 2
    assert texts(later) == ["later"]


@pytest.mark.slow
def test_a_caller_that_has_gone_costs_no_search() -> None:
    echo = Echo(seconds=0.2)
    batcher = MicroBatcher(echo, batch=1, wait=0.0)

    async def ask() -> list[Evidence]:
        first = asyncio.create_task(batcher.ask(wishes("first")))
        await asyncio.sleep(0.05)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batcher.ask(wishes("gone")), 0.01)
        await first
        return await batcher.ask(wishes("last"))

    assert texts(play(batcher, ask())) == ["last"]
    assert sum(echo.sizes) == 2
