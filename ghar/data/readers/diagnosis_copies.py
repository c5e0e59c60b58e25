"""Diagnoses and treatments that read like another one of the same time, to be left out where a reader sees names.

eICU gives most diagnoses in two versions of ICD ("sepsis", 038.9 and A41.9), one event each, and some of one name under
several paths. Links and counts of codes need all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

KINDS = ("ICD9CM", "ICD10CM", "CCSCM", "EICU_DIAGNOSIS", "EICU_TREATMENT")
SAME = ("subject_id", "visit_id", "time", "recorded", "numeric_value", "text_value")
PLACE, LABEL = "_place", "_label"


def without_repeated_diagnoses(events: pl.LazyFrame, label_of: Mapping[str, str]) -> pl.LazyFrame:
    """Return the events in their order; of those of `KINDS` with one label, stay, time and value the first alone.

    label_of: code -> what the reader sees of it; a code that is absent is its own label.
    """
    rows, code = events.with_row_index(PLACE), pl.col("code")
    diagnoses = rows.filter(code.str.split("/").list.first().is_in(KINDS))
    labels = pl.LazyFrame(list(label_of.items()), {"code": pl.String, LABEL: pl.String}, orient="row")
    labelled = diagnoses.join(labels, on="code", how="left", maintain_order="left")
    labelled = labelled.with_columns(pl.col(LABEL).fill_null(code))
    repeats = labelled.filter(~pl.struct(*SAME, LABEL).is_first_distinct()).select(PLACE)
    return rows.join(repeats, on=PLACE, how="anti", maintain_order="left").drop(PLACE)
