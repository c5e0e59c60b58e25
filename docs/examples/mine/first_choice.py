"""An engine: whatever answers prompts. This one takes the first choice, and says 0 where it has none."""

from collections.abc import Sequence
from typing import Any

from ghar.config import Config
from ghar.episode import Completion
from ghar.llm.engine import Pair, Request


class FirstChoice:
    """Answers without a model."""

    scores = False  # it cannot say how probable a text is
    version = -1  # it is given no weights

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """One reply a request, in order. request.prompt is the text, request.choices what the reply must be one of."""
        return [Completion(request.choices[0] if request.choices else "0") for request in requests]

    def score(self, pairs: Sequence[Pair]) -> list[tuple[float, ...]]:
        raise ValueError("this engine scores no texts")

    def sync(self, model: Any, version: int) -> None:
        raise ValueError("this engine takes no weights")

    def close(self) -> None:
        """Give back what it holds."""


def build(config: Config) -> FirstChoice:
    """The engine of a run."""
    return FirstChoice()
