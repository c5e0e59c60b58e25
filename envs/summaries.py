"""Clinical texts to be summarised as cases of any system that reads a record as text and retrieves by words.

The text stands where a record stands. A summary has no classes: a readable one has the label 0, and how near it is to
the reference is told by ROUGE, SARI and BLEU in rows and numbers, and by ROUGE-L in the reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ghar.data.tasks.question_files import MEDQA
from ghar.data.tasks.samples import TextSample
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.summary_files import LABEL, SUMMARY, WRITTEN, SummarisedText
from ghar.envs.case import Case
from ghar.envs.questions import USUAL
from ghar.envs.records import Records
from ghar.envs.system import Reader, System, Variant
from ghar.episode import Act, Episode, Reply
from ghar.llm.policy import FunctionPolicy
from ghar.metrics.bootstrap import mean_interval
from ghar.metrics.policy import policy_summary
from ghar.metrics.rows import Row, patients_of
from ghar.retrieval.matching import fit_tfidf
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import with_likeness

LIKENESS = ("rouge_1", "rouge_2", "rouge_l", "sari", "bleu_1", "bleu_4")
METRIC = "rouge_l"  # the main number
OF_LABELS = ("usual", "label_patients", "other_patients")  # counts of answers that a text has not
LEAD = "lead"  # a trivial baseline: the first words of a text as its summary
NEAREST = "nearest"  # another one: the summary of the training text that is most like it
TRIVIAL = {MEDQA: (USUAL,), SUMMARY: (LEAD, NEAREST)}  # variants that `with_usual` and `with_summaries` add, by task


def summary_cases(records: Records, reader: Reader) -> Splits[Case]:
    """The texts within env.history_tokens as `reader` counts: the last words are left out where one is too long; with
    what they mention of the run's graph."""
    return _cases(records, reader, records.mentions.topics_in)


def plain_summary_cases(records: Records, reader: Reader) -> Splits[Case]:
    """The same for a system without a graph."""
    return _cases(records, reader, lambda text: ())


def _cases(records: Records, reader: Reader, topics: Callable[[str], tuple[str, ...]]) -> Splits[Case]:
    task, budget = records.texts.task, records.config.env.history_tokens
    closed = records.provenance().credentialed

    def cases(samples: Sequence[TextSample[SummarisedText]]) -> tuple[Case, ...]:
        return tuple(
            Case(
                one.sample_id, one.subject_id, one.subject_id, cut_text(one.text.source, budget, reader.count),
                topics(one.text.source), task, one.label, one.text, credentialed=closed,
            )
            for one in samples
        )  # fmt: skip

    splits = records.texts.splits
    return Splits(cases(splits.train), cases(splits.valid), cases(splits.test))


def right_reply(case: Case[Any]) -> str:
    """The reply that SFT imitates: the reference of a summary, else the label in words."""
    return case.reads.summary if isinstance(case.reads, SummarisedText) else case.task.labels[case.label]


def label_of_text(reply: Reply) -> int | None:
    """The label of a text that was written, None where nothing was."""
    return LABEL if reply.value else None


def cut_text(text: str, budget: int, count: Callable[[str], int]) -> str:
    """The first words of a text that have at most `budget` tokens."""
    if count(text) <= budget:
        return text
    words = text.split(" ")
    low, high = 0, len(words)
    while low < high:  # the most words that fit
        kept = (low + high + 1) // 2
        low, high = (kept, high) if count(" ".join(words[:kept])) <= budget else (low, kept - 1)
    return " ".join(words[:low])


def with_summaries(made: System[Any], eta: float, direct: object) -> System[Any]:
    """`made`, whose episodes end with a text, rewarded and measured by its likeness to the reference.

    direct: `Variant.spec` of a summary of the text alone, which `lead` and `nearest` play without a model.
    """
    return made.adapt(lambda one: _with_summaries(_with_lead(_with_nearest(one, direct), direct), eta))


def _with_nearest(made: System[Any], direct: object) -> System[Any]:
    variant = Variant(NEAREST, "Summary of the most similar text", direct, NEAREST)
    return made.with_trivial(variant, FunctionPolicy(NearestSummary(made.cases.train)))


