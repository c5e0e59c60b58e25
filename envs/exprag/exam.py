"""EXPRAG on medical examinations (task=medqa): the experience is other questions and their answers.

Training questions stand where other patients' stays stand. They have no codes, so they are ranked by text alone; pieces
of them are found as pieces of reports are, and each stands below the right answer of its question, in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ghar.data.readers.notes import Notes
from ghar.envs.case import Case
from ghar.envs.exprag.corpus import encoder_of, finder_of, ranker_encoder
from ghar.envs.exprag.episode import NOTHING, cut_piece, first_words, pieces_by_stay
from ghar.envs.exprag.label_episode import LabelEpisodes
from ghar.envs.exprag.label_system import Experience, build_label_system, check_label_settings
from ghar.envs.exprag.report_corpus import ReportCorpus
from ghar.envs.exprag.report_texts import rank_by_text, text_scores
from ghar.envs.exprag.settings import Settings
from ghar.envs.questions import plain_question_cases
from ghar.envs.records import Records
from ghar.envs.system import System
from ghar.episode import Act, Evidence
from ghar.errors import BadInput
from ghar.kg.names import FILLERS, plain
from ghar.retrieval.reports import KINDS, ReportQuery, build_reports, entries_of


def build_exam(records: Records, settings: Settings) -> System[None]:
    """BadInput for rankers by codes, which questions have none of, and for what only DischargeQA has."""
    check_label_settings(settings, records.config.task.name)
    if settings.ranker not in ("text", "uniform"):
        raise BadInput(f"system.ranker={settings.ranker} reads codes, and questions have none: leave it out.")
    cut = cut_piece if records.config.env.prompts == "full" else first_words
    experience = Experience(
        corpus=_corpus(records, settings),
        noun="questions",
        cases=partial(plain_question_cases, records),
        rule=partial(answer_of_similar, usual=_usual(records.train_labels)),
        episodes=partial(LabelEpisodes, template="exam", describe=partial(answers_text, cut=cut)),
    )
    return build_label_system(records, settings, experience)


def answer_of_similar(act: Act, usual: int) -> str:
    """Choose the option most like the answers of similar questions, letter number `usual` where no word is shared.

    It reads the text that a prompt shows, and no truth.
    """
    case: Case = act.facts["case"]
    ranked: Evidence = act.facts["ranked"]
    labels = case.task.labels
    options = [_words(line.partition(". ")[2]) for line in case.text.split("\n")[-len(labels) :]]
    likeness = [0.0] * len(labels)
    for passage in ranked.passages:
        words = _words(passage.text)
        for number, option in enumerate(options):
            likeness[number] += passage.score * len(words & option) / max(len(words | option), 1)
    return f"answer: {labels[max(range(len(labels)), key=lambda i: (likeness[i], i == usual, -i))]}"


def answers_text(
    ranked: Evidence, evidence: Evidence, labels: Sequence[str], words: int, cut: Callable[[str, int], str]
) -> str:
    """Every similar question's answer, the most similar first, and below it the pieces of the question that fit into
    `words` words together with those of the others."""
    kept, lines = pieces_by_stay(evidence, words, cut), []
    for number, question in enumerate(ranked.passages, 1):
        lines.append(f"similar question {number}, right answer: {question.text}")
        lines += [f"- {text}" for text in kept.get(question.ident, ())]
    return "\n".join(lines) or NOTHING


def _corpus(records: Records, settings: Settings) -> ReportCorpus:
    """Training questions with their options as reports. No one is offered the own question."""
    splits, encoder = records.texts.splits, encoder_of(records.config)
    every = (*splits.train, *splits.valid, *splits.test)
    train = sorted(splits.train, key=lambda one: one.subject_id)
    ids = np.array([one.subject_id for one in train], np.int64)
    never = np.zeros(len(ids), np.int64)
    closed = records.provenance().credentialed
    texts = Notes(ids, ids, never, [one.text.shown() for one in train], {}, generated=False, credentialed=closed)
    index = build_reports(ids, ids, never, {kind: entries_of([()] * len(ids), kind) for kind in KINDS})
    asking = {one.sample_id: ReportQuery(one.subject_id, None, ((), (), ())) for one in every}
    answers = {one.subject_id: one.text.options[one.label] for one in train}
    ranker = partial(rank_by_text, index, text_scores(index, texts, ranker_encoder(settings, encoder)))
    labels = {one.subject_id: one.label for one in train}
    return ReportCorpus(index, texts, asking, ranker, finder_of(settings, encoder), answers.__getitem__, labels)


def _usual(labels: Sequence[int]) -> int:
    return max(Counter(labels).items(), key=lambda item: (item[1], -item[0]))[0]


def _words(text: str) -> frozenset[str]:
    return frozenset(plain(text).split()) - FILLERS
