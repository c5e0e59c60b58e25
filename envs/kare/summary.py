"""KARE on clinical texts to be summarised (task=summary): a text stands where a record stands (`mentions.py`).

[Label Prediction] is to write the summary. Clinicians' references teach it. There are no chains: an expert that reads
the reference would write the reference. So no variant reasons, and every one ends with a text.

Similar texts are shown by their summaries, each in at most `SHARE` of env.history_tokens: two take half of what the
text itself may take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from ghar.data.tasks.splits import Splits
from ghar.data.tasks.summary_files import SUMMARY, SummarisedText, read_summary_set
from ghar.envs.case import Case
from ghar.envs.kare.build import BuildInputs
from ghar.envs.kare.episode import KareEpisodes, KareReading
from ghar.envs.kare.graph.from_engine import TEXTS
from ghar.envs.kare.mentions import (
    MentionSample,
    NearestReading,
    TextKind,
    mention_inputs,
    mention_splits,
    need_of_patients,
    refusals_of,
    without_variants,
)
from ghar.envs.kare.methods import LABELS, Method, method_of
from ghar.envs.kare.rows import passage_counts
from ghar.envs.records import Records
from ghar.envs.summaries import cut_text, label_of_text, summary_numbers, with_summaries
from ghar.envs.system import System, Variant
from ghar.episode import Act, Evidence, Reply, as_text
from ghar.metrics.rows import Row

SHARE = Fraction(1, 4)  # of env.history_tokens, for the summary of one similar text
LISTED = ("kare", "backbone", "zero_shot", "kare_zero_shot", "few_shot", "rag")
REASONS = {  # variants that differ from others by chains or labels: what they need
    "no_reasoning": "leaves out chains that lead to a label",
    "kare_base": "reasons in a chain that leads to a label",
    LABELS: "learns labels without such chains",
}


@dataclass(frozen=True)
class SummaryReading(NearestReading, SummarisedText):
    """The text with its reference, which no prompt about it shows, and the summaries of similar texts."""


def _cut(text: SummarisedText, tokens: int, count: Callable[[str], int]) -> str:
    return cut_text(text.source, tokens, count)


def _example(sample: MentionSample[SummarisedText], tokens: int, count: Callable[[str], int]) -> str:
    """Cut the summary of a training text to its share."""
    return cut_text(sample.text.summary, int(SHARE * tokens), count)


def _reading(text: SummarisedText) -> SummaryReading:
    """Take the text and its reference, for rewards and metrics."""
    return SummaryReading(text.text_id, text.source, text.summary)


CLINICAL_TEXT = TextKind(lambda text: text.source, _cut, _example, _reading)  # the last words are left out


class SummaryEpisodes(KareEpisodes):
    """Makes episodes that end with a text."""

    def label_of(self, reply: Reply) -> int | None:
        """The label of a text that was written."""
        return label_of_text(reply)

    def _predict(self, case: Case[KareReading], knowledge: str, evidence: Evidence) -> Act:
        return self._act("predict", case, knowledge, evidence, as_text)


def summary_splits(records: Records) -> Splits[MentionSample[SummarisedText]]:
    """Read the texts by split, with what they mention of the run's graph, their summaries aside."""
    return mention_splits(records.texts.splits, partial(_topics, records))


def summary_inputs(records: Records, splits: Splits[MentionSample[SummarisedText]]) -> BuildInputs:
    """Make one concept set a training text. The coding system is what any text of data.root mentions, whose summaries
    are not read. BadInput where no training text mentions anything of the graph."""
    config = records.config
    assert config.data.root is not None  # ghar.contradictions asks for it
    whole = read_summary_set(Path(config.data.root), config.task).splits  # whatever task.max_train and so on leave
    every = (*whole.train, *whole.valid, *whole.test)
    return mention_inputs(records, splits.train, (_topics(records, one.text) for one in every), TEXTS, "text")


def _topics(records: Records, text: SummarisedText) -> tuple[str, ...]:
    return records.mentions.topics_in(text.source)


def as_summary(made: System[KareReading], eta: float) -> System[Any]:
    """`made` without variants that need patients, chains or labels; rewarded and measured by likeness."""
    return with_summaries(made.adapt(_as_summary), eta, Method("nothing", 0, "none")).adapt(_with_passage_counts)


def _as_summary(made: System[KareReading]) -> System[KareReading]:
    own = without_variants(made, summary_refusals(made.variants), "texts")
    variants = {
        name: replace(variant, spec=replace(method_of(variant), reasoning="none"))
        for name, variant in own.variants.items()
    }
    stages = {name: examples for name, examples in own.training.stages.items() if name != LABELS}
    listed = tuple(name for name in LISTED if name in variants)
    return replace(
        own, variants=variants, training=replace(own.training, stages=stages),
        report=replace(own.report, listed=listed, comparisons=()),
    )  # fmt: skip


def _with_passage_counts(made: System[Any]) -> System[Any]:
    def numbers(rows: Sequence[Row], draw: Mapping[str, int]) -> dict[str, Any]:
        return summary_numbers(rows, draw) | passage_counts(rows)

    return replace(made, report=replace(made.report, numbers=numbers))


def summary_refusals(variants: Mapping[str, Variant]) -> dict[str, str]:
    """Map each variant that needs patients, chains or labels to the sentence that refuses it for texts."""
    needs = {name: need_of_patients(variant) or REASONS.get(name, "") for name, variant in variants.items()}
    return refusals_of({name: reason for name, reason in needs.items() if reason}, variants, SUMMARY)
