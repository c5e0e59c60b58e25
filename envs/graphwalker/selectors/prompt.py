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
their first words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ghar.data.cohort import Sample, Stay, Task
from ghar.data.tasks.question_files import ChoiceQuestion
from ghar.data.tasks.samples import TimeSeries
from ghar.data.views.visits import TextView
from ghar.envs.graphwalker.selectors.protocol import Patient
from ghar.envs.graphwalker.series_text import UNITS, USUAL, number
from ghar.errors import BadInput
from ghar.llm.chat_template import CONTENT, render
from ghar.llm.model_facts import facts_of
from ghar.llm.prompts import heads_of, quoted
from ghar.llm.tokens import make_prefix_free
from ghar.sanitize import plain

SHORTEST = 16  # tokens a record must be allowed at least
END = "\n\n"  # of an example
PARTS = heads_of("Example:", "Patient:", "Shared:", "Answer:")  # no line of a record may begin as these do


@dataclass(frozen=True, eq=False)
class Prompt:
    """Pieces of one task for one tokenizer. head: ids. answers: ids of each label in its place. room: tokens that a
    patient's piece may have, so that `k` examples and the patient fit into the context. opening: the head's text.
    close: ids between the patient and the answer, the end of the user's message."""

    task: Task
    tokenizer: Any
    head: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    room: int
    opening: str = ""
    close: tuple[int, ...] = ()

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
        return Patient(*about, whole.text, *ids(whole.text, sample.label), None, dropped)

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
        return Patient(*about, text, example, asked, series, dropped)

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(plain(text, self.tokenizer), add_special_tokens=False))


def make_prompt(task: Task, head: str, tokenizer: Any, context: int, k: int, chat: bool = True) -> Prompt:
    """The prompt of a task for models that read `context` tokens. BadInput when the context is too small for k.

    head: what stands before any case (`head_text`, `question_head`). chat: as a user's message where the tokenizer has
    a template for one; False: the text alone.
    """

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    facts = facts_of(tokenizer)
    before, behind, blank = "", "", " "
    if chat and facts.chat:
        before, _, behind = render(tokenizer, ("user", CONTENT), prompt=True).partition(CONTENT)
        blank = ""
    answers = make_prefix_free([ids(blank + label) for label in task.labels], facts.end)
    opening, close = (*facts.begin, *ids(before + head)), ids(behind) if behind else ()
    room = (context - len(opening) - len(close) - max(map(len, answers))) // (k + 1)
    if room < SHORTEST:
        raise BadInput(
            f"A context of {context} tokens leaves each of {k} examples and the patient {room} tokens: lower "
            "system.k or use a model with a longer context."
        )
    return Prompt(task, tokenizer, opening, answers, room, head, close)


def example_text(text: str, label: str) -> str:
    """A case as an example with its answer."""
    return f"Example:\n{quoted(text, PARTS)}\nAnswer: {label}{END}"


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
