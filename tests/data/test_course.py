"""The course of a stay in MIMIC-III (data.more=[outputs,transfers,services]) against the rows of the open demo; that of
MIMIC-IV stands in test_mimic4_more.py."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from ghar.data.readers.mimic3 import read_mimic3
from tests.data.hostile import account

ROWS = {"outputevents": 11_320, "transfers": 524, "services": 163}
CODES = {"outputevents": "OUTPUT/", "transfers": "TRANSFER/", "services": "SERVICE/"}


@pytest.mark.slow
def test_the_open_mimic3_demo(shared_data: Path) -> None:
    demo = shared_data / "mimic-iii-demo-1.4"
    usual = read_mimic3(demo, charts=False)
    cohort = read_mimic3(demo, charts=False, more=["outputs", "transfers", "services"])
    assert cohort.shown.visits == usual.shown.visits and not cohort.credentialed
    for name, rows in ROWS.items():
        kept = cohort.events.filter(pl.col("code").str.starts_with(CODES[name]))
        assert cohort.counts[f"rows.{name}"] == rows == kept.height + account(cohort.counts, name, "dropped")
        assert (kept["recorded"] >= kept["time"]).all() and kept.height > rows / 2
    moves = cohort.events.filter(pl.col("code").str.starts_with("TRANSFER/"))
    assert cohort.counts["dropped.transfers.discharge"] == 129  # one an admission
    first = moves.filter(pl.col("visit_id") == 142345)
    assert first["code"].to_list() == ["TRANSFER/MICU", "TRANSFER/ward 45"]
    drained = cohort.events.filter(pl.col("code").str.starts_with("OUTPUT/"))
    assert drained.filter(pl.col("numeric_value") < 0).is_empty()
