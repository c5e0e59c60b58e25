"""Medical questions as cases of any system that reads a record as text and retrieves by words.

A question and its options stand where a record stands, and what they mention of the run's graph where a visit's
conditions and drugs stand. A system that reads codes, visits or events is refused (`Records.source`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ghar.data.sections import sentences
from ghar.data.tasks.question_files import ChoiceQuestion
from ghar.data.tasks.samples import TextSample
from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.records import Records
from ghar.envs.system import Reader, System, Variant
from ghar.llm.policy import FunctionPolicy

ASKING = 16  # words that are never left out of the sentence that asks
USUAL = "usual"  # the trivial baseline: the most frequent answer of the training questions


def question_cases(records: Records, reader: Reader) -> Splits[Case]:
    """The questions, within env.history_tokens as `reader` counts, with what they mention of the run's graph."""
    return _cases(records, reader, lambda question: records.mentions.topics_in(question.shown()))


def plain_question_cases(records: Records, reader: Reader) -> Splits[Case]:
    """The same for a system without a graph."""
    return _cases(records, reader, lambda question: ())


def _cases(records: Records, reader: Reader, topics: Callable[[ChoiceQuestion], tuple[str, ...]]) -> Splits[Case]:
    task, budget = records.texts.task, records.config.env.history_tokens
    closed = records.provenance().credentialed

    def cases(questions: Sequence[TextSample[ChoiceQuestion]]) -> tuple[Case, ...]:
        return tuple(
            Case(
                one.sample_id, one.subject_id, one.subject_id, cut_question(one.text, budget, reader.count),
                topics(one.text), task, one.label, credentialed=closed,
            )
            for one in questions
        )  # fmt: skip

    splits = records.texts.splits
    return Splits(cases(splits.train), cases(splits.valid), cases(splits.test))


def cut_question(question: ChoiceQuestion, budget: int, count: Callable[[str], int]) -> str:
    """The question and its options in at most `budget` tokens: its first words are left out where it is too long."""
    return with_last_words(question, budget, count).shown()


def with_last_words(question: ChoiceQuestion, budget: int, count: Callable[[str], int]) -> ChoiceQuestion:
    """The question with as many of its last words as fit into `budget` tokens beside its options; of its last sentence,
    which asks, `ASKING` words stand in any case."""
    words, asking = question.text.split(), (sentences(question.text) or [""])[-1].split()
    low, high = 0, max(0, len(words) - min(len(asking), ASKING))
    if count(question.shown()) <= budget:
        return question
    while low < high:  # the fewest words to drop
        dropped = (low + high) // 2
        fits = count(_without(question, words, dropped).shown()) <= budget
        low, high = (low, dropped) if fits else (dropped + 1, high)
    return _without(question, words, low)


def _without(question: ChoiceQuestion, words: Sequence[str], dropped: int) -> ChoiceQuestion:
    return replace(question, text=" ".join(words[dropped:]))


def with_usual(made: System[Any], direct: object) -> System[Any]:
    """`made` with the variant `usual`, which gives every question the most frequent answer of the training questions.

    direct: `Variant.spec` of an answer from the question alone, which it plays without a model.
    """
    return made.adapt(lambda one: _with_usual(one, direct))


def _with_usual(made: System[Any], direct: object) -> System[Any]:
    counts = Counter(case.label for case in made.cases.train)
    answer = made.task.labels[max(sorted(counts), key=lambda label: counts[label], default=0)]
    policy = FunctionPolicy(lambda act: f"answer: {answer}")
    return made.with_trivial(Variant(USUAL, "Usual answer", direct, USUAL), policy)
