"""DischargeQA: questions about a discharge with options, from discharge summaries and the tables (section 4, EXPRAG).

diagnosis    which of these were made at discharge?        shown: the clinical profile
medication   which of these does the patient take home?    shown: the clinical profile and the stay
instruction  which advice was given?                       shown: the clinical profile and the stay

Right options are what the report lists. Wrong ones are, for diagnosis and medication, what the tables have of the stay
and the patient's earlier stays and the report does not list; overlap is found by rule (`discharge_items.same`) where
the paper asks GPT-4o; all names are in one style, so that none betrays where it is from. For instruction, one of four
sets of advice is right; in the others its own half, the pieces that fewest patients are given, is exchanged for the own
half of another patient's advice, where the paper has GPT-4o permute the key points. So any two sets have the usual half
in common and no more, and each other half was given to one patient as a whole: nothing in the options tells which one
is right.

A stay is left out, by named and counted rules: without a report or a known end, with fewer or more rows than `rows` of
diagnoses, medications or procedures (the paper: 3 to 40), without the sections that are asked about, with nothing right
or everything right, and with under four pieces of advice.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from ghar.data.cohort import Cohort, Task
from ghar.data.headings import HEAD
from ghar.data.readers.notes import Notes
from ghar.data.sections import PHASES, NoteSection, background, split_sections, unknown_headings
from ghar.data.visit_codes import KIND_NAMES, kinds_of
from ghar.envs.case import Case
from ghar.envs.exprag import discharge_items
from ghar.envs.exprag.discharge_items import POINTS, same, styled
from ghar.envs.exprag.options import LETTERS
from ghar.errors import BadInput
from ghar.progress import track

PREFIX = "dischargeqa_"  # of the names of its tasks
Kind = Literal["diagnosis", "medication", "instruction"]
SECTIONS = {  # what was known when the question came up
    "diagnosis": PHASES["clinical profile"],
    "medication": PHASES["clinical profile"] + PHASES["in hospital"],
    "instruction": PHASES["clinical profile"] + PHASES["in hospital"],
}
ASKED = {  # the question, the kind of table it is about, its section of the report
    "diagnosis": ("Which of these diagnoses were made at discharge?", "diagnoses", "discharge diagnosis"),
    "medication": ("Which of these medications was the patient told to take at home?", "medications",
                   "discharge medications"),
    "instruction": ("Which of these sets of instructions was the patient given at discharge?", "procedures",
                    "discharge instructions"),
}  # fmt: skip
LONGEST = 10  # words of an option from the tables
SETS = 4  # of advice, one of them right
TRIES = 50  # to draw another patient's advice, each
MOST_NAMED = 5  # unknown headings
ITEMS: Mapping[str, Callable[[tuple[NoteSection, ...]], tuple[str, ...]]] = {
    "diagnosis": discharge_items.diagnoses,
    "medication": discharge_items.medications,
    "instruction": discharge_items.instructions,
}


@dataclass(frozen=True)
class DischargeQuestion:
    """One question. Sets of options are whole numbers: bit i stands for options[i], shown as LETTERS[i].

    answer: the right options. single: exactly one is right and one may be chosen. background: what was known.
    Raises BadInput for an option list in which nothing or everything is right, or which has too many options.
    """

    sample_id: str
    subject_id: int
    visit_id: int
    kind: Kind
    options: tuple[str, ...]
    answer: int
    background: str
    credentialed: bool = field(default=True, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        every = (1 << len(self.options)) - 1
        if not 0 < self.answer < every:
            what = "every option is right" if self.answer == every else "no option is right"
            raise BadInput(f"Question {self.sample_id}: {what}, so there is nothing to choose: leave the question out.")
        if len(self.options) > len(LETTERS) or (self.single and self.answer & (self.answer - 1)):
            wrong = "has more options than letters" if len(self.options) > len(LETTERS) else "has several right ones"
            raise BadInput(f"Question {self.sample_id} {wrong}: correct its options.")

    @property
    def single(self) -> bool:
        return self.kind == "instruction"

    @property
    def asked(self) -> str:
        """The question itself."""
        return ASKED[self.kind][0]

    @property
    def text(self) -> str:
        """All that a reader is shown: what was known, the question, the options."""
        return f"{self.background}\n\n{self.asked}\n{self.menu}"

    @property
    def label(self) -> int:
        return self.answer

    @property
    def menu(self) -> str:
        """The options, one a line."""
        return "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, self.options, strict=False))


def question_case(question: DischargeQuestion) -> Case[DischargeQuestion]:
    """A question as an episode reads it. Its label is the set of right options."""
    about = question.sample_id, question.subject_id, question.visit_id
    task = Task(f"{PREFIX}{question.kind}", question.asked, ())
    return Case(*about, question.text, (), task, question.answer, question, credentialed=question.credentialed)


def letters(answer: int) -> str:
    """A set of options as its letters: 5 is "AC"."""
    return "".join(letter for i, letter in enumerate(LETTERS) if answer >> i & 1)


def build_questions(
    cohort: Cohort, notes: Notes, kind: Kind, *, rows: tuple[int, int], words: int, seed: int
) -> tuple[list[DischargeQuestion], dict[str, int]]:
    """Questions by patient and time, and how many stays each rule left out.

    rows: fewest and most rows of each table; words: budget of the background. The order of options is
    drawn from `seed` and the stay. The counts name the unknown headings, whose text no question shows. Raises BadInput
    when no stay is left.
    """
    counts: Counter[str] = Counter(stays=cohort.visits.height)
    stays = _eligible(cohort, notes, rows, counts)
    each = track(stays, "Cut summaries at their headings", unit="summaries")
    cut = {stay: split_sections(notes.text(stay)) for stay in each}
    items = {stay: ITEMS[kind](sections) for stay, sections in cut.items()}
    given = [advice for advice in items.values() if advice] if kind == "instruction" else []
    usual = Counter(point for advice in given for point in advice)
    counts.update(_unknown([notes.text(stay) for stay in stays]))
    earlier, names = _earlier_stays(cohort), cohort.names()
    credentialed, questions = cohort.credentialed or notes.credentialed, []
    for stay, sections in cut.items():
        shuffle = random.Random(f"{seed} {stay} {kind}")
        if all(section.heading == HEAD for section in sections):
            made = "no_sections"
        elif kind == "instruction":
            made = _advice_options(items[stay], given, usual, shuffle)
        else:
            made = _listed_options(items[stay], _table_names(cohort, names, earlier[stay], kind), shuffle)
        if isinstance(made, str):
            counts[f"left_out.{made}"] += 1
            continue
        options, answer = made
        context = background(sections, SECTIONS[kind], words)
        subject = earlier[stay][0]
        about = f"{stay}-{kind}", subject, stay, kind
        questions.append(DischargeQuestion(*about, options, answer, context, credentialed=credentialed))
    counts["questions"] = len(questions)
    if not questions:
        reasons = ", ".join(f"{rule} {n}" for rule, n in counts.items() if rule.startswith("left_out."))
        raise BadInput(
            f"No stay of the {cohort.name} makes a {kind} question ({reasons}): widen system.fewest_rows={rows[0]}, "
            f"system.most_rows={rows[1]}."
        )
    return questions, dict(counts)


def count_leaked_options(questions: Sequence[DischargeQuestion]) -> dict[str, int]:
    """Audit a split: count right options, those that the prompt's text names word for word, and questions with one.

    A report has no times, so that what it says cannot be held against the hour at which it was known.
    """
    texts = [" ".join(question.background.lower().split()) for question in questions]
    named = [
        [option.lower() in text for i, option in enumerate(question.options) if question.answer >> i & 1]
        for question, text in zip(questions, texts, strict=True)
    ]
    return {
        "right options": sum(map(len, named)),
        "right options that the text shown names": sum(map(sum, named)),
        "questions whose text names a right option": sum(map(any, named)),
    }


def _eligible(cohort: Cohort, notes: Notes, rows: tuple[int, int], counts: Counter[str]) -> list[int]:
    """Stays with a report and an end, and with a number of rows of each kind within `rows`, in the cohort's order."""
    kinds = cohort.codes.select("code", kind=kinds_of(cohort.codes)).drop_nulls().lazy()
    row_counts = cohort.scan().select("visit_id", "code").join(kinds, on="code").group_by("visit_id").agg(
        (pl.col("kind") == kind).sum().alias(kind) for kind in KIND_NAMES
    )  # fmt: skip
    ended = cohort.visits.lazy().select("visit_id", ended=pl.col("end").is_not_null())
    table = ended.join(row_counts, on="visit_id", how="left", maintain_order="left").fill_null(0).collect()
    is_documented = table["visit_id"].is_in(notes.visit_id.tolist()) & table["ended"]
    enough = table.select(pl.all_horizontal(pl.col(KIND_NAMES).is_between(*rows))).to_series()
    counts["left_out.no_report"] = int((~is_documented).sum())
    counts["left_out.rows"] = int((is_documented & ~enough).sum())
    return table.filter(is_documented & enough)["visit_id"].to_list()


