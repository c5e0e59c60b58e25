"""Events that say in a second code what a first one of the same name has said, to be left out where a reader sees both.

eICU gives most diagnoses in two versions of ICD and many in several codes ("sepsis", 038.9 and A41.9), one event each.
Who follows codes needs all of them; a record of names would have each diagnosis twice.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

KINDS = ("ICD9CM", "ICD10CM", "EICU_DIAGNOSIS", "EICU_TREATMENT")
SAME = ["subject_id", "visit_id", "time", "recorded", "code"]


def without_second_codes(events: pl.LazyFrame, label_of: Mapping[str, str]) -> pl.LazyFrame:
    """Return the events in their order, without those of `KINDS` that another code says at that time of that stay.

    label_of: code -> what the reader sees of it. Of several codes the first by the alphabet stays.
    """
    kind = pl.col("code").str.split("/").list.first()
    schema = {"code": pl.String, "label": pl.String}
    labels = pl.DataFrame(list(label_of.items()), schema, orient="row").filter(kind.is_in(KINDS))
    pairs = labels.join(labels.rename({"code": "second"}), on="label").filter(pl.col("code") < pl.col("second"))
    if pairs.is_empty():
        return events
    first = events.join(pairs.lazy().select("code", "second"), on="code", how="inner")
    copies = first.with_columns(code="second").select(SAME).unique()
    return events.join(copies, on=SAME, how="anti", nulls_equal=True, maintain_order="left")
