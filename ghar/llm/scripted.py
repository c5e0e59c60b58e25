"""An engine that is a function: replies of the demo world and of tests, without a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ghar.episode import Completion
from ghar.llm.engine import Pair, Request


class ScriptedEngine:
    """Replies `reply(prompt)`, whatever the seed and however long; a word counts as one token in `Completion.usage`.

    Its replies have no token ids, so nothing is ever trained on them. ValueError for a reply that is none of the
    choices of its request, and for `score` and `sync`, which need a model.
    """

    scores = False

    def __init__(self, reply: Callable[[str], str]):
        self.reply = reply
        self.version = -1

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Completion:
        text = self.reply(request.prompt)
        if request.choices and text not in request.choices:
            raise ValueError(f"the script replied {text!r}, which is none of {request.choices}")
        return Completion(text, usage=(len(request.prompt.split()), len(text.split())))

    def score(self, pairs: Sequence[Pair]) -> list[tuple[float, ...]]:
        raise ValueError("a scripted engine has no model: it cannot score texts")

    def sync(self, model: Any, version: int) -> None:
        raise ValueError("a scripted engine has no model: it cannot take weights")

    def close(self) -> None:
        """Nothing to give back."""
