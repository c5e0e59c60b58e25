"""Label-only fine-tuning, which the paper compares with as Medical-SFT: the same base model learns to answer from the
record, without sub-queries, look-ups or reasoning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.ghar.episode import GharEpisodes
from ghar.envs.summaries import right_reply
from ghar.envs.system import Example, SftExamples
from ghar.episode import Act, EpisodeGenerator

STAGE = "label_sft"  # the weights' name


@dataclass(frozen=True)
class LabelOnly:
    """`Variant.spec` of episodes that are one question: the label."""

    episodes: GharEpisodes[Any]

    def episode(self, case: Case) -> EpisodeGenerator:
        """A prediction from the record alone."""
        return self.episodes.direct(case)


def label_pairs(episodes: GharEpisodes[Any], cases: Splits[Case], epochs: int | None) -> SftExamples:
    """Each training sample's question and its label as a reply; validation samples choose the weights that are kept."""
    return SftExamples(_pairs(episodes, cases.train), _pairs(episodes, cases.valid), epochs=epochs)


def _pairs(
    episodes: GharEpisodes[Any], cases: Sequence[Case]
) -> tuple[Example, ...]:
    prefix = episodes.spec.before_label
    asked: list[Act] = [next(episodes.direct(case)) for case in cases]
    return tuple(
        Example(act.prompt, f"{prefix}{right_reply(case)}") for act, case in zip(asked, cases, strict=True)
    )
