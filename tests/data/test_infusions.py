"""Infusions of MIMIC-III and eICU (data.more=[inputs]) against the rows of the open demos; those of MIMIC-IV stand in
test_mimic4_more.py."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from ghar.config import DataConfig
from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.mimic3 import read_mimic3
from ghar.data.readers.source import read_source
from ghar.errors import BadInput
from ghar.launch.entry import load
from tests.data.hostile import account
from tests.data.test_mimic3 import write

pytestmark = pytest.mark.slow

TABLES = {"inputevents_cv": 34_799, "inputevents_mv": 13_224}  # lines below the header


def numbers(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, infer_schema=False)


def test_infusions_of_the_open_mimic3_demo(shared_data: Path) -> None:
    demo3 = shared_data / "mimic-iii-demo-1.4"
    usual, cohort = (read_mimic3(demo3, charts=False, more=more) for more in ((), ["inputs"]))
    counts, found = cohort.counts, cohort.events.filter(pl.col("code").str.starts_with("INPUT/"))
    assert cohort.shown.visits == usual.shown.visits and not cohort.credentialed
    assert cohort.events.height - usual.events.height == found.height
    kept = {name: counts[f"rows.{name}"] - account(counts, name, "dropped") for name in TABLES}
    assert {name: counts[f"rows.{name}"] for name in TABLES} == TABLES
    assert found.height == sum(kept.values())
    assert counts["dropped.inputevents_cv.no_value"] == 599
    assert counts["dropped.inputevents_mv.rewritten"] == 2910
    assert (found["recorded"] >= found["time"]).all()
    carevue = numbers(demo3 / "INPUTEVENTS_CV.csv.gz")
    rates = carevue.filter(pl.col("rateuom") == "mcgkgmin")["rate"].drop_nulls().len()
    propofol = found.filter(pl.col("code").str.ends_with(", mcg/kg/min"))
    assert propofol.height >= rates > 4000
    named = found.filter(pl.col("code") == "INPUT/levophed-k, mcg/kg/min")
    assert named.height > 0 and cohort.names()["INPUT/levophed-k, mcg/kg/min"] == "levophed-k, mcg/kg/min"


def test_infusions_of_the_open_eicu_demo(demo_eicu: Path) -> None:
    usual, cohort = (read_eicu(demo_eicu, charts=False, more=more) for more in ((), ["inputs"]))
    counts, found = cohort.counts, cohort.events.filter(pl.col("code").str.starts_with("INPUT/"))
    assert cohort.shown.visits == usual.shown.visits and not cohort.credentialed
    assert counts["rows.infusiondrug"] == 38_256 == found.height + account(counts, "infusiondrug", "dropped")
    assert counts["dropped.infusiondrug.not_a_number"] == 18 and counts["dropped.infusiondrug.no_value"] == 101
    table = numbers(demo_eicu / "infusiondrug.csv.gz").filter(pl.col("drugname") == "Norepinephrine (mcg/min)")
    rates = table.select(pl.col("drugrate").cast(pl.Float32, strict=False)).drop_nulls()["drugrate"]
    mine = found.filter(code="INPUT/norepinephrine, mcg/min")["numeric_value"]
    assert sorted(mine) == pytest.approx(sorted(rates)) and len(mine) > 2000


def test_one_time_of_carevue_is_when_a_rate_and_an_amount_are_charted(tmp_path: Path) -> None:
    root = write(tmp_path)
    subject, stay, start = read_mimic3(root).visits.select("subject_id", "visit_id", "start").row(0)
    at = (start + timedelta(hours=1)).replace(microsecond=0)
    late = at + timedelta(minutes=20)
    (root / "D_ITEMS.csv").write_text("row_id,itemid,label\n1,30120,Levophed-k\n2,30056,Po Intake\n")
    (root / "INPUTEVENTS_CV.csv").write_text(
        "row_id,subject_id,hadm_id,charttime,storetime,itemid,amount,amountuom,rate,rateuom\n"
        f"1,{subject},{stay},{at},{late},30120,,,0.1,mcgkgmin\n2,{subject},{stay},{at},,30056,120,ml,,\n"
        f"3,{subject},{stay},{at},,30056,,,,\n"
    )
    cohort = read_mimic3(root, more=["inputs"])
    rows = cohort.events.filter(pl.col("code").str.starts_with("INPUT/")).sort("code")
    assert rows.select("code", "time", "recorded", "numeric_value").rows() == [
        ("INPUT/levophed-k, mcg/kg/min", at, late, pytest.approx(0.1)),
        ("INPUT/po intake, ml", at, at, 120.0),
    ]
    assert cohort.counts["absent.inputevents_mv"] == cohort.counts["dropped.inputevents_cv.no_value"] == 1


@pytest.mark.parametrize(
    ("source", "said"),
    [("mimic3", "which has inputs, outputs, transfers, services, notes"), ("meds", "which has none of them")],
)
def test_a_table_that_a_source_has_not_is_a_sentence(tmp_path: Path, source: str, said: str) -> None:
    data: DataConfig = load([f"data={source}", f"data.root={tmp_path}", "data.more=[omr]"]).data
    with pytest.raises(BadInput, match=rf"data.more=\['omr'\] has no tables in data={source}, {said}"):
        read_source(data)
