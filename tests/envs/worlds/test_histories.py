"""The world of long histories: its story against a direct count, its files as the ordinary reader reads them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.readers.meds import read_meds
from ghar.data.readers.meds_labels import read_labels, read_subject_splits
from ghar.envs.worlds.histories import story
from ghar.envs.worlds.histories.truth import LongTruth, load_truth
from ghar.envs.worlds.histories.world import EXCHANGES, INDEX, LAST, MENTIONS, generate_long
from ghar.errors import BadInput

PATIENTS = 60


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "world"
    generate_long(folder, name="demo_long_small", seed=3, patients=PATIENTS)
    return folder


@pytest.fixture(scope="module")
def cohort(root: Path) -> Cohort:
    return read_meds(root)


@pytest.fixture(scope="module")
def truth(root: Path) -> LongTruth:
    return load_truth(root)


def test_every_ceiling_is_that_of_the_best_table_of_answers() -> None:
    """Directly: for every subset, of all tables from what is known to an answer the one that is right most often."""
    switches = list(product((False, True), repeat=3))

    def share(state: tuple[bool, ...]) -> float:
        chances = (story.TRIGGER, story.SLOPE, story.EXCULPATED)
        return float(np.prod([p if on else 1 - p for p, on in zip(chances, state, strict=True)]))

    for name, value in story.ceilings().items():
        evidence = set(name.split(" and "))
        seen = [i for i, needs in enumerate(({"onset", "trigger"}, {"slope"}, {"exculpating"})) if needs <= evidence]
        right = 0.0
        for known in {tuple(state[i] for i in seen) for state in switches}:
            masses = [0.0, 0.0]
            for state in switches:
                if tuple(state[i] for i in seen) == known:
                    critical = (state[0] or state[1]) and not state[2]
                    for label in (0, 1):
                        masses[label] += share(state) * (0.96 if critical == label else 0.04)
            right += max(masses)
        assert value == pytest.approx(right)


def test_each_mechanism_is_worth_something_and_the_onset_alone_nothing() -> None:
    found = story.ceilings()
    every = " and ".join(story.EVIDENCE)
    assert len(found) == 16 and found[every] == max(found.values()) == pytest.approx(1 - story.NOISE)
    for left_out in story.EVIDENCE:
        less = found[" and ".join(one for one in story.EVIDENCE if one != left_out)]
        assert found[every] - less > 0.08
    assert found["onset"] == found["trigger"] == found["nothing"]


def test_the_ordinary_reader_reads_it(root: Path, cohort: Cohort) -> None:
    assert cohort.generated and not cohort.credentialed
    assert not {rule for rule in cohort.counts if rule.startswith(("repaired.", "dropped."))}
    sizes = cohort.events.group_by("subject_id").len()["len"]
    assert sizes.len() == PATIENTS and 500 <= sizes.min() and sizes.max() <= 2_500 + 500  # type: ignore[operator]
    years = cohort.events.filter(pl.col("code") != "MEDS_BIRTH").group_by("subject_id").agg(
        (pl.col("time").max() - pl.col("time").min()).dt.total_days() / 365
    )["time"]  # fmt: skip
    assert 9.5 < years.min() and years.max() < 31  # type: ignore[operator]
    labels, splits = read_labels(root / "labels" / "critical.parquet"), read_subject_splits(root)
    assert labels.height == PATIENTS and set(splits.values()) == {"train", "tuning", "held_out"}
    assert sum(split == "held_out" for split in splits.values()) == 0.4 * PATIENTS
    last = cohort.events.group_by("subject_id").agg(pl.col("time").max())
    assert labels.join(last, on="subject_id").select((pl.col("time") < pl.col("prediction_time")).all()).item()


@pytest.mark.slow
def test_the_rows_that_tell_stand_in_the_record_where_the_story_has_them(cohort: Cohort, truth: LongTruth) -> None:
    names = cohort.names()
    for subject, gold in truth.gold.items():
        events = cohort.events.filter(pl.col("subject_id") == subject, pl.col("time").is_not_null())
        rows = {(f"[{time:%Y-%m-%d %H:%M:%S}]", names[code]): value for time, code, value in
                events.select("time", "code", "numeric_value").iter_rows()}  # fmt: skip
        trigger, rising, ended = truth.switches[subject]
        assert set(gold) == {"onset", "slope", *(["trigger"] if trigger else []), *(["exculpating"] if ended else [])}
        assert all(row in rows for some in gold.values() for row in some) and len(gold["slope"]) == LAST
        values = [rows[row] for row in gold["slope"]]
        assert (np.polyfit(range(LAST), values, 1)[0] > 0) == rising
        readings = events.filter(pl.col("code") == f"LAB/{INDEX.lower()}")["numeric_value"].to_list()
        assert readings[-LAST:] == values and len(readings) > 10 * LAST


def test_nothing_but_the_kind_of_the_onset_tells_the_exchanges_apart(cohort: Cohort, truth: LongTruth) -> None:
    """Everyone has as many exchanges, of as many kinds, and as many idle mentions."""
    for subject in truth.gold:
        own = cohort.events.filter(pl.col("subject_id") == subject)["code"]
        pumps = own.filter(own.str.ends_with("-pump-exchange"))
        assert len(pumps) == EXCHANGES == pumps.n_unique()
        assert own.str.contains("screening|family-history|leaflet").sum() == MENTIONS


def test_the_same_parameters_are_kept_and_others_refused(root: Path, tmp_path: Path) -> None:
    before = (root / "manifest.json").stat().st_mtime_ns
    generate_long(root, name="demo_long_small", seed=3, patients=PATIENTS)
    assert (root / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(BadInput, match="holds something else"):
        generate_long(root, name="demo_long_small", seed=4, patients=PATIENTS)
    again = tmp_path / "again"
    generate_long(again, name="demo_long_small", seed=3, patients=PATIENTS)
    for name in ("data/0.parquet", "truth.parquet", "gold.parquet", "labels/critical.parquet"):
        assert pl.read_parquet(again / name).equals(pl.read_parquet(root / name))
    assert json.loads((again / "manifest.json").read_text())["generated"] is True
    with pytest.raises(BadInput, match="no finished world"):
        load_truth(tmp_path)
