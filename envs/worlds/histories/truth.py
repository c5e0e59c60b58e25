"""What is true in a world of long histories: for evaluation and rewards ONLY, never for a policy's prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ghar.envs.worlds.histories.story import ceilings
from ghar.errors import BadInput

Gold = Mapping[str, tuple[tuple[str, str], ...]]  # evidence -> (time as rows show it, name) of each row that tells


@dataclass(frozen=True, eq=False)
class LongTruth:
    """switches: patient -> (trigger, slope, exculpated). gold: patient -> the rows that tell, by evidence."""

    switches: Mapping[int, tuple[bool, bool, bool]]
    gold: Mapping[int, Gold]

    def ceilings(self, patients: Iterable[int]) -> dict[str, float]:
        """Best expected accuracy on these patients for every subset of the evidence."""
        return ceilings(self.switches[patient] for patient in patients)


def load_truth(root: Path) -> LongTruth:
    """The truth beside a generated folder. BadInput where there is none."""
    root = Path(root)
    if not (root / "truth.parquet").is_file() or not (root / "gold.parquet").is_file():
        raise BadInput(f"{root} has no truth.parquet and gold.parquet: it is no finished world of long histories.")
    truth = pl.read_parquet(root / "truth.parquet", glob=False)
    switches = {row[0]: (row[1], row[2], row[3]) for row in
                truth.select("subject_id", "trigger", "slope", "exculpated").iter_rows()}  # fmt: skip
    by_subject: defaultdict[int, defaultdict[str, list[tuple[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for subject, evidence, time, name in pl.read_parquet(root / "gold.parquet", glob=False).iter_rows():
        by_subject[subject][evidence].append((f"[{time:%Y-%m-%d %H:%M:%S}]", name))
    gold = {subject: {why: tuple(rows) for why, rows in by.items()} for subject, by in by_subject.items()}
    return LongTruth(switches, gold)