@dataclass(frozen=True, eq=False)
class NearestSummary:
    """Copies the summary of the training text of another patient that is most like the text and no copy of it, by
    TF-IDF: what manner and subject are worth, without a word about the text itself."""

    train: Sequence[Case[SummarisedText]]

    def __call__(self, act: Act) -> str:
        """The first of equal ones, "" where all texts are the patient's own or copies."""
        case: Case[SummarisedText] = act.facts["case"]
        vectorizer, matrix = self._index
        near = (matrix @ vectorizer.transform([case.reads.source]).T).toarray()[:, 0]
        own, ranked = case.reads.content, (self.train[i] for i in np.argsort(-near, kind="stable").tolist())
        others = (one for one in ranked if one.subject_id != case.subject_id and one.reads.content != own)
        return next((one.reads.summary for one in others), "")

    @cached_property
    def _index(self) -> tuple[Any, Any]:
        return fit_tfidf(case.reads.source for case in self.train)


def _with_lead(made: System[Any], direct: object) -> System[Any]:
    length = reference_length(made.cases.train)
    variant = Variant(LEAD, f"First {length} words of the text", direct, LEAD)
    return made.with_trivial(variant, FunctionPolicy(partial(_lead, length)))


def reference_length(train: Sequence[Case[SummarisedText]]) -> int:
    """Compute the mean number of words of the references, rounded down."""
    return sum(len(case.reads.summary.split()) for case in train) // max(1, len(train))


def _lead(length: int, act: Act) -> str:
    """The first words of the text, as many as a training reference has in the mean."""
    case: Case[SummarisedText] = act.facts["case"]
    return " ".join(case.reads.source.split()[:length])


def _with_summaries(made: System[Any], eta: float) -> System[Any]:
    reward, shaping, row = made.reward, made.training.shaping, made.report.row

    def likened(base_reward: EpisodeReward, episode: Episode, case: Case[SummarisedText]) -> EpisodeReward:
        return with_likeness(base_reward, episode, likeness(written(episode), case.reads)[METRIC], eta)

    if shaping is not None:
        shaped = shaping.reward
        shaping = replace(
            shaping, reward=lambda episode, case, *more: likened(shaped(episode, case, *more), episode, case)
        )
    return replace(
        made,
        reward=lambda episode, case: likened(reward(episode, case), episode, case),
        training=replace(made.training, shaping=shaping),
        report=replace(
            made.report,
            answer=lambda case, label: WRITTEN,
            row=lambda episode, case, variant: row(episode, case, variant) | summary_row(episode, case, variant),
            numbers=summary_numbers,
            baselines=None,
            metric=METRIC,
        ),
    )


def written(episode: Episode) -> str:
    """The text that an episode ended with, "" where there is none."""
    replies = [r.result for r in episode.trace if isinstance(r.effect, Act) and isinstance(r.result, Reply)]
    return str(replies[-1].value or "") if replies and episode.prediction.label is not None else ""


def likeness(text: str, one: SummarisedText) -> dict[str, float]:
    """F1 of ROUGE-1, -2 and -L, SARI, BLEU-1 and BLEU-4 of a text as the summary of another; 0 for no text."""
    from ghar.metrics.texts import bleu, rouge, sari  # the extra `train` brings their libraries

    if not text:
        return dict.fromkeys(LIKENESS, 0.0)
    source, reference = one.source, one.summary
    scores = rouge(text, reference)
    shares = {"rouge_1": scores["rouge1"].f, "rouge_2": scores["rouge2"].f, "rouge_l": scores["rougeL"].f}
    bleus = {f"bleu_{n}": bleu(text, reference, n) for n in (1, 4)}
    return {**shares, "sari": sari(source, text, reference), **bleus}


def summary_row(episode: Episode, case: Case[SummarisedText], variant: Variant) -> dict[str, Any]:
    """The text, its reference, and how near they are."""
    text = written(episode)
    return {"summary": text, "reference": case.reads.summary, "likeness": likeness(text, case.reads)}


def summary_numbers(rows: Sequence[Row], draw: Mapping[str, int]) -> dict[str, Any]:
    """`policy_summary` of readable texts, and the mean of each likeness with its interval over patients.

    A text has no usual label, so nothing is compared with one.
    """
    numbers = policy_summary(rows, (WRITTEN,), **draw)
    numbers.pop("over_usual", None)
    numbers["answers"] = {key: value for key, value in numbers.get("answers", {}).items() if key not in OF_LABELS}
    patients = patients_of(rows)
    means = {
        name: mean_interval([row["likeness"][name] for row in rows], patients=patients, **draw).as_list()
        for name in LIKENESS
    }
    return {**numbers, **means, "own_metrics": dict.fromkeys(LIKENESS, len(rows))}
