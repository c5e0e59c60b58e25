"""Questions for the baselines: whose right answers have a word of their own, or the words of their question."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ghar.data.tasks.question_files import ChoiceQuestion
from ghar.data.tasks.samples import TextSample
from ghar.data.tasks.splits import Splits
from ghar.envs.baselines.questions import Question

WORDS = [f"w{chr(97 + i)}{chr(97 + j)}" for i in range(6) for j in range(5)]


def question(number: int, text: str, options: Sequence[str], answer: int) -> Question:
    return TextSample(f"q{number}", number, ChoiceQuestion(f"q{number}", text, tuple(options), answer), answer)


def exam(count: int, first: int, kind: str, options: int = 4) -> tuple[Question, ...]:
    """Questions of four words. kind: "wording", right options hold the word "always"; "question", a word of the
    question; "noise", nothing tells them."""
    rng, made = np.random.default_rng(first), []
    for i in range(count):
        words = rng.permutation(WORDS)
        own, answer = [f"{words[2 * k]} {words[2 * k + 1]}" for k in range(options)], int(rng.integers(options))
        text = " ".join(words[20:24])
        if kind == "wording":
            own[answer] += " always"
        elif kind == "question":
            own[answer] += f" {words[20]}"
            own[(answer + 1) % options] += f" {words[25]}"
        made.append(question(first + i, text, own, answer))
    return tuple(made)


def exam_splits(kind: str, options: int = 4) -> Splits[Question]:
    return Splits(exam(80, 1000, kind, options), exam(30, 2000, kind, options), exam(40, 3000, kind, options))
