"""The keys of system=comparators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ghar.config import Count

Method = Literal["direct", "cot", "rag", "search_r1", "lightrag", "medrag", "pair", "fixed_1", "fixed_2", "fixed_3"]


@dataclass(frozen=True)
class Settings:
    """What GHAR is compared with, over the same graph and the same cases: `method` is the one that is trained."""

    name: str = "comparators"  # of the room, or a dotted module of your own
    method: Method = "search_r1"  # what training trains; all are variants of an evaluation
    max_iterations: Count = 4  # searches of search_r1 at most
    # of raw evidence that a look-up shows; null: a method's share of what GHAR's six summaries hold, 48 at scale=demo
    words: Count | None = None
    # GHAR's decisions on training samples (launch/record_retrievals.py): where it does not retrieve, SFT answers from
    # the record alone (GHAR, Fig. 9c)
    pruned_by: str | None = None

    @property
    def reads_graph(self) -> bool:
        """It retrieves from a graph, which generated patients alone come with."""
        return True
