"""The keys of system=graphwalker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ghar.config import Config, Count


@dataclass(frozen=True)
class Settings:
    """GraphWalker with the paper's numbers (Appendix G). Its selectors are variants: eval.variants=[cone,ids]."""

    name: str = "graphwalker"  # of the room, or a dotted module of your own
    k: Count = 3  # examples at most, K
    # of the patient graph; null: smart for time series, text for all else, which only text can encode
    encoder: Literal["smart", "concare", "adacare", "text"] | None = None
    k_g: Count = 8  # neighbours in the graph
    k_c: Count = 3  # cohorts the walk starts from
    k_a: Count = 3  # anchors in each of them
    # paper; released: its code; then the rows of Table 2; show_encoder prints the encoder's prediction into the prompt
    variant: Literal[
        "paper", "released", "no_ehr_emb", "no_cohorts", "no_search", "no_early_stop", "louvain", "show_encoder"
    ] = "paper"
    utility: Literal["entropy", "self_rated"] = "entropy"  # self_rated: the model gives 0 to 10
    inference: Literal["direct", "react"] = "direct"  # how the label is found with the examples
    step_hours: Count = 24  # of a time step; series_dec has hours in any case
    stay: Literal["visit", "icu", "benchmark"] = "visit"  # of series_...; benchmark: as the MIMIC-III benchmark keeps
    los: Literal["total", "remaining"] = "total"  # series_los: of the stay, or of its rest, as the released code has it
    sets: Count = 32  # sets of examples that influence and gradsel measure
    measured: Count = 16  # patients that delta_knn measures


def contradictions(config: Config, own: Settings) -> Iterator[str]:
    """Sentences for values that do not go together."""
    series, encoders = config.task.name.startswith("series_"), own.variant in ("no_ehr_emb", "show_encoder")
    if not series and (own.encoder not in (None, "text") or own.inference == "react" or encoders):
        yield (
            f"task={config.task.name} has no time series: leave out system.encoder (or set it to text), "
            "system.inference=react and the variants about EHR encoders."
        )
