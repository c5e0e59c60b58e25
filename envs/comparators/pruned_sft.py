"""SFT on pruned data (GHAR, Fig. 9c): training samples for which GHAR does not retrieve are query-answer pairs.

With a model as teacher such a sample is the teacher's right answer from the record alone; the rule gives the label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl

from ghar.envs.comparators.episode import ComparatorVariant
from ghar.envs.system import System, Variant
from ghar.episode import Act
from ghar.errors import BadInput

COLUMNS = {"sample_id", "retrievals"}


def read_direct(path: Path) -> frozenset[str]:
    """The samples of a file of retrievals that have none. BadInput for a file that cannot be read as one."""
    try:
        table = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise BadInput(
            f"system.pruned_by={path} cannot be read ({error}): write it by launch/record_retrievals.py."
        ) from error
    if missing := sorted(COLUMNS - set(table.columns)):
        raise BadInput(f"system.pruned_by={path} has no column {missing[0]}: write it by launch/record_retrievals.py.")
    return frozenset(table.filter(pl.col("retrievals") == 0)["sample_id"].cast(pl.String))


def with_pruned_sft(made: System[None], direct: frozenset[str]) -> System[None]:
    """`made`, whose teacher answers the samples of `direct` from the record alone."""
    name, spec = f"{made.main}_pruned_sft", ComparatorVariant(made.variants[made.main].spec.method, direct=direct)
    return made.adapt(
        lambda one: replace(one, training=replace(one.training, teacher_variant=Variant(name, spec=spec)))
    )


def label_of_direct(rule: Callable[[Act], str], direct: frozenset[str]) -> Callable[[Act], str]:
    """`rule`, which predicts the label of the samples of `direct`."""

    def reply(act: Act) -> str:
        case = act.facts["case"]
        if act.role == "predict" and case.sample_id in direct:
            return case.task.labels[case.label]
        return rule(act)

    return reply
