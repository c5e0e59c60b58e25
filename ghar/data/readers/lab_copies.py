"""Vital signs that repeat a laboratory result (`vitals_of_labs`), to be left out where a reader sees both.

Series of the 17 variables need them. A record that shows all events would have one glucose twice, as "Glucose" and as
"glucose (mg/dL)".
"""

from __future__ import annotations

import polars as pl

from ghar.data.readers.eicu_charts import EICU_LABS
from ghar.data.readers.events import F64
from ghar.data.readers.omop_measurements import LABS
from ghar.data.readers.vitals import fraction, variables_of

SAME = ["subject_id", "visit_id", "time", "recorded", "code", "numeric_value"]


def without_copies(events: pl.LazyFrame) -> pl.LazyFrame:
    """Return the events in their order, without vital signs that equal a laboratory result in time, stay and number."""
    labs = events.join(variables_of({**LABS, **EICU_LABS}, "code"), on="code", how="inner")
    value = fraction(pl.col("numeric_value").cast(F64)).cast(pl.Float32)
    copies = labs.with_columns(code=pl.col("vital"), numeric_value=value).select(SAME).unique()
    return events.join(copies, on=SAME, how="anti", nulls_equal=True, maintain_order="left")
