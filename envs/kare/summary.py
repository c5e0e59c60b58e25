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
from itertools import count
from pathlib import Path
from typing import Any

from ghar.config import EnvConfig
from ghar.data.tasks.samples import TextSample
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.summary_files import LABEL, SUMMARY, SummarisedText, read_summary_set
from ghar.envs.case import Case
from ghar.envs.kare.build import BuildInputs
from ghar.envs.kare.episode import KareEpisodes, KareReading
from ghar.envs.kare.graph.from_engine import TEXTS
from ghar.envs.kare.mentions import (
    MentionedConcepts,
    MentionWriter,
    NearestReading,
    NearestTexts,
    mention_history,
    mention_inputs,
    need_of_patients,
    refusals_of,
    without_variants,
)
from ghar.envs.kare.methods import LABELS, Method, method_of
from ghar.envs.kare.rows import passage_counts
from ghar.envs.records import Records
from ghar.envs.summaries import cut_text, summary_numbers, with_summaries
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


@dataclass(frozen=True)
class SummarySample:
    """A text as a sample. number: of the text, for a patient may have several. topics: what it mentions ("disease
    NAME"), without its summary."""

    sample_id: str
    subject_id: int
    number: int
    summarised: SummarisedText
    topics: tuple[str, ...]
    label: int = LABEL

    @property
    def text(self) -> str:
        """The text, without its summary."""
        return self.summarised.source

    @property
    def history(self) -> tuple[MentionedConcepts, ...]:
        """The one visit."""
        return mention_history(self.number, self.topics)

    def may_show(self, other: SummarySample) -> bool:
        """Whether the other is of another patient."""
        return other.subject_id != self.subject_id


class SimilarTexts(NearestTexts[SummarySample]):
    """The nearest training texts, by the texts alone."""

    def writer(self, env: EnvConfig, count: Callable[[str], int], similar: int = 1) -> SummaryWriter:
        """Make a `SummaryWriter` with these arguments."""
        return SummaryWriter(self, env, count, similar)


class SummaryWriter(MentionWriter[SummarySample]):
    """Cuts texts, and summaries of similar ones: the last words are left out."""

    def cut(self, sample: SummarySample) -> str:
        """Cut the text to env.history_tokens."""
        return cut_text(sample.text, self.env.history_tokens, self.count)

    def example(self, sample: SummarySample) -> str:
        """Cut the summary of a training text to its share."""
        return cut_text(sample.summarised.summary, int(SHARE * self.env.history_tokens), self.count)

    def reading(self, sample: SummarySample) -> SummaryReading:
        """Take the text and its reference, for rewards and metrics."""
        one = sample.summarised
        return SummaryReading(one.text_id, one.source, one.summary)


class SummaryEpisodes(KareEpisodes):
    """Makes episodes that end with a text."""

    def label_of(self, reply: Reply) -> int | None:
        """The label of a text that was written."""
        return LABEL if reply.value else None

    def _predict(self, case: Case[KareReading], knowledge: str, evidence: Evidence) -> Act:
        return self._act("predict", case, knowledge, evidence, as_text)


def summary_splits(records: Records) -> Splits[SummarySample]:
    """Read the texts by split, with what they mention of the run's graph."""

    def samples(part: Sequence[TextSample[SummarisedText]]) -> tuple[SummarySample, ...]:
        return tuple(
            SummarySample(one.sample_id, one.subject_id, next(numbers), one.text, _topics(records, one.text))
            for one in part
        )

    numbers = count()
    splits = records.texts.splits
    return Splits(samples(splits.train), samples(splits.valid), samples(splits.test))


def summary_inputs(records: Records, splits: Splits[SummarySample]) -> BuildInputs:
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
