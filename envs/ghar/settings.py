"""The keys of system=ghar."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ghar.config import Config, Count, NotNegative


@dataclass(frozen=True)
class Settings:
    """K=3 rewrites, at most 3 meta-paths and the rewards' form are the paper's; the number of iterations it leaves
    open."""

    name: str = "ghar"  # of the room, or a dotted module of your own
    rewrites: Count = 3  # queries that fill the queue at the start, K
    max_iterations: Count | None = None  # I of Algorithm 1; null is 6, and 4 at scale=demo
    max_paths: Count = 3  # meta-paths per retrieval
    # what is asked: graph (meta-paths), past (the patient's own), reports (of similar patients), a system with
    # partitions (kare), a folder of texts (./notes)
    sources: tuple[str, ...] = ("graph",)
    prices: tuple[NotNegative, ...] = ()  # of asking each of them once, in units of the reward; empty: all are free
    ablation: Literal["none", "ni", "nt", "nl", "nm"] = "none"  # Table VII; NS is composition=separate
    # whether to retrieve; fixed, it is so in training too, and everyone asks a line of every source each time
    decision: Literal["learned", "always", "never", "everyone"] = "learned"
    planted_errors: bool = False  # ablation: a scripted teacher with two errors that outcome reward can mend
    label_epochs: Count = 8  # over the training samples at most, of label-only fine-tuning (variant label_sft)
    alpha: float = 0.2  # distance of Eq. 15
    length: Count = 3  # L of Eq. 8, for normalise=none: range and running cancel any scale of a term
    normalise: Literal["range", "running", "none"] = "range"  # per term of the reward, before they are added
    rank: Literal["sound", "literal"] = "sound"  # literal: max(alpha, difference) as printed in Eq. 15
    grounding: NotNegative = 1.0  # weight of sub-queries that name what the patient does not have; 0 only counts them
    repeats: NotNegative = 1.0  # weight of ids that a look-up names twice, besides R_path's 0.5; 0 only counts them
    class_weights: Literal["none", "balanced"] = "none"  # balanced: a rare label, once right, earns more in R_orm
    composition: Literal["shared", "separate"] = "shared"  # separate: each agent its own terms (ablation NS)

    @property
    def reads_graph(self) -> bool:
        """It retrieves from a graph, which generated patients alone come with."""
        return True

    @property
    def patient_text(self) -> tuple[str, ...]:
        """Folders of texts among the sources (`ghar.config.Named`): what they hold is not known."""
        return tuple(name for name in self.sources if "/" in name)


def contradictions(config: Config, own: Settings) -> Iterator[str]:
    """Sentences for values that do not go together."""
    if own.length != Settings.length and own.normalise != "none":
        yield (
            f"system.length={own.length} changes nothing, since system.normalise={own.normalise} cancels it: "
            "leave it out, or set system.normalise=none."
        )
    if own.prices and len(own.prices) != len(own.sources):
        yield f"system.prices={list(own.prices)} must have a price for each of system.sources={list(own.sources)}."
    if own.ablation == "nt" and own.decision != "learned":
        yield f"system.ablation=nt always retrieves: leave system.decision={own.decision} out."
    if own.decision == "everyone" and len(own.sources) < 2:
        yield f"system.decision=everyone asks several sources: system.sources={list(own.sources)} names one."
    if own.decision == "everyone" and own.ablation == "nm":
        yield "system.ablation=nm asks the whole corpus: leave system.decision=everyone out."
