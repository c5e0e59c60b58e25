"""The keys of system=graphwalker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from ghar.config import Config, Count, Range
from ghar.data.tasks.summary_files import SUMMARY
from ghar.retrieval.encoders import CODES


@dataclass(frozen=True)
class Settings:
    """GraphWalker with the paper's numbers (Appendix G). Its selectors are variants: eval.variants=[cone,ids]."""

    name: str = "graphwalker"  # of the room, or a dotted module of your own
    k: Count = 3  # examples at most, K
    # of the patient graph; null: smart for time series, text for all else, which only text can encode
    encoder: Literal["smart", "concare", "adacare", "text"] | None = None
    # the EHR encoder also reads the age at prediction and the sex, where the cohort has them
    demographics: bool = False
    k_g: Count = 8  # neighbours in the graph
    k_c: Count = 3  # cohorts the walk starts from
    k_a: Count = 3  # anchors in each of them
    # paper; released: its code; then the rows of Table 2; show_encoder prints the encoder's prediction into the prompt
    variant: Literal[
        "paper", "released", "no_ehr_emb", "no_cohorts", "no_search", "no_early_stop", "louvain", "show_encoder"
    ] = "paper"
    utility: Literal["entropy", "self_rated"] = "entropy"  # self_rated: the model gives 0 to 10
    # how the label is found with the examples; compare: first, what the patient shares with whom, and how that ended
    inference: Literal["direct", "compare", "react"] = "direct"
    # probability: of the second of two labels, as a number in the reply, which any server can give (the paper's 0.XX)
    reply: Literal["label", "probability"] = "label"
    step_hours: Count = 24  # of a time step; series_dec has hours in any case
    stay: Literal["visit", "icu", "benchmark"] = "visit"  # of series_...; benchmark: as the MIMIC-III benchmark keeps
    los: Literal["total", "remaining"] = "total"  # series_los: of the stay, or of its rest, as the released code has it
    # scored prompts a patient that any selector may spend, shared ones included; null leaves the walk and cone as their
    # papers have them, and gives the others what a walk of these numbers takes
    effort: Annotated[int, Range(2)] | None = None
    # measure how much the examples lower H(x | S) (Eq. 14): two more scored prompts a patient, which stand in its
    # seconds and in no selector's cost
    entropy_drop: bool = False

    @property
    def usual_effort(self) -> int:
        """Prompts that a walk takes: none shown, the anchors, and the neighbours of each pick but the last."""
        return 1 + self.k_c * self.k_a + (self.k - 1) * self.k_g


def contradictions(config: Config, own: Settings) -> Iterator[str]:
    """Sentences for values that do not go together."""
    if own.reply == "probability" and own.inference == "compare" and config.task.name != SUMMARY:
        yield "system.reply=probability follows no comparison: choose system.inference=direct or react."
    texts = config.task.name == SUMMARY
    if texts and (own.inference != "direct" or own.reply == "probability"):
        yield (
            "task=summary ends with a text, which needs no comparison, no ReAct and no probability: leave out "
            "system.inference and system.reply."
        )
    series, encoders = config.task.name.startswith("series_"), own.variant in ("no_ehr_emb", "show_encoder")
    if own.demographics and (not series or own.encoder == "text" or own.variant == "no_ehr_emb"):
        yield "system.demographics=true is read by EHR encoders of a task=series_... alone: leave it out."
    if config.retriever.kind == CODES:
        yield f"retriever={CODES} is fitted to events, and system=graphwalker compares texts: choose another."
    react = own.inference == "react" and not texts
    if not series and (own.encoder not in (None, "text") or react or encoders):
        yield (
            f"task={config.task.name} has no time series: leave out system.encoder (or set it to text), "
            "system.inference=react and the variants about EHR encoders."
        )
