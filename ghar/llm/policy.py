"""Policies answer `Act`s: a language model behind an engine, or one whose decision is fixed for some roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ghar.episode import Act, Completion
from ghar.llm.engine import Engine, Request


class Policy(Protocol):
    """Answers acts in order; `seeds` (one per act) are its only source of randomness."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]: ...


class EnginePolicy:
    """A language model: every act becomes a request, sampled at `temperature` (0: most probable tokens)."""

    def __init__(self, engine: Engine, temperature: float = 1.0):
        self.engine = engine
        self.temperature = temperature

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        requests = [
            Request(act.prompt, act.max_tokens, act.choices, seed, self.temperature)
            for act, seed in zip(acts, seeds, strict=True)
        ]
        return self.engine.generate(requests)


class ForcedPolicy:
    """Replies `decisions[role]` where given and asks `inner` otherwise; forced replies are never trained on."""

    def __init__(self, inner: Policy, decisions: Mapping[str, str]):
        self.inner = inner
        self.decisions = decisions

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        free = [i for i, act in enumerate(acts) if act.role not in self.decisions]
        answered = self.inner.answer([acts[i] for i in free], [seeds[i] for i in free]) if free else []
        replies = {i: reply for i, reply in zip(free, answered, strict=True)}
        return [replies[i] if i in replies else Completion(self.decisions[act.role]) for i, act in enumerate(acts)]


class OppositePolicy:
    """`inner` with every retrieve-or-not decision turned round: the opposite decisions of Eq. 15's negative paths."""

    def __init__(self, inner: Policy):
        self.inner = inner

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        replies = self.inner.answer(acts, seeds)
        return [
            Completion("no" if reply.text.strip().lower() == "yes" else "yes") if act.role == "retrieve" else reply
            for act, reply in zip(acts, replies, strict=True)
        ]
