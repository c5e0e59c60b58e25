"""Policies around an engine: what they ask, and what they put in the place of a reply."""

import pytest

from ghar.episode import Act, Completion
from ghar.llm.policy import EnginePolicy, ForcedPolicy, OppositePolicy, open_queue

ROLES = ("rewrite", "retrieve", "answer", "retrieve", "continue")
ACTS = [Act("top", role, f"{role} {i}", ("yes", "no") * (role == "retrieve"), 5 + i) for i, role in enumerate(ROLES)]
SEEDS = [11, 12, 13, 14, 15]


class Engine:
    """Says "yes" with tokens to everything."""

    version = 4

    def __init__(self) -> None:
        self.requests: list = []

    def generate(self, requests):
        self.requests += requests
        return [Completion("yes", (1,), (2,), (-0.1,), version=4) for _ in requests]


def test_an_engine_policy_passes_on_what_an_act_says():
    engine = Engine()
    replies = EnginePolicy(engine, temperature=0.5).answer(ACTS, SEEDS)
    assert [r.version for r in replies] == [4] * 5
    for act, seed, request in zip(ACTS, SEEDS, engine.requests, strict=True):
        assert (request.prompt, request.max_tokens, request.choices) == (act.prompt, act.max_tokens, act.choices)
        assert (request.seed, request.temperature) == (seed, 0.5)


def test_a_forced_decision_is_not_asked_and_has_no_tokens():
    engine = Engine()
    replies = ForcedPolicy(EnginePolicy(engine), {"retrieve": "no"}).answer(ACTS, SEEDS)
    assert [r.text for r in replies] == ["yes", "no", "yes", "no", "yes"]
    assert [bool(r.token_ids) for r in replies] == [act.role != "retrieve" for act in ACTS]
    assert [(r.prompt, r.seed) for r in engine.requests] == [("rewrite 0", 11), ("answer 2", 13), ("continue 4", 15)]


def test_when_everything_is_forced_nobody_is_asked():
    engine = Engine()
    forced = ForcedPolicy(EnginePolicy(engine), dict.fromkeys(ROLES, "no"))
    assert [r.text for r in forced.answer(ACTS, SEEDS)] == ["no"] * 5 and not engine.requests


def test_the_opposite_policy_turns_retrieval_round_and_nothing_else():
    class Mixed:
        def answer(self, acts, seeds):
            return [Completion(text, (1,), (2,), (0.0,)) for text in ("a; b", " Yes ", "no", "no", "terminate")]

    replies = OppositePolicy(Mixed()).answer(ACTS, SEEDS)
    assert [r.text for r in replies] == ["a; b", "no", "no", "yes", "terminate"]
    assert [bool(r.token_ids) for r in replies] == [act.role != "retrieve" for act in ACTS]


class Streaming(Engine):
    """Answers what it was given one request a step."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list = []

    def score(self, pairs): ...

    def sync(self, model, version): ...

    def close(self): ...

    def submit(self, request, done):
        self.open.append((request, done))

    def step(self):
        request, done = self.open.pop(0)
        done(self.generate([request])[0])

    def cancel(self):
        self.open.clear()


def test_a_desk_hands_acts_to_an_engine_that_streams():
    engine, replies = Streaming(), {}
    queue = open_queue(EnginePolicy(engine, 0.5))
    for i, (act, seed) in enumerate(zip(ACTS, SEEDS, strict=True)):
        queue.submit(act, seed, lambda reply, i=i: replies.__setitem__(i, reply))
    for n in range(1, 6):
        queue.step()
        assert list(replies) == list(range(n))
    assert [r.seed for r in engine.requests] == SEEDS and engine.requests[1].choices == ("yes", "no")


@pytest.mark.parametrize("engine", [Engine(), Streaming()], ids=["batches", "streams"])
def test_a_forced_decision_passes_the_desk_by(engine):
    replies: dict = {}
    queue = open_queue(ForcedPolicy(EnginePolicy(engine), {"retrieve": "no"}))
    for i, (act, seed) in enumerate(zip(ACTS, SEEDS, strict=True)):
        queue.submit(act, seed, lambda reply, i=i: replies.__setitem__(i, reply))
    assert {i: r.text for i, r in replies.items()} == {1: "no", 3: "no"}
    queue.step()
    queue.cancel()
    assert [r.prompt for r in engine.requests] == ["rewrite 0", "answer 2", "continue 4"][: len(replies) - 2]
