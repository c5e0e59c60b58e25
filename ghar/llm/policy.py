"""Policies answer `Act`s: a language model behind an engine, or one whose decision is fixed for some roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ghar.episode import Act, Completion
from ghar.llm.decisions import Decisions, joined, next_request
from ghar.llm.engine import Engine, Request, StreamingEngine

Done = Callable[[Completion], None]


class Policy(Protocol):
    """Answers acts in order; `seeds` (one per act) are its only source of randomness."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]: ...


class RequestQueue(Protocol):
    """Where acts are handed in one by one; `step` works on them and calls `done` of those it could answer."""

    def submit(self, act: Act, seed: int, done: Done) -> None: ...

    def step(self) -> None: ...

    def cancel(self) -> None: ...


@runtime_checkable
class StreamingPolicy(Policy, Protocol):
    """A policy that can answer some acts while it works on others."""

    def queue(self) -> RequestQueue: ...


def open_queue(policy: Policy) -> RequestQueue:
    """The policy's own queue, or one that answers all that was handed in together."""
    return policy.queue() if isinstance(policy, StreamingPolicy) else _Batches(policy)


class _Batches:
    def __init__(self, policy: Policy):
        self.policy = policy
        self.waiting: list[tuple[Act, int, Done]] = []

    def submit(self, act: Act, seed: int, done: Done) -> None:
        self.waiting.append((act, seed, done))

    def step(self) -> None:
        batch, self.waiting = self.waiting, []
        replies = self.policy.answer([act for act, _, _ in batch], [seed for _, seed, _ in batch])
        for (_, _, done), reply in zip(batch, replies, strict=True):
            done(reply)

    def cancel(self) -> None:
        self.waiting = []


class EnginePolicy:
    """A language model: every act becomes a request, sampled at `temperature` (0: most probable tokens).

    decisions: "chosen" makes every reply among an act's options readable (`ghar.llm.decisions`).
    """

    def __init__(self, engine: Engine, temperature: float = 1.0, decisions: Decisions = "free"):
        self.engine = engine
        self.temperature = temperature
        self.decisions: Decisions = decisions

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        parts_of: list[list[Completion]] = [[] for _ in acts]
        waiting = {i: self._next(act, seeds[i], ()) for i, act in enumerate(acts)}
        while asked := {i: request for i, request in waiting.items() if request is not None}:
            for i, reply in zip(asked, self.engine.generate(list(asked.values())), strict=True):
                parts_of[i].append(reply)
            waiting = {i: self._next(acts[i], seeds[i], parts_of[i]) for i in asked}
        return [joined(act, parts) for act, parts in zip(acts, parts_of, strict=True)]

    def queue(self) -> RequestQueue:
        """The engine's own queue, where it has one."""
        return _Queue(self, self.engine) if isinstance(self.engine, StreamingEngine) else _Batches(self)

    def _next(self, act: Act, seed: int, parts: Sequence[Completion]) -> Request | None:
        return next_request(act, seed, self.temperature, parts, self.decisions)


class _Queue:
    def __init__(self, policy: EnginePolicy, engine: StreamingEngine):
        self.next = policy._next
        self.engine = engine

    def submit(self, act: Act, seed: int, done: Done) -> None:
        self._ask(act, seed, done, ())

    def _ask(self, act: Act, seed: int, done: Done, parts: tuple[Completion, ...]) -> None:
        """Ask for the next part of a reply, or hand the whole of it out."""
        request = self.next(act, seed, parts)
        if request is None:
            done(joined(act, parts))
        else:
            self.engine.submit(request, lambda reply: self._ask(act, seed, done, (*parts, reply)))

    def step(self) -> None:
        self.engine.step()

    def cancel(self) -> None:
        self.engine.cancel()


@dataclass(frozen=True)
class FunctionPolicy:
    """Reply to each act by a function of it: a rule, a scripted teacher or a constant, without a model."""

    reply: Callable[[Act], str]

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        """One completion an act; the seeds are not used."""
        return [Completion(self.reply(act)) for act in acts]


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

    def queue(self) -> RequestQueue:
        """The inner policy's queue, passed by where the reply is fixed."""
        return _Passing(self.decisions, open_queue(self.inner))


class _Passing:
    def __init__(self, decisions: Mapping[str, str], inner: RequestQueue):
        self.decisions = decisions
        self.inner = inner

    def submit(self, act: Act, seed: int, done: Done) -> None:
        if act.role in self.decisions:
            done(Completion(self.decisions[act.role]))
        else:
            self.inner.submit(act, seed, done)

    def step(self) -> None:
        self.inner.step()

    def cancel(self) -> None:
        self.inner.cancel()


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
