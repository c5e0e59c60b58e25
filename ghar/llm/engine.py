"""What every engine offers: replies to prompts, with behaviour log-probabilities and a seed per request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ghar.episode import Completion

Pair = tuple[Sequence[int], Sequence[int]]  # token ids of a context and of what follows it


@dataclass(frozen=True)
class Request:
    """One prompt to continue. The reply depends on `seed` and the weights alone, never on what else is in the batch.

    choices: the reply is one of these; empty means free text of at most `max_tokens` tokens.
    temperature: 0 takes the most probable token.
    before, head: a reply, and words behind it, from which this one goes on; they count as its prompt.
    most, separator: the reply is a list of so many of the choices at most, each once, at least one.
    credentialed: whether the prompt may quote a patient that is not open to everyone; without a mark it counts so.
    """

    prompt: str
    max_tokens: int
    choices: tuple[str, ...] = ()
    seed: int = 0
    temperature: float = 1.0
    before: Completion | None = None
    head: str = ""
    most: int = 1
    separator: str = ", "
    credentialed: bool = field(default=True, kw_only=True, compare=False, repr=False)


class Engine(Protocol):
    """Answers requests in order. `version` numbers the weights it was given last (-1: none yet)."""

    version: int

    def generate(self, requests: Sequence[Request]) -> list[Completion]: ...

    def score(self, pairs: Sequence[Pair]) -> list[tuple[float, ...]]:
        """log p of each token of the second part given all before it, in nats, at temperature 1 without choices.

        Token ids and not text: the span that is scored is known by construction. ValueError for an empty context,
        because nothing predicts the first token.
        """
        ...

    def sync(self, model: Any, version: int) -> None:
        """Answer with the weights of `model` (a causal LM of transformers or peft) from now on."""
        ...

    def close(self) -> None:
        """Give memory and processes back; the engine is not asked again."""
        ...


def can_score(engine: Any) -> bool:
    """Whether an engine tells how probable a given text is; one that cannot says `scores = False`."""
    return hasattr(engine, "score") and getattr(engine, "scores", True)


def mark_of(engine: Any) -> bool:
    """Whether the texts of the job that opened an engine are of credentialed patients: what whoever opened it says."""
    return getattr(engine, "credentialed", True) is not False


@runtime_checkable
class CachingEngine(Engine, Protocol):
    """An engine whose own cache of prefixes can be read while it scores."""

    def score_cached(self, pairs: Sequence[Pair]) -> list[tuple[tuple[float, ...], int]]:
        """Of each pair what `score` gives, and how many tokens need not be read again."""
        ...


def score_shared(engine: Engine, pairs: Sequence[Pair]) -> list[tuple[float, ...]]:
    """`Engine.score` of pairs many of which have one context, which is read once where the engine can."""
    if not isinstance(engine, CachingEngine):
        return engine.score(pairs)
    first = {tuple(context): i for i, (context, _) in reversed(list(enumerate(pairs)))}
    order = sorted(range(len(pairs)), key=lambda i: first[tuple(pairs[i][0])] != i)  # those that fill the cache
    scores: list[tuple[float, ...]] = [()] * len(pairs)
    for part in (order[: len(first)], order[len(first) :]):
        for i, (score, _) in zip(part, engine.score_cached([pairs[i] for i in part]), strict=True):
            scores[i] = score
    return scores


@runtime_checkable
class StreamingEngine(Engine, Protocol):
    """An engine that takes requests while it works on others, so that no batch waits for its slowest member."""

    def submit(self, request: Request, done: Callable[[Completion], None]) -> None:
        """Queue a request; a later `step` calls `done` with its reply."""
        ...

    def step(self) -> None:
        """Work on all open requests for a moment (one token each, say)."""
        ...

    def cancel(self) -> None:
        """Forget every open request."""
        ...


def check_pairs(pairs: Sequence[Pair]) -> None:
    """ValueError for a pair that cannot be scored."""
    for number, (context, _) in enumerate(pairs):
        if not len(context):
            raise ValueError(f"pair {number} has an empty context: nothing predicts its first token")
