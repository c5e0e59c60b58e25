"""The baselines on clinical texts to be summarised (task=summary): rules that copy words, which are not fitted to
references but for their mean length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ghar.data.sections import sentences
from ghar.data.tasks.summary_files import SummarisedText
from ghar.envs.baselines.fitted_system import NAME, NoCorpus, outcome_alone
from ghar.envs.case import Case
from ghar.envs.records import Records
from ghar.envs.summaries import label_of_text, plain_summary_cases, reference_length, with_summaries
from ghar.envs.system import WORDS, Reporting, System, Variant
from ghar.episode import Act, EpisodeGenerator, Prediction
from ghar.llm.policy import FunctionPolicy, Policy
from ghar.retrieval.matching import fit_tfidf

SENTENCES = "sentences"
AGENT, SUMMARY_ROLES = "top", ("predict",)


def build_summaries(records: Records) -> System[SummarisedText]:
    """`sentences`, and the trivial baselines of every system of summaries. They read whole texts, whatever
    env.history_tokens is."""
    cases = plain_summary_cases(records, WORDS)
    length = reference_length(cases.train)
    title = f"Most central sentences of the text, up to {length} words"
    made: System[SummarisedText] = System(
        name=NAME,
        task=records.task,
        agents=(AGENT,),
        roles=SUMMARY_ROLES,
        cases=cases,
        episode=_episode,
        corpus=NoCorpus(),
        reward=partial(outcome_alone, records.config.reward.eta),
        variants={SENTENCES: Variant(SENTENCES, title, SENTENCES, SENTENCES)},
        main=SENTENCES,
        read_by=lambda reader: made,
        fixed={SENTENCES: lambda: _central(cases.train, length)},
        origin=records.provenance(),
        report=Reporting(counts=records.counts()),
    )
    return with_summaries(made, records.config.reward.eta, SENTENCES)


def _episode(case: Case[SummarisedText], variant: Variant) -> EpisodeGenerator:
    """A rule writes the summary."""
    reply = yield Act(AGENT, *SUMMARY_ROLES, case.text, facts={"case": case})
    return Prediction(label_of_text(reply))


def _central(train: tuple[Case[SummarisedText], ...], length: int) -> Policy:
    vectorizer, _ = fit_tfidf(case.reads.source for case in train)
    return FunctionPolicy(CentralSentences(vectorizer, length))


@dataclass(frozen=True, eq=False)
class CentralSentences:
    """Copies the different sentences of a text that are nearest their centroid, in their order, in at most `length`
    words.

    vectorizer: TF-IDF, document frequencies over training texts.
    """

    vectorizer: Any
    length: int

    def __call__(self, act: Act) -> str:
        """Of the text that the act is about."""
        case: Case[SummarisedText] = act.facts["case"]
        return self.extract(case.reads.source)

    def extract(self, text: str) -> str:
        """The nearest sentence first, each that still fits; the first words of the nearest where none fits."""
        pieces = list(dict.fromkeys(sentences(text)))  # talk repeats "okay"
        if not pieces:
            return ""
        vectors = self.vectorizer.transform(pieces)
        nearness = vectors @ np.asarray(vectors.sum(axis=0)).ravel()  # cosine, but for the length of the sum
        ranked, kept, left = np.argsort(-nearness, kind="stable").tolist(), [], self.length
        for i in ranked:
            if (count := len(pieces[i].split())) <= left:
                kept.append(i)
                left -= count
        if not kept:
            return " ".join(pieces[ranked[0]].split()[: self.length])
        return "\n".join(pieces[i] for i in sorted(kept))
