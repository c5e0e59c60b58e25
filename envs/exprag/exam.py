"""EXPRAG on medical examinations (task=medqa): the experience is other questions and their answers.

Training questions stand where other patients' stays stand. They have no codes, so they are ranked by text alone; pieces
of them, without their options, are found as pieces of reports are, and each stands above the right answer of its
question, in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from ghar.envs.case import Case
from ghar.envs.exprag.episode import NOTHING, cut_piece, first_words, pieces_by_stay, without_head
from ghar.envs.exprag.label_episode import LabelEpisodes
from ghar.envs.exprag.label_system import Experience, build_label_system, check_label_settings
from ghar.envs.exprag.settings import Settings
from ghar.envs.exprag.text_corpus import TextRoles, check_ranker, corpus_of_texts
from ghar.envs.questions import plain_question_cases
from ghar.envs.records import Records
from ghar.envs.system import System
from ghar.episode import Act, Evidence
from ghar.kg.names import FILLERS, plain

ANSWER = "right answer: "
ROLES = TextRoles(  # of a question
    ranked=lambda one: one.text.shown(),
    searched=lambda one: one.text.text,
    shown=lambda one: one.text.options[one.label],
)


def build_exam(records: Records, settings: Settings) -> System[None]:
    """BadInput for rankers by codes, which questions have none of, and for what only DischargeQA has."""
    check_label_settings(settings, records.config.task.name)
    check_ranker(settings, "questions")
    cut = cut_piece if records.config.env.prompts == "full" else first_words
    experience = Experience(
        corpus=corpus_of_texts(records, settings, ROLES),
        noun="questions",
        cases=partial(plain_question_cases, records),
        rule=partial(answer_of_similar, usual=_usual(records.train_labels)),
        episodes=partial(LabelEpisodes, template="exam", describe=partial(answers_text, cut=cut)),
    )
    return build_label_system(records, settings, experience)


def answer_of_similar(act: Act, usual: int) -> str:
    """Choose the option most like the answers of similar questions, letter number `usual` where no word is shared.

    It reads what the prompt shows, and no truth.
    """
    case: Case = act.facts["case"]
    ranked: Evidence = act.facts["ranked"]
    labels = case.task.labels
    options = [_words(line.partition(". ")[2]) for line in case.text.split("\n")[-len(labels) :]]
    likeness = [0.0] * len(labels)
    lines = act.facts["experience"].split("\n")
    for passage in (one for one in ranked.passages if ANSWER + one.text in lines):
        words = _words(passage.text)
        for number, option in enumerate(options):
            likeness[number] += passage.score * len(words & option) / max(len(words | option), 1)
    return f"answer: {labels[max(range(len(labels)), key=lambda i: (likeness[i], i == usual, -i))]}"


def answers_text(
    ranked: Evidence, evidence: Evidence, labels: Sequence[str], words: int, cut: Callable[[str, int], str]
) -> str:
    """Similar questions with their answers, the most similar first: the pieces that fit into `words` words together
    with those of the others. An answer whose question does not fit is left out, unless none does."""
    kept, lines = pieces_by_stay(evidence, words, cut), []
    questions = [question for question in ranked.passages if question.ident in kept] or ranked.passages
    for number, question in enumerate(questions, 1):
        asked = [f"- {without_head(text)}" for text in kept.get(question.ident, ())]
        lines += [f"similar question {number}:", *asked, ANSWER + question.text]
    return "\n".join(lines) or NOTHING


def _usual(labels: Sequence[int]) -> int:
    return max(Counter(labels).items(), key=lambda item: (item[1], -item[0]))[0]


def _words(text: str) -> frozenset[str]:
    return frozenset(plain(text).split()) - FILLERS
