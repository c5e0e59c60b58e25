"""Some patients of a cohort, for a quick look."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort

SEED = 0  # one draw for everyone: a quick look is the same look tomorrow


def take_patients(cohort: Cohort, count: int) -> Cohort:
    """`count` of the cohort's patients, drawn by chance, with all that is theirs; the cohort where it has no more.

    The patients of a smaller count are among those of a larger one.
    """
    everyone = cohort.scan().select("subject_id").unique().sort("subject_id").collect()["subject_id"]
    if count >= len(everyone):
        return cohort
    order = np.random.default_rng(SEED).permutation(len(everyone))[:count]
    theirs = pl.col("subject_id").is_in(everyone.gather(np.sort(order)).implode())
    counts = {**cohort.counts, "patients left out, data.take": len(everyone) - count}
    some = replace(
        cohort, table=cohort.scan().filter(theirs).collect(), visits=cohort.visits.filter(theirs), counts=counts
    )
    if cohort.key is not None:
        object.__setattr__(some, "key", f"{cohort.key}-take{count}")  # a frozen dataclass has no other way
    return some
