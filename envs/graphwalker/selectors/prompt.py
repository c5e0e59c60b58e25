"""The one prompt of all selectors, in pieces of token ids: task and legend, examples, the patient, a label.

The order is fixed: the head, then each example with its answer, then the patient, which ends where the answer begins.
Every piece is tokenised on its own, so a prompt of other examples has the same ids for the rest, its parts are known by
construction, and engines find what prompts share. Units and usual ranges are said once, in the head. The layout follows
Appendix K of GraphWalker; the wording is ours.

Eq. 8 takes the cross-entropy of the full prompt, so a prompt is scored in the form in which it is asked: as a message
of the user where the model has a chat template. The released code scores the text without that wrapper, and so does
system.variant=released.

A record longer than its share of the context loses its oldest steps, the same whatever it is shown beside; how many is
kept in `Patient.dropped`. Lists of visits, which can be such a case too, lose their oldest visits, medical questions
their first words, clinical texts and their summaries their last ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ghar.data.cohort import Sample, Stay, Task
from ghar.data.tasks.question_files import ChoiceQuestion
from ghar.data.tasks.samples import TimeSeries
from ghar.data.tasks.summary_files import LABEL, SummarisedText
from ghar.data.views.visits import TextView
from ghar.envs.graphwalker.selectors.protocol import Patient
from ghar.envs.graphwalker.series_text import UNITS, USUAL, number
from ghar.envs.summaries import cut_text
from ghar.errors import BadInput
from ghar.llm.chat_template import CONTENT, render
from ghar.llm.model_facts import facts_of
from ghar.llm.prompts import heads_of, quoted
from ghar.llm.tokens import make_prefix_free
from ghar.sanitize import plain

SHORTEST = 16  # tokens a record must be allowed at least
SHARE = Fraction(1, 4)  # of the tokens of a text, for its summary in an example
END = "\n\n"  # of an example
PARTS = heads_of("Example:", "Patient:", "Shared:", "Answer:")  # no line of a record may begin as these do


@dataclass(frozen=True, eq=False)
class Prompt:
    """Pieces of one task for one tokenizer. head: ids. answers: ids of each label in its place. room: tokens that a
    patient's piece may have, so that `k` examples, the patient and the reply fit into the context. opening: the head's
    text. close: ids between the patient and the answer, the end of the user's message. blank: what stands between the
    two as text."""

    task: Task
    tokenizer: Any
    head: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    room: int
    opening: str = ""
    close: tuple[int, ...] = ()
    blank: str = " "

    def patient(self, sample: Sample[TimeSeries], estimate: str | None = None) -> Patient:
        """A sample as pieces, its oldest steps left out where it is too long.

        estimate: an encoder's prediction, printed into the record. Raises BadInput when not one step fits.
        """
        about = sample.sample_id, sample.subject_id, sample.label
        return self._case(about, lambda n: table(sample, n, estimate), len(sample.history.hours), sample.history)

    def question(self, question: ChoiceQuestion, number: int) -> Patient:
        """A medical question as pieces, the first words of its case left out where it is too long.

        number: what stands for a patient's. Raises BadInput when its last word and the options do not fit.
        """
        words = question.text.split()

        def rest(dropped: int) -> str:
            return replace(question, text=" ".join(words[dropped:])).shown()

        return self._case((question.question_id, number, question.answer), rest, len(words), None)

    def text(self, text: SummarisedText, number: int, budget: int, count: Callable[[str], int]) -> Patient:
        """A clinical text and its summary as pieces, the last words of each left out where it is too long.

        budget: tokens of the text, as `count` counts them. Its summary in an example has at most `SHARE` of them, or of
        `room` if that is less. The text leaves this share free, however long its own summary is: so no word of the
        summary, nor its length, is in `Patient.asked`. number: what stands for a patient's. Raises BadInput when not a
        word of each fits.
        """
        share = int(SHARE * min(budget, self.room))
        source = cut_text(text.source, budget, count)
        source = cut_text(source, self.room - share, lambda part: len(self._ids(asked_text(part))))
        answer = cut_text(text.summary, share, count)
        answer = cut_text(answer, self.room, lambda part: len(self._ids(example_text(source, part))))
        if not source or not answer:
            raise BadInput(
                f"Sample {text.text_id}: one word of the text and one of its summary need more than the {budget} "
                f"tokens of env.history_tokens or the {self.room} that the model's context leaves a text: raise the "
                "first, lower system.k or use a model with a longer context."
            )
        pieces = self._ids(example_text(source, answer)), self._ids(asked_text(source))
        dropped = len(text.source.split()) - len(source.split())
        return Patient(
            text.text_id, number, LABEL, source, *pieces, None, dropped,
            answer=answer, answer_ids=self._ids(self.blank + answer),
        )  # fmt: skip

    def visits(self, sample: Sample, view: Callable[[int], TextView], budget: int) -> Patient:
        """A list of visits as pieces; view: its text within so many tokens, at most `budget`.

        Raises BadInput when not even a visit without codes fits.
        """
        about, ids = (sample.sample_id, sample.subject_id, sample.label), self._pieces
        whole = view(budget)
        if max(map(len, ids(whole.text, sample.label))) > self.room:
            fewer = bisect_left(range(budget), True, key=lambda n: self._fits(view, budget - n, sample.label))
            whole = view(budget - fewer)
        dropped = whole.dropped_visits + whole.dropped_codes
        pieces = ids(whole.text, sample.label)
        return Patient(*about, whole.text, *pieces, None, dropped, answer=self.task.labels[sample.label])

    def _fits(self, view: Callable[[int], TextView], budget: int, label: int) -> bool:
        """Whether the text of that budget fits; True for a budget that allows no text, which ends the search."""
        try:
            return max(map(len, self._pieces(view(budget).text, label))) <= self.room
        except BadInput:
            return True

    def _pieces(self, text: str, label: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """`Patient.example` and `Patient.asked`."""
        return self._ids(example_text(text, self.task.labels[label])), self._ids(asked_text(text))

    def _case(
        self, about: tuple[str, int, int], rest: Callable[[int], str], parts: int, series: TimeSeries | None
    ) -> Patient:
        """rest: the text without its first n of `parts` parts. about: sample, subject, label."""

        def pieces(dropped: int) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
            text = rest(dropped)
            return text, *self._pieces(text, about[2])

        dropped = bisect_left(range(parts), True, key=lambda n: max(map(len, pieces(n)[1:])) <= self.room)
        if dropped == parts:
            what = "one step of its series" if series is not None else "one word and the options"
            raise BadInput(
                f"Sample {about[0]}: {what} needs more than the {self.room} tokens that the model's context leaves a "
                "patient: lower system.k or use a model with a longer context."
            )
        text, example, asked = pieces(dropped)
        return Patient(*about, text, example, asked, series, dropped, answer=self.task.labels[about[2]])

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(plain(text, self.tokenizer), add_special_tokens=False))


def make_prompt(
    task: Task,
    head: str,
    tokenizer: Any,
    context: int,
    k: int,
    chat: bool = True,
    reply: int | None = None,
    behind: int = 0,
) -> Prompt:
    """The prompt of a task for models that read `context` tokens. BadInput when the context is too small for k.

    head: what stands before any case (`head_text`, `question_head`). chat: as a user's message where the tokenizer has
    a template for one; False: the text alone. reply: tokens that a free reply may have; None where it is a label.
    behind: tokens that an episode says and hears after the patient, besides the answer.
    """

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    facts = facts_of(tokenizer)
    before, after, blank = "", "", " "
    if chat and facts.chat:
        before, _, after = render(tokenizer, ("user", CONTENT), prompt=True).partition(CONTENT)
        blank = ""
    answers = make_prefix_free([ids(blank + label) for label in task.labels], facts.end)
    opening, close = (*facts.begin, *ids(before + head)), ids(after) if after else ()
    longest = max(map(len, answers)) if reply is None else reply
    room = (context - len(opening) - len(close) - longest - behind) // (k + 1)
    if room < SHORTEST:
        raise BadInput(
            f"A context of {context} tokens leaves each of {k} examples and the patient {room} tokens: lower "
            "system.k or use a model with a longer context."
        )
    return Prompt(task, tokenizer, opening, answers, room, head, close, blank)


def example_text(text: str, answer: str) -> str:
    """A case as an example with its answer."""
    return f"Example:\n{quoted(text, PARTS)}\nAnswer: {quoted(answer, PARTS, at_begin=False)}{END}"


def asked_text(text: str) -> str:
    """A case as the one in question, up to the place of the answer."""
    return f"Patient:\n{quoted(text, PARTS)}\nAnswer:"


def head_text(task: Task, features: Sequence[str], stay: Stay = "hospital") -> str:
    """What is said before any patient. stay: what the records are of, from its beginning."""
    lines = [
        f"Records of {stay} stays. Each line names what was measured and lists, for each time, the last value measured "
        "by then, NaN where there is none.",
        f"Question: {task.question}",
        f"Possible answers: {', '.join(task.labels)}",
        "What is measured (unit; usual in adults at rest):",
    ]
    for code in features:
        about = "; ".join(part for part in (UNITS.get(code), USUAL.get(code)) if part)
        lines.append(f"{name_of(code)}{f' ({about})' if about else ''}")
    return "\n".join(lines) + "\n\n"


def visits_head(task: Task) -> str:
    """What is said before any list of visits."""
    return f"Records of patients, visit by visit. {task.question}\nPossible answers: {', '.join(task.labels)}\n\n"


def question_head(task: Task) -> str:
    """What is said before any medical question."""
    return f"Cases from medical examinations. {task.question}\nPossible answers: {', '.join(task.labels)}\n\n"


def summary_head(task: Task) -> str:
    """What is said before any clinical text."""
    return (
        f"Clinical texts, each with its summary by a clinician. {task.question} Use only what the last text says, and "
        "reply with its summary alone.\n\n"
    )


def table(sample: Sample[TimeSeries], dropped: int = 0, estimate: str | None = None) -> str:
    """The record from step `dropped` on; a feature that was never measured in it has no line."""
    lines = ["hours: " + " ".join(number(hour) for hour in sample.history.hours[dropped:])]
    for i, code in enumerate(sample.history.features):
        values = sample.history.values[dropped:, i]
        if not np.isnan(values).all():
            lines.append(f"{name_of(code)}: " + " ".join(number(value) for value in values))
    if estimate is not None:
        lines.append(f"estimate of a trained model: {estimate}")
    return "\n".join(lines)


def name_of(code: str) -> str:
    """The name of a measurement, its code without the vocabulary."""
    return code.rpartition("/")[2]
