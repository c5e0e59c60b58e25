"""Requests that join a batch on its way: the same replies as of one call, whenever they come and however many fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.episode import Completion
from ghar.llm.engine import Request, StreamingEngine
from ghar.llm.hf import HFEngine, passes
from tests.llm.test_hf import REQUESTS


def streamed(engine: HFEngine, requests: Sequence[Request], at_once: Sequence[int]) -> list[Completion]:
    """Replies to `requests`, of which at_once[i] are handed in before step i (all that are left at last)."""
    replies: dict[int, Completion] = {}
    handed_in = steps = 0
    while len(replies) < len(requests):
        more = at_once[steps] if steps < len(at_once) else len(requests)
        for place in range(handed_in, min(len(requests), handed_in + more)):
            engine.submit(requests[place], lambda reply, place=place: replies.__setitem__(place, reply))
        handed_in, steps = min(len(requests), handed_in + more), steps + 1
        engine.step()
        assert steps < 50 * len(requests), "a request is never answered"
    return [replies[i] for i in range(len(requests))]


def same(one: Sequence[Completion], two: Sequence[Completion]) -> None:
    for a, b in zip(one, two, strict=True):
        assert (a.text, a.prompt_ids, a.token_ids, a.choice_ids, a.finish_reason, a.version) == (
            b.text, b.prompt_ids, b.token_ids, b.choice_ids, b.finish_reason, b.version,
        )  # fmt: skip
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_replies_are_those_of_one_call(model, tokenizer, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(REQUESTS))))
    at_once = data.draw(st.lists(st.integers(0, 6), max_size=12))
    engine = HFEngine(model, tokenizer, max_batch=data.draw(st.integers(1, 8)))
    requests = [REQUESTS[i] for i in order]
    same(streamed(engine, requests, at_once), HFEngine(model, tokenizer).generate(requests))


def test_a_reply_may_ask_for_another_and_what_is_cancelled_is_forgotten(model, tokenizer) -> None:
    engine = HFEngine(model, tokenizer, max_batch=3)
    assert isinstance(engine, StreamingEngine)
    came: list[Completion] = []

    def again(reply: Completion) -> None:
        came.append(reply)
        if len(came) < 3:
            engine.submit(REQUESTS[0], again)

    engine.submit(REQUESTS[0], again)
    while len(came) < 3:
        engine.step()
    same(came, HFEngine(model, tokenizer).generate([REQUESTS[0]] * 3))
    for request in REQUESTS[:5]:
        engine.submit(request, came.append)
    engine.step()
    done = len(came)
    engine.cancel()
    engine.step()
    assert len(came) == done and engine._live is None and not engine._waiting
    same(streamed(engine, REQUESTS[:4], [4]), HFEngine(model, tokenizer).generate(REQUESTS[:4]))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=24), st.integers(1, 6))
def test_passes_of_a_queue_are_as_many_as_the_model_is_called_for(model, tokenizer, most, at_once) -> None:
    """As long as replies wait; the part of all tokens that is sampled by then stands for the rest."""
    engine = HFEngine(model, tokenizer, max_batch=at_once)
    rows: list[int] = []
    begun: list[Any] = []
    sampled: list[int] = []  # tokens, when none waits any more
    begin = engine._begin

    def begins(rows: list[Any]) -> Any:
        begun.extend(rows)
        if not engine._waiting:
            sampled.append(sum(len(row.token_ids) for row in begun))
        return begin(rows)

    def called(_: Any, args: Any, how: dict[str, Any]) -> None:
        if how["input_ids"].shape[1] == 1 and (engine._waiting or len(most) <= at_once):
            rows.append(len(how["input_ids"]))

    engine._begin = begins
    hook = model.register_forward_pre_hook(called, with_kwargs=True)
    replies = streamed(engine, [Request("predict gout", n, seed=i) for i, n in enumerate(most)], [len(most)])
    hook.remove()
    lengths = [len(reply.token_ids) for reply in replies]
    share = 1.0 if len(most) <= at_once else sum(lengths) / sampled[0]
    assert passes(lengths, at_once) == pytest.approx((share * len(rows), share * sum(rows)))


def test_passes_of_replies_alike_are_those_of_whole_batches() -> None:
    """Twelve replies of seven tokens, four at once: three times six passes of four rows, wherever they stop to wait."""
    assert passes([7] * 12, 4) == pytest.approx((18, 72))
    assert passes([7] * 3, 4) == (6, 18) and passes([1] * 9, 2) == (0, 0) and passes([], 4) == (0, 0)
