"""Policies around an engine: what they ask, and what they put in the place of a reply."""

from ghar.episode import Act, Completion
from ghar.llm.policy import EnginePolicy, ForcedPolicy, OppositePolicy

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
