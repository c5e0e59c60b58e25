"""The demo world's charts: beside the world, the same for the same seed, inside ICU stays, plausible."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl
import pytest

from ghar.data.readers.mimic4 import read_mimic4
from ghar.envs.worlds.severity import generate_world, load_world
from ghar.envs.worlds.severity.charts import COLUMNS, charted_world
from ghar.errors import BadInput
from ghar.seal import SEAL


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("charts") / "world"
    generate_world(root, seed=2, patients=120)
    return root


@pytest.fixture(scope="module")
def charts(world: Path) -> pl.DataFrame:
    path = charted_world(world) / "icu/chartevents.csv.gz"
    return pl.read_csv(path, try_parse_dates=True, schema_overrides={"value": pl.String})


def test_the_world_itself_stays_as_it_is(world: Path) -> None:
    before = contents(world)
    after = contents(charted_world(world))
    assert contents(world) == before
    extra, _ = after.pop("icu/chartevents.csv.gz"), (after.pop(SEAL), before.pop(SEAL))
    assert after == before and gzip.decompress(extra).startswith(",".join(COLUMNS).encode())


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(world: Path, tmp_path: Path) -> None:
    generate_world(tmp_path / "again", seed=2, patients=120)
    generate_world(tmp_path / "other", seed=3, patients=120)
    files = [charted_world(root) / "icu/chartevents.csv.gz" for root in (world, tmp_path / "again", tmp_path / "other")]
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()
    stamp = files[1].stat().st_mtime_ns
    assert charted_world(tmp_path / "again") == files[1].parents[1] and files[1].stat().st_mtime_ns == stamp


def test_a_folder_that_is_no_world_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no demo world"):
        charted_world(tmp_path / "nothing")


def test_rows_lie_in_their_icu_stay(world: Path, charts: pl.DataFrame) -> None:
    stays = pl.read_csv(world / "icu/icustays.csv.gz", try_parse_dates=True)
    joined = charts.join(stays, on=["subject_id", "hadm_id", "stay_id"], how="left")
    assert joined["intime"].null_count() == 0
    assert joined.select((pl.col("charttime") >= pl.col("intime")).all()).item()
    assert joined.select((pl.col("charttime") < pl.col("outtime")).all()).item()
    assert joined.select((pl.col("storetime") > pl.col("charttime")).all()).item()
    assert charts["stay_id"].n_unique() == stays.height
    once = charts.filter(pl.col("itemid").is_in([226512, 226730]))
    assert once.group_by("stay_id", "itemid").len()["len"].max() == 1


@pytest.mark.slow
def test_the_reader_takes_all_of_it(world: Path, charts: pl.DataFrame) -> None:
    cohort = read_mimic4(charted_world(world))
    kept = cohort.events.filter(pl.col("code").str.starts_with("VITAL/"))
    assert kept.height >= charts.height and cohort.generated
    assert not [name for name in cohort.counts if name.startswith("dropped.chartevents")]
    assert set(kept["code"]) >= {"VITAL/heart rate", "VITAL/capillary refill rate", "VITAL/ph", "VITAL/weight"}
    assert "VITAL/glasgow coma scale total" not in set(kept["code"])  # as in MIMIC-IV
    other = ~pl.col("code").str.starts_with("VITAL/")
    assert read_mimic4(world).events.filter(other).equals(cohort.events.filter(other))


def test_the_sicker_look_sicker(world: Path, charts: pl.DataFrame) -> None:
    truth = load_world(world).truth.select(hadm_id="visit_id", acuity="acuity")
    rows = charts.join(truth, on="hadm_id")
    for item, sign in ((220045, 1), (220179, -1), (220739, -1), (223830, -1)):
        one = rows.filter(itemid=item).group_by("hadm_id", "acuity").agg(pl.col("valuenum").mean())
        assert sign * one.select(pl.corr("acuity", "valuenum")).item() > 0.2
