"""What the numbers read off episode rows (schema: ghar.metrics.runfolder) besides a value a row."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ghar.errors import BadInput

Row = Mapping[str, Any]


def patients_of(rows: Sequence[Row]) -> list[Hashable]:
    """The patient of each row. Raises BadInput for a row without a subject_id: its interval would be over stays."""
    for row in rows:
        if row.get("subject_id") is None:
            raise BadInput(f"sample {row['sample_id']} has no subject_id: write each row's patient, or play it again")
    return [row["subject_id"] for row in rows]


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many samples ("n") of how many distinct patients ("patients")."""
    return {"n": len(rows), "patients": len(set(patients_of(rows)))}


def calls_of(row: Row) -> float:
    """What an answer asked of a language model: its turns, and its share of the prompts that were scored, and of the
    replies that were written, to choose its examples."""
    cost = row.get("cost") or {}
    return len(row["turns"]) + cost.get("prompts", 0.0) + cost.get("replies", 0.0)


def tokens_of(row: Row) -> float:
    """Tokens that a language model read and wrote for an answer, every prompt whole: a beginning that several share
    counts in each of them, for turns and for the prompts that were scored to choose its examples."""
    return row["prompt_tokens"] + row["completion_tokens"] + (row.get("cost") or {}).get("scratch", 0.0)


def paired(a: Sequence[Row], b: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Rows of two policies, sample by sample in the order of `a`.

    Raises BadInput when the two were not run on the same samples.
    """
    second = {row["sample_id"]: row for row in b}
    if len(second) != len(b) or {row["sample_id"] for row in a} != second.keys() or len(a) != len(b):
        raise BadInput("two policies can only be compared on the same samples: evaluate both on one split")
    return [(row, second[row["sample_id"]]) for row in a]
