"""Requests that join a batch on its way: the same replies as of one call, whenever they come and however many fit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.episode import Completion
from ghar.llm.engine import Request, StreamingEngine
from ghar.llm.hf import HFEngine
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
