"""Tables that do not fit in memory: read in parts, the cohort is the same, and it opens without its events."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.ranges import subject_ranges
from ghar.data.readers import events, tables
from ghar.data.readers.cache import EVENTS, load_cohort, store_cohort
from ghar.data.readers.meds import read_meds
from ghar.data.readers.meds_export import write_meds
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.tasks import ehrshot, series
from ghar.data.tasks.ehrshot import EhrshotTask, ehrshot_labels
from ghar.data.tasks.series import series_samples
from ghar.data.tasks.stays import make_samples
from ghar.envs.worlds.severity import generate_world
from ghar.errors import BadInput
from ghar.retrieval import event_build
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import ARRAYS, StoreLayout

pytestmark = pytest.mark.slow

LABS = ("LAB/50912", "LAB/50971", "LAB/51222")


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


def save_cohort(cohort: Cohort, folder: Path) -> None:
    """Write a cohort that is in memory."""

    def events(work: Path) -> Cohort:
        cohort.scan().sink_parquet(work / EVENTS.format(0), compression="lz4")
        return cohort

    store_cohort(events, folder)


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


def test_meds_read_in_parts_is_read_at_once(world, tmp_path, monkeypatch):
    """The worst folder: rows in no order, subjects in both files, stays known by the events at their ends alone."""
    cohort = read_mimic4(world)
    stays = [
        cohort.visits.select("subject_id", time=time, code=pl.lit(code))
        for time, code in (("start", "HOSPITAL_ADMISSION//EW"), ("end", "HOSPITAL_DISCHARGE//HOME"))
    ]
    rows = pl.concat([cohort.events.select("subject_id", "time", "code"), *stays]).sample(
        fraction=1, shuffle=True, seed=1
    )
    (tmp_path / "meds" / "data").mkdir(parents=True)
    for i, half in enumerate((rows[: rows.height // 2], rows[rows.height // 2 :])):
        half.write_parquet(tmp_path / "meds" / "data" / f"{i}.parquet")
    whole = read_meds(tmp_path / "meds")
    monkeypatch.setattr(tables, "HELD", 100)
    monkeypatch.setattr(events, "SORTED", 150)
    parts = read_meds(tmp_path / "meds", tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    assert len(list(folder.glob("events-*.parquet"))) > 5
    assert parts.events.equals(whole.events) and parts.counts == whole.counts
    assert parts.codes.equals(whole.codes) and parts.visits.equals(whole.visits)
    assert whole.events.height == rows.height and whole.visits.height == cohort.visits.height
    assert whole.counts["events_without_visit"] == whole.events["visit_id"].null_count() > 0
    assert whole.counts["repaired.meds.subject_in_several_files"] == cohort.visits["subject_id"].n_unique()


def test_labels_series_store_and_export_leave_the_events_on_disk(world, tmp_path, monkeypatch):
    """Range by range of patients they come to what all events in memory come to."""
    whole = read_mimic4(world)
    cohort = read_mimic4(world, tmp_path / "cache")
    layout = StoreLayout(100, 5, True, "known")
    wanted = [build_event_store(whole, tmp_path / "whole", None, layout)]
    write_meds(whole, tmp_path / "one", shard_size=1000)
    shown = [series_samples(whole, task, features=LABS)[1] for task in ("los", "dec")]
    in_parts = partial(subject_ranges, size=300)
    for module in (series, event_build, ehrshot):
        monkeypatch.setattr(module, "subject_ranges", in_parts)
    monkeypatch.setattr(event_build, "PART", 300)
    assert len(in_parts(cohort.scan())) > 5
    for task in get_args(EhrshotTask):
        assert ehrshot_labels(cohort, task)[0].equals(ehrshot_labels(whole, task)[0])
    for task, others in zip(("los", "dec"), shown, strict=True):
        samples = series_samples(cohort, task, features=LABS)[1]
        assert len(samples) == len(others) > 50
        for one, other in zip(samples, others, strict=True):
            assert one.sample_id == other.sample_id and (one.history.source == other.history.source).all()
    stored = build_event_store(cohort, tmp_path / "parts", None, layout)
    for name in ARRAYS:
        assert (getattr(stored, name) == getattr(wanted[0], name)).all(), name
    write_meds(cohort, tmp_path / "shards", shard_size=7)
    assert "events" not in vars(cohort)
    assert event_build._fingerprint(whole) == event_build._fingerprint(replace(cohort, counts={}))
    exported = (pl.scan_parquet(sorted((tmp_path / name / "data").glob("*"), key=shard)) for name in ("one", "shards"))
    one, shards = (frame.collect() for frame in exported)
    assert one.equals(shards)


def shard(path):
    return int(path.stem)


def test_a_part_cut_short_is_noticed_when_the_cohort_is_opened(world, tmp_path):
    save_cohort(read_mimic4(world), tmp_path / "copy")
    path = tmp_path / "copy" / "events-0000.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadInput, match="delete that folder"):
        load_cohort(tmp_path / "copy")
    path.unlink()  # one that is absent, too
    with pytest.raises(BadInput, match="delete that folder"):
        load_cohort(tmp_path / "copy")


def test_a_cache_of_an_earlier_layout_is_rebuilt_and_never_misread(world, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "LAYOUT", tables.LAYOUT - 1)
    read_mimic4(world, tmp_path)
    (old,) = tmp_path.iterdir()
    monkeypatch.undo()
    kept = sorted((path.name, path.stat().st_mtime_ns) for path in old.iterdir())
    read_mimic4(world, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert kept == sorted((path.name, path.stat().st_mtime_ns) for path in old.iterdir())
    # Layout 2 had no codes by visit; the first one had one file of events, and did not say how many.
    (old / "visit_rows.parquet").unlink()
    with pytest.raises(BadInput, match="delete that folder"):
        load_cohort(old)
    (old / "events-0000.parquet").rename(old / "events.parquet")
    about = json.loads((old / "cohort.json").read_text())
    (old / "cohort.json").write_text(json.dumps({key: value for key, value in about.items() if key != "parts"}))
    with pytest.raises(BadInput, match="delete that folder"):
        load_cohort(old)


def test_what_a_visit_shows_is_kept_in_the_cache_until_the_cohort_is_changed(world, tmp_path):
    whole, cohort = read_mimic4(world), read_mimic4(world, tmp_path)
    assert cohort.shown.visits == whole.shown.visits and cohort.shown.recorded.equals(whole.shown.recorded)
    backwards = replace(cohort, visits=cohort.visits.reverse())
    assert dict(backwards.shown.visits) == dict(whole.shown.visits)
    assert list(backwards.shown.visits) == list(whole.shown.visits)[::-1]
    drug = cohort.codes.filter(pl.col("code").str.starts_with("DRUG/"))["code"][0]
    other = pl.col("code").replace({drug: "DRUG/another"})
    renamed = replace(cohort, table=cohort.table.with_columns(other), codes=cohort.codes.with_columns(other))
    found = [code for visit in renamed.shown.visits.values() for code in visit.medications]
    assert "DRUG/another" in found and drug not in found
