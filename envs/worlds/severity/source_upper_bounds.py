"""What every subset of the four sources can know at best, on the very test visits (envs/worlds/severity/sources.py).

    training   the severities of the common entities; without it, how often each common acuity occurs
    graph      those of rare conditions and drugs, and what a chained past names
    past       the patient's own earlier graft; where its row names a protein, together with the graph alone
    reports    the phenotype of an unnamed syndrome, where another patient's report that may be shown tells it

Exact expectations under the story, as in upper_bounds.py; nothing is looked up by a retriever here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations

import numpy as np
import polars as pl

from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity.upper_bounds import knowing
from ghar.envs.worlds.severity.world import World, truth_of

SOURCES = ("training", "graph", "past", "reports")
Subset = tuple[str, ...]


def source_ceilings(
    world: World, visits: Iterable[int], task: str, report_stays: Collection[int]
) -> Mapping[Subset, float]:
    """Best expected accuracy of each of the 16 subsets of SOURCES, in their order, on exactly these visits.

    report_stays: stays whose reports may be shown. Raises BadInput as `ceilings.world_ceilings` does, and ValueError
    for a world without further sources.
    """
    if not world.further.any:
        raise ValueError(f"{world.root} has no further sources")
    truth = truth_of(world, visits)
    common = np.bincount(world.truth["common_acuity"].to_numpy(), minlength=story.GRADES).cumsum() / world.truth.height
    subsets = [names for size in range(len(SOURCES) + 1) for names in combinations(SOURCES, size)]
    return {
        names: knowing(
            truth, world.rare_severity, task, source_coverage(world, truth, names, report_stays),
            None if "training" in names else common,
        )
        for names in subsets
    }  # fmt: skip


def source_coverage(world: World, truth: pl.DataFrame, names: Subset, report_stays: Collection[int]) -> np.ndarray:
    """bool [visits, 4]: whether these sources tell a visit's rare condition, rare drug, past and syndrome."""
    graph = np.full(truth.height, "graph" in names)
    past = ("past" in names) & (truth["chain"].is_null().to_numpy() | graph)
    reports = report_coverage(world, truth, report_stays) if "reports" in names else np.zeros(truth.height, dtype=bool)
    return np.stack([graph, graph, past, reports], axis=1)


def report_coverage(world: World, truth: pl.DataFrame, report_stays: Collection[int]) -> np.ndarray:
    """bool [visits]: whether another patient's report among these stays tells the visit's phenotype."""
    tellers = world.truth.filter(pl.col("tells").is_not_null() & pl.col("visit_id").is_in(list(report_stays)))
    patients = tellers.group_by("tells").agg(pl.col("subject_id").unique())
    rows = truth.select("asks", "subject_id").join(
        patients.rename({"subject_id": "tellers"}), left_on="asks", right_on="tells", how="left", maintain_order="left"
    )
    return np.array([
        tellers is not None and any(teller != own for teller in tellers)
        for tellers, own in zip(rows["tellers"].to_list(), rows["subject_id"].to_list(), strict=True)
    ], dtype=bool)  # fmt: skip
