"""What every engine offers: replies to prompts, with behaviour log-probabilities and a seed per request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ghar.episode import Completion


@dataclass(frozen=True)
class Request:
    """One prompt to continue. The reply depends on `seed` and the weights alone, never on what else is in the batch.

    choices: the reply is one of these; empty means free text of at most `max_tokens` tokens.
    temperature: 0 takes the most probable token.
    """

    prompt: str
    max_tokens: int
    choices: tuple[str, ...] = ()
    seed: int = 0
    temperature: float = 1.0


class Engine(Protocol):
    """Answers requests in order. `version` counts the weights it was given."""

    version: int

    def generate(self, requests: Sequence[Request]) -> list[Completion]: ...
