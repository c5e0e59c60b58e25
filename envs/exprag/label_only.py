"""Label-only SFT: the same base model learns to answer from the record, without experience and without a teacher.

A control of the warm-up, which imitates a rule with experience.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.exprag.baselines import in_words
from ghar.envs.exprag.episode import own_pieces
from ghar.envs.system import Example, SftExamples
from ghar.episode import Act, EpisodeGenerator

Play = Callable[[Any], EpisodeGenerator]  # a case's episode without experience: one question
RightReply = Callable[[Act, Case[Any]], str]


def label_pairs(play: Play, cases: Splits[Case[Any]], reply: RightReply, epochs: int) -> SftExamples:
    """Each training sample's question and the right reply; validation samples choose the weights that are kept."""

    def pairs(some: Sequence[Case[Any]]) -> tuple[Example, ...]:
        acts: list[Act] = [next(play(case)) for case in some]
        return tuple(Example(act.prompt, reply(act, case), act.choices) for act, case in zip(acts, some, strict=True))

    return SftExamples(pairs(cases.train), pairs(cases.valid), epochs=epochs)


def right_label(act: Act, case: Case[Any]) -> str:
    """The label, as the rule writes it."""
    return f"answer: {case.task.labels[case.label]}"


def right_options(act: Act, case: Case[Any]) -> str:
    """The right options of a question; where a reply may quote, the first piece of the right one."""
    if not act.choices:
        return in_words(case.label)
    return next(piece for piece in own_pieces(case.reads)[case.label.bit_length() - 1] if piece in act.choices)