def _earlier_stays(cohort: Cohort) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Stay -> patient, and the stay with those before it, newest first."""
    stays_of, before, last = {}, (), None
    for subject, stay in cohort.visits.select("subject_id", "visit_id").iter_rows():
        before = (stay, *before) if subject == last else (stay,)
        stays_of[stay], last = (subject, before), subject
    return stays_of


def _table_names(cohort: Cohort, names: Mapping[str, str], stays: tuple[int, tuple[int, ...]], kind: Kind) -> list[str]:
    """What the tables have of the stay and those before it, newest first, by name, long ones cut."""
    visits = cohort.shown.visits
    codes = [code for stay in stays[1] for code in getattr(visits[stay], ASKED[kind][1])]
    return [" ".join(names.get(code, code).split()[:LONGEST]) for code in codes]


def _listed_options(
    right: Sequence[str], table: Sequence[str], shuffle: random.Random
) -> tuple[tuple[str, ...], int] | str:
    """Options and right ones, or the rule that leaves the stay out."""
    if not right:
        return "nothing_right"
    right = list(dict.fromkeys(styled(name) for name in right))
    wrong: list[str] = []
    for name in map(styled, table):
        if not any(same(name, other) for other in (*right, *wrong)):
            wrong.append(name)
    if not wrong:
        return "everything_right"
    options = [*right, *wrong][: len(LETTERS)]
    if len(right) >= len(LETTERS):
        return "too_many_right"
    return _shuffled(options, set(right), shuffle)


def _advice_options(
    right: Sequence[str], given: Sequence[Sequence[str]], usual: Mapping[str, int], shuffle: random.Random
) -> tuple[tuple[str, ...], int] | str:
    """given: the advice of every stay, from which the exchanged halves are drawn. usual: how many stays are given each
    piece."""
    if len(right) < POINTS:
        return "little_advice"
    places = _own_half(right, usual)
    others: list[list[str]] = []
    for _ in range(TRIES * (SETS - 1)):
        advice = shuffle.choice(given)
        own = [advice[place] for place in _own_half(advice, usual)][: len(places)]
        existing = [*right, *(point for other in others for point in other)]
        if len(own) == len(places) and not any(same(point, other) for point in own for other in existing):
            others.append(own)
        if len(others) == SETS - 1:
            break
    else:
        return "no_other_advice"
    sets = [list(right) for _ in range(SETS)]
    for own, other in zip(sets[1:], others, strict=True):
        for place, point in zip(places, other, strict=True):
            own[place] = point
    texts = [" ".join(one) for one in sets]
    return _shuffled(texts, {texts[0]}, shuffle)


def _own_half(advice: Sequence[str], usual: Mapping[str, int]) -> list[int]:
    """Places of the half of it that fewest stays are given, in order."""
    rarest = sorted(range(len(advice)), key=lambda place: (usual[advice[place]], place))
    return sorted(rarest[: len(advice) // 2])


def _unknown(texts: Sequence[str]) -> dict[str, int]:
    """How many headings are unknown, and how often the most frequent ones stand in a report."""
    headings = Counter(name for text in texts for name in unknown_headings(text))
    named = {f"unknown heading {name!r}": n for name, n in headings.most_common(MOST_NAMED)}
    return {"unknown_headings": headings.total(), **named} if headings else {}


def _shuffled(options: list[str], right: set[str], shuffle: random.Random) -> tuple[tuple[str, ...], int]:
    shuffle.shuffle(options)
    return tuple(options), sum(1 << i for i, option in enumerate(options) if option in right)
