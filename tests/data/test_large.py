"""Tables that do not fit in memory: read in parts, the cohort is the same, and it opens without its events."""

import polars as pl
import pytest

from ghar.data import events, tables
from ghar.data.cache import load_cohort, save_cohort
from ghar.data.demo import generate_world
from ghar.data.mimic4 import read_mimic4
from ghar.data.tasks import make_samples
from ghar.errors import BadInput


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Tables whose patients are in no order: the worst case of reading range by range."""
    root = tmp_path_factory.mktemp("large") / "world"
    generate_world(root, seed=3, patients=60, labs_per_visit=20)
    for name in ("labevents", "prescriptions"):
        path = root / "hosp" / f"{name}.csv.gz"
        rows = pl.read_csv(path, infer_schema=False).sample(fraction=1, shuffle=True, seed=5)
        rows.write_csv(path.with_suffix(""))
        path.unlink()
    return root


def test_read_in_parts_is_read_at_once(world, tmp_path, monkeypatch):
    whole = read_mimic4(world)
    monkeypatch.setattr(tables, "HELD", 100)
    monkeypatch.setattr(events, "SORTED", 150)
    cohort = read_mimic4(world, tmp_path)
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.glob("events-*.parquet"))) > 5 and not (folder / "work").exists()
    assert isinstance(cohort.table, pl.LazyFrame)
    assert make_samples(cohort, "los") == make_samples(whole, "los")
    assert "events" not in vars(cohort)  # the samples did not need them in memory
    assert cohort.events.equals(whole.events) and cohort.counts == whole.counts
    assert cohort.codes.equals(whole.codes) and cohort.visits.equals(whole.visits)
    assert read_mimic4(world).events.equals(whole.events)  # in parts, without a cache
    save_cohort(cohort, tmp_path / "copy")
    assert load_cohort(tmp_path / "copy").events.equals(whole.events)


def test_a_part_cut_short_is_noticed_when_the_cohort_is_opened(world, tmp_path):
    save_cohort(read_mimic4(world), tmp_path / "copy")
    path = tmp_path / "copy" / "events-0000.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadInput, match="delete that folder"):
        load_cohort(tmp_path / "copy")
    path.unlink()  # one that is absent, too
    with pytest.raises(BadInput, match="delete that folder"):
        load_cohort(tmp_path / "copy")
