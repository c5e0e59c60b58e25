"""Policies that take no thought: what an environment pays them is what its score is worth less.

An audit of a benchmark of medical agents found that finishing silently won 41.7% of it (arXiv 2607.01470). These four
are put to every environment: one reply to everything, no reply at all, always looking up and answering as most patients
end, and the largest number that the prompt shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ghar.envs.system import System
from ghar.episode import Act
from ghar.llm.policy import FunctionPolicy, Policy

NUMBER = re.compile(r"\d+")
EAGER = ("yes", "continue", "act")  # choices that look something up, or go on, of whatever room
LONGEST = 200  # characters of a line that is asked for
LETTERS = "ABCDE"  # of options, where a task has no labels


@dataclass(frozen=True)
class Retrieves:
    """Looks up whatever can be looked up, everywhere, and asks for the longest line of the prompt; `final` gives the
    prediction for a prompt, `between` any other words."""

    decides: tuple[str, ...]
    final: Callable[[str], str]
    between: Callable[[str], str]

    def __call__(self, act: Act) -> str:
        if act.role in self.decides:
            answer = self.final(act.prompt)
            return f"answer: {answer}" if not act.choices else answer if answer in act.choices else act.choices[0]
        if act.choices:
            return next((choice for choice in act.choices if choice in EAGER), act.choices[0])
        return "0 1 2" if act.role == "metapaths" else self.between(act.prompt)


def longest_line(prompt: str) -> str:
    """What there is most of in a prompt: of a record, its list of codes."""
    return max(prompt.splitlines(), key=len)[:LONGEST]


def largest_number(prompt: str) -> str:
    """The largest whole number that stands in a prompt, "0" where there is none."""
    return str(max((int(number[:18]) for number in NUMBER.findall(prompt)), default=0))


def replies(system: System[Any]) -> list[str]:
    """Replies that could be right for many: each label and its number, bare and after "answer:"; of a task of options,
    each letter."""
    labels = system.task.labels
    bare = [*dict.fromkeys([*labels, *map(str, range(len(labels)))])] if system.report.answer is None else list(LETTERS)
    return [*bare, *(f"answer: {one}" for one in bare)]


def constant_policy(reply: str) -> Policy:
    """Give `reply` to everything."""
    return FunctionPolicy(lambda act: reply)


def trivial_policies(system: System[Any], best: str) -> dict[str, Policy]:
    """By name. best: of `replies`, the one that does best on training cases."""
    label = best.removeprefix("answer: ")
    return {
        "always the same reply": constant_policy(best),
        "never acting": constant_policy(""),
        "always retrieving": FunctionPolicy(Retrieves(system.decides, lambda prompt: label, longest_line)),
        "largest number seen": FunctionPolicy(
            Retrieves(
                system.decides, largest_number, lambda prompt: f"{longest_line(prompt)} {largest_number(prompt)}"
            )
        ),
    }


def trivial_decisions() -> dict[str, Callable[[np.ndarray, np.ndarray, Sequence[str]], list[int]]]:
    """The same of decisions that are numbers (envs/ghar/navigation.py), given observations [n, width] and masks
    [n, actions]: 0 refuses, ends or is content, so that always the same action is never acting."""
    return {
        "always the same action, 0": lambda seen, masks, agents: [int(mask.argmax()) for mask in masks],
        "always retrieving": lambda seen, masks, agents: [int(np.flatnonzero(mask)[:2][-1]) for mask in masks],
        "largest action allowed": lambda seen, masks, agents: [int(np.flatnonzero(mask)[-1]) for mask in masks],
    }
