"""The open eICU demo: every row accounted for, and label counts recounted from the raw table."""

import shutil
from collections import Counter

import polars as pl
import pytest

from ghar.data.readers import events, tables
from ghar.data.readers.eicu import read_eicu
from ghar.data.tasks.stays import make_samples
from tests.data.audit import audit
from tests.data.eicu_tables import assert_conserved, write


@pytest.fixture(scope="module")
def cohort(eicu_cohort):
    return eicu_cohort


def test_real_demo_keeps_every_row(cohort, demo_eicu):
    assert not cohort.credentialed and not cohort.generated
    assert_conserved(cohort)
    # 1,841 patients, 2,520 ICU stays; blank drug names 30,661 of 75,604
    assert cohort.visits.height == 2520 and cohort.visits["subject_id"].n_unique() == 1841
    counts = cohort.counts
    rows = {"diagnosis": 24978, "medication": 75604, "treatment": 38290, "lab": 29961, "vitalaperiodic": 3 * 274088}
    assert {name: counts[f"rows.{name}"] for name in rows} == rows
    assert counts["dropped.medication.blank_drug"] == 30661
    raw = pl.read_csv(demo_eicu / "medication.csv.gz", infer_schema=False)
    cancelled = raw.filter(pl.col("drugordercancelled") == "Yes")
    named = cancelled.filter(pl.col("drugname").str.strip_chars() != "")
    assert cancelled.height == 2636 and counts["dropped.medication.cancelled"] == named.height == 1522
    # No visit number contradicts the minutes; units say Expired for five patients whose hospital says Alive
    assert "repaired.patient.visit_number_not_in_time_order" not in counts
    assert counts["repaired.patient.expired_but_hospital_says_alive"] == 5 and cohort.visits["died"].sum() == 126
    assert counts["repaired.patient.age_over_89"] == 98
    # 17,282 rows repeat a (stay, code); a visit shows each code once all the same
    assert all(len(v.diagnoses) == len(set(v.diagnoses)) for s in make_samples(cohort, "los")[1] for v in s.history)


@pytest.mark.slow
def test_read_in_parts_is_read_at_once(cohort, eicu_folder, tmp_path, monkeypatch):
    """Laboratory, medication and chart rows in the real format, through files of 20,000 rows and ranges of patients."""
    monkeypatch.setattr(tables, "HELD", 20_000)
    monkeypatch.setattr(events, "SORTED", 200_000)
    parts = read_eicu(eicu_folder, tmp_path)
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.glob("events-*.parquet"))) > 3
    assert parts.events.equals(cohort.events) and parts.counts == cohort.counts


def test_a_part_of_the_demo_counts_as_credentialed(tmp_path, demo_eicu):
    root = write(tmp_path)
    (root / "patient.csv").unlink()
    shutil.copy(demo_eicu / "subset_174_stays/patient.csv.gz", root / "patient.csv.gz")
    assert read_eicu(root).credentialed
    (root / "patient.csv.gz").unlink()
    shutil.copy(demo_eicu / "patient.csv.gz", root / "patient.csv.gz")
    assert read_eicu(root).credentialed  # the right stays with other tables


def labels(samples):
    return dict(Counter(sample.label for sample in samples))


@pytest.mark.slow
def test_label_counts_of_the_demo(cohort, demo_eicu):
    frame = pl.read_csv(demo_eicu / "patient.csv.gz", infer_schema_length=None)
    # LOS-10 of the ICU stay: whole days; 8..14 -> 8, more -> 9; no stay of the demo is negative
    expected = Counter(9 if d > 14 else 8 if d > 7 else d for d in frame["unitdischargeoffset"] // 1440)
    for leakage in ("paper", "strict"):
        assert labels(make_samples(cohort, "los", leakage=leakage)[1]) == expected
    assert expected == {0: 893, 1: 695, 2: 383, 3: 185, 4: 101, 5: 69, 6: 49, 7: 32, 8: 73, 9: 40}
    # READ: a next ICU stay in the same hospital stay. Minutes since the hospital admission make them comparable.
    # 2,520 - 2,174 hospital stays = 346 have a next one, nobody left them dead; all but three came within 15 days
    order = frame.with_columns(since=-pl.col("hospitaladmitoffset")).sort(
        "patienthealthsystemstayid", "unitvisitnumber"
    )
    gap = pl.col("since").shift(-1).over("patienthealthsystemstayid") - pl.col("since") - pl.col("unitdischargeoffset")
    following = order.with_columns(gap=gap).drop_nulls("gap")
    assert following.height == 346 and (following["gap"] >= 0).all()
    assert "Expired" not in following["unitdischargestatus"]
    # 246 of the 346 begin at the minute at which the last one ended: moves between units, no returns. Of the other 100,
    # 97 came within 15 days; 11 further stays ended with a move from which the patient left and then returned.
    assert following.filter(pl.col("gap") == 0).height == 246
    assert following.filter(pl.col("gap").is_between(1, 15 * 1440)).height == 97
    soon = 0
    for _, stays in order.group_by("patienthealthsystemstayid", maintain_order=True):
        spans = [(since, since + lasts) for since, lasts in stays.select("since", "unitdischargeoffset").rows()]
        for place, (_, left) in enumerate(spans):
            later = zip(spans[place + 1 :], spans[place:], strict=False)  # each later stay, and the one before it
            back = [start for (start, _), (_, end) in later if start > end]
            soon += bool(back) and back[0] - left <= 15 * 1440
    # The last ICU stay of the other hospital stays is negative, unless it ended with the death
    last = order.unique("patienthealthsystemstayid", keep="last").filter(pl.col("unitdischargestatus") != "Expired")
    assert last.height == 2174 - 126
    assert labels(make_samples(cohort, "read")[1]) == {0: 346 - soon + last.height, 1: soon} == {0: 2286, 1: 108}
    # DEC: deaths in the unit, not those the hospital reports for all of its ICU stays (trap 7: 212 stays)
    deaths = frame.filter(pl.col("unitdischargestatus") == "Expired")
    assert frame.filter(pl.col("hospitaldischargestatus") == "Expired").height == 212
    assert labels(make_samples(cohort, "dec")[1]) == {0: 2520 - deaths.height, 1: deaths.height} == {0: 2394, 1: 126}
    early = deaths.filter(pl.col("unitdischargeoffset") <= 1440).height
    assert labels(make_samples(cohort, "dec", anchor="admission")[1]) == {0: 2520 - early, 1: early} == {0: 2473, 1: 47}


@pytest.mark.slow
@pytest.mark.parametrize("task", ["los", "read", "dec"])
def test_strict_shows_nothing_that_was_recorded_later(cohort, task):
    assert audit(cohort, make_samples(cohort, task, leakage="strict")[1]).is_empty()
    assert audit(cohort, make_samples(cohort, task)[1]).height > 0
