"""MEDS folders: what goes out comes back, what others wrote is read, and nothing disappears without a count."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ghar.data.cohort import Cohort
from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.meds import read_meds
from ghar.data.readers.meds_export import write_meds
from ghar.data.readers.meds_labels import read_labels, read_subject_splits
from ghar.data.readers.mimic3 import read_mimic3
from ghar.data.tasks.icu import icu_stays
from ghar.data.tasks.stays import make_samples
from ghar.errors import BadInput

T0 = datetime(2150, 1, 1, 12)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
US = pl.Datetime("us")


def shard(root: Path, rows, name: str = "train/0", **columns) -> Path:
    """One data file: rows of (subject, time, code), and further columns."""
    path = root / "data" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pl.DataFrame(rows, {"subject_id": pl.Int64, "time": US, "code": pl.String}, orient="row")
    frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()}).write_parquet(path)
    return root


@pytest.fixture(scope="module")
def cohort(mimic4_cohort) -> Cohort:
    return mimic4_cohort


@pytest.fixture(scope="module")
def exported(meds_folder) -> Path:
    return meds_folder


@pytest.mark.slow
def test_the_demo_comes_back_whole(cohort, exported):
    back = read_meds(exported)
    for frame in ("events", "codes", "visits"):
        assert getattr(back, frame).equals(getattr(cohort, frame)), frame
    assert (back.generated, back.credentialed) == (cohort.generated, cohort.credentialed)
    # The source's own files count 131,182 rows of these; the reader adds demographics and vital signs.
    coded = back.events.filter(pl.col("code").str.contains("^(ICD|DRUG|DILUENT|LAB|ICU_ADMISSION)"))
    assert coded.height == 4506 + 722 + 18087 + 107727 + 140
    # 275 admissions, as many discharges, and the deaths among them are written as events beside, and left out again
    assert back.events.height == cohort.events.height and back.counts["dropped.meds.added_by_the_export"] == 565
    assert back.counts["rows.meds"] == back.events.height + 565
    assert cohort.counts.items() <= back.counts.items()
    for task in ("los", "read", "dec"):
        assert make_samples(back, task) == make_samples(cohort, task)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["mimic3", "eicu"])
def test_the_other_sources_come_back_whole(shared_data, tmp_path, source):
    folder = {"mimic3": "mimic-iii-demo-1.4", "eicu": "eicu-crd-demo-2.0.1"}[source]
    cohort = {"mimic3": read_mimic3, "eicu": read_eicu}[source](shared_data / folder, charts=True)
    write_meds(cohort, tmp_path / "out")
    back = read_meds(tmp_path / "out")
    for frame in ("events", "codes", "visits"):
        assert getattr(back, frame).equals(getattr(cohort, frame)), frame
    lost = {rule for rule in back.counts if rule.startswith(("dropped.meds", "repaired.meds"))}
    assert lost == {"dropped.meds.added_by_the_export"}
    assert back.stay == cohort.stay and make_samples(back, "read") == make_samples(cohort, "read")


def test_the_files_have_the_types_of_meds(exported):
    files = sorted((exported / "data").glob("*.parquet"))
    assert [f.name for f in files] == ["0.parquet", "1.parquet", "2.parquet", "3.parquet"]
    want = {"subject_id": "int64", "time": "timestamp[us]", "code": "string", "numeric_value": "float"}
    seen: set[int] = set()
    for file in files:
        types = {field.name: str(field.type) for field in pq.read_schema(file)}
        assert types == want | {"text_value": "large_string", "visit_id": "int64", "recorded": "timestamp[us]"}
        subjects = pl.read_parquet(file)["subject_id"]
        assert not seen & set(subjects) and subjects.is_sorted()  # a subject in one file, contiguous
        seen |= set(subjects)
    assert len(seen) == 100
    types = {field.name: str(field.type) for field in pq.read_schema(exported / "metadata/codes.parquet")}
    assert types["parent_codes"].startswith("list<") and (types["code"], types["description"]) == ("string", "string")
    assert json.loads((exported / "metadata/dataset.json").read_text())["meds_version"] == "0.4.1"


def test_the_schema_of_the_meds_package_agrees(exported):
    meds = pytest.importorskip("meds", reason="the package meds is not installed")
    meds.DataSchema.validate(pq.read_table(exported / "data/0.parquet"))
    meds.CodeMetadataSchema.validate(pq.read_table(exported / "metadata/codes.parquet"))


events = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.none() | st.integers(0, 50).map(lambda h: T0 + h * HOUR),
        st.sampled_from(["LAB/1", "DRUG/a b", "ICD10CM/I509", "x"]),
        st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),  # infinite ones are counted and blanked
        st.none() | st.text(max_size=3),
        st.none() | st.integers(1, 9),
        st.none() | st.integers(0, 60).map(lambda h: T0 + h * HOUR),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(events, st.integers(1, 3))
def test_every_event_comes_back(tmp_path_factory, rows, shard_size):
    columns = {"subject_id": pl.Int64, "time": US, "code": pl.String, "numeric_value": pl.Float32}
    columns |= {"text_value": pl.String, "visit_id": pl.Int64, "recorded": US}
    frame = pl.DataFrame(rows, columns, orient="row").sort("subject_id", "time", maintain_order=True)
    codes = frame.select(pl.col("code").unique().sort(), description=pl.lit("name"))
    codes = codes.with_columns(parents=pl.lit(["p"], pl.List(pl.String)))
    visits = pl.DataFrame(
        [(1, 1, T0, None, False, None)],
        {"subject_id": pl.Int64, "visit_id": pl.Int64, "start": US, "end": US, "died": pl.Boolean, "death_time": US},
        orient="row",
    )
    root = tmp_path_factory.mktemp("any") / "out"
    visits = visits.with_columns(group=pl.lit(5, pl.Int64))
    write_meds(Cohort("any", frame, codes, visits, True, counts={"rows.x": 3}, stay="ICU"), root, shard_size)
    back = read_meds(root)
    assert back.stay == "ICU"
    assert back.events.equals(frame) and back.codes.equals(codes) and back.visits.equals(visits)
    assert back.generated and back.counts["rows.x"] == 3
    assert back.counts["rows.meds"] == len(rows) + back.counts["dropped.meds.added_by_the_export"]


untidy = st.lists(
    st.tuples(
        st.none() | st.integers(1, 3),
        st.none() | st.integers(0, 50).map(lambda h: T0 + h * HOUR),
        st.none() | st.sampled_from(["LAB/1", "ADMISSION//ER", "DISCHARGE//DIED", "MEDS_DEATH", "Visit/IP", ""]),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(untidy, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_no_row_is_lost_without_a_count(tmp_path_factory, shards, keyed, old):
    """Files of any order and with holes, with and without identifiers of visits; MEDS 0.3 writes text as `string`."""
    root = tmp_path_factory.mktemp("untidy")
    for i, rows in enumerate(shards):
        more = {"hadm_id": [k % 3 for k in range(len(rows))]} if keyed else {}
        more |= {"text_value": [None] * len(rows), "numeric_value": [1.5] * len(rows)} if old else {}
        shard(root, rows, f"train/{i}", **more)
    found = read_meds(root)
    total = sum(map(len, shards))
    dropped = sum(n for rule, n in found.counts.items() if rule.startswith("dropped.meds."))
    assert found.counts.get("rows.meds", 0) == total == found.events.height + dropped
    known = [(s, t, c) for rows in shards for s, t, c in rows if s is not None and c is not None]
    kept = sorted((s, str(t), c) for s, t, c in known if t is not None or c != "LAB/1")  # a result of no time
    assert sorted((s, str(t), c) for s, t, c in found.events.select("subject_id", "time", "code").rows()) == kept
    times = found.events.select((pl.col("time") < pl.col("time").shift()).sum().over("subject_id").alias("late"))
    assert found.events["subject_id"].is_sorted() and times["late"].sum() == 0
    assert set(found.events["code"]) <= set(found.codes["code"])
    visits = found.visits
    assert visits.filter((pl.col("end") < pl.col("start")) | (pl.col("death_time") < pl.col("start"))).is_empty()
    assert visits["death_time"].is_not_null().to_list() == visits["died"].to_list()


def test_icu_stays_and_groups_come_back(mimic4_cohort, meds_cohort, eicu_cohort, tmp_path):
    """Which ICU stay belongs to which hospital stay survives the folder, for MIMIC and for eICU (visits.group)."""
    assert icu_stays(meds_cohort).equals(icu_stays(mimic4_cohort)) and icu_stays(meds_cohort).height == 140
    few = replace(eicu_cohort, table=eicu_cohort.events[:2000])
    write_meds(few, tmp_path / "eicu")
    back = read_meds(tmp_path / "eicu")
    assert back.visits.equals(eicu_cohort.visits) and back.visits["group"].n_unique() == 2174 and back.stay == "ICU"


def test_visits_are_derived_from_admissions_and_discharges(cohort, tmp_path):
    """The demo's visits as MIMIC_IV_MEDS would write them, once with hadm_id and once without."""
    visits = cohort.visits
    start = visits.select("subject_id", time="start", code=pl.lit("HOSPITAL_ADMISSION//URGENT//ER"), hadm_id="visit_id")
    end = visits.select("subject_id", time="end", code=pl.lit("HOSPITAL_DISCHARGE//HOME"), hadm_id="visit_id")
    deaths = visits.filter("died").select("subject_id", time="death_time", code=pl.lit("MEDS_DEATH"))
    rows = pl.concat([start, end, deaths.with_columns(hadm_id=pl.lit(None, pl.Int64))]).sort("subject_id", "time")
    for name, frame in (("keyed", rows), ("bare", rows.drop("hadm_id"))):
        (tmp_path / name / "data").mkdir(parents=True)
        frame.write_parquet(tmp_path / name / "data" / "0.parquet")
        found = read_meds(tmp_path / name)
        assert found.visits.drop("visit_id").equals(visits.drop("visit_id"))
        assert found.counts["visits_derived"] == 275
        assert found.events.filter(pl.col("code") == "HOSPITAL_ADMISSION//URGENT//ER")["visit_id"].null_count() == 0
        if name == "keyed":
            assert found.visits["visit_id"].equals(visits["visit_id"])


def test_rules_of_derived_visits(tmp_path):
    rows = [
        (1, None, "GENDER//F"),
        (1, T0, "ENCOUNTER_START"),
        (1, T0 + HOUR, "LAB/1"),
        (1, T0 + 2 * HOUR, "ENCOUNTER_END//HOME"),
        (1, T0 + 5 * HOUR, "LAB/1"),
        (1, T0 + DAY, "ENCOUNTER_START"),  # never closed
        (1, T0 + DAY + HOUR, "LAB/1"),
        (2, T0, "ADMISSION//ER"),
        (2, T0 + 2 * HOUR, "DISCHARGE//DIED"),
        (3, T0, "ADMISSION"),
        (3, datetime(2150, 1, 2), "MEDS_DEATH"),  # a date, before the discharge on that day
        (3, datetime(2150, 1, 2, 9), "DISCHARGE"),
        (4, T0, "ICU_ADMISSION/MICU"),
    ]
    found = read_meds(shard(tmp_path, rows))
    assert found.visits.drop("visit_id").rows() == [
        (1, T0, T0 + 2 * HOUR, False, None),
        (1, T0 + DAY, None, False, None),
        (2, T0, T0 + 2 * HOUR, True, T0 + 2 * HOUR),
        (3, T0, datetime(2150, 1, 2, 9), True, datetime(2150, 1, 2, 9)),
    ]
    first, second = found.visits["visit_id"][:2]
    labs = found.events.filter(pl.col("code") == "LAB/1")["visit_id"].to_list()
    assert labs == [first, None, second]
    assert found.counts["visits_without_discharge"] == 1 and found.counts["events_without_visit"] == 3
    assert found.codes.filter(pl.col("code") == "GENDER/F")["description"].to_list() == ["female"]


def test_inpatient_events_with_an_end_are_visits(tmp_path):
    rows = [(1, T0, "Visit/IP"), (1, T0 + HOUR, "SNOMED/1"), (1, T0 + 9 * DAY, "Visit/OP")]
    ends = pl.Series([T0 + DAY, None, T0 + 9 * DAY], dtype=US)
    found = read_meds(shard(tmp_path, rows, end=ends, visit_id=[7, 7, 8], unit=["", " g/dL", "  "]))
    assert found.visits.select("visit_id", "start", "end").rows() == [(7, T0, T0 + DAY)]
    assert found.events["visit_id"].to_list() == [7, 7, None]
    assert found.events["unit"].to_list() == [None, "g/dL", None]  # MIMIC has two blanks of a specific gravity


def test_untidy_folders_are_put_right_and_counted(tmp_path):
    shard(tmp_path, [(1, T0 + HOUR, "b"), (1, T0, "a"), (None, T0, "x"), (1, T0, None)])
    shard(
        tmp_path,
        [(1, T0 + DAY, "c"), (2, None, "s"), (2, T0, "t"), (2, None, "u")],
        "tuning/0",
        numeric_value=[1, 2, 3, 4],
    )
    found = read_meds(tmp_path)
    assert found.events["code"].to_list() == ["a", "b", "c", "s", "u", "t"]
    wanted = {"rows.meds": 8, "dropped.meds.no_subject": 1, "dropped.meds.no_code": 1}
    wanted |= {"repaired.meds.out_of_order": 2, "repaired.meds.subject_in_several_files": 1}
    assert wanted.items() <= found.counts.items()
    assert found.events["recorded"].equals(found.events["time"].alias("recorded"))
    assert found.credentialed and not found.generated


def test_the_cache_notices_a_changed_file(tmp_path):
    root = shard(tmp_path / "meds", [(1, T0, "a")])
    assert read_meds(root, tmp_path / "cache").events.height == 1
    shard(root, [(1, T0, "a"), (1, T0, "b")])
    assert read_meds(root, tmp_path / "cache").events.height == 2
    assert read_meds(root, tmp_path / "cache").events.equals(read_meds(root).events)


def test_refused_folders(tmp_path, cohort, exported):
    with pytest.raises(BadInput, match="has no data"):
        read_meds(tmp_path)
    with pytest.raises(BadInput, match="is not empty"):
        write_meds(cohort, exported)
    with pytest.raises(BadInput, match="shard_size=0"):
        write_meds(cohort, tmp_path / "new", shard_size=0)
    path = tmp_path / "a" / "data" / "0.parquet"
    path.parent.mkdir(parents=True)
    pl.DataFrame({"patient_id": [1], "time": [T0], "code": ["a"]}).write_parquet(path)
    with pytest.raises(BadInput, match="no column subject_id"):
        read_meds(tmp_path / "a")
    pl.DataFrame({"subject_id": ["p1"], "time": [T0], "code": ["a"]}).write_parquet(path)
    with pytest.raises(BadInput, match="column subject_id is String"):
        read_meds(tmp_path / "a")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadInput, match="cannot be read"):
        read_meds(tmp_path / "a")


def test_labels(tmp_path):
    path = tmp_path / "labels.parquet"
    frame = pl.DataFrame({"subject_id": [2, 1], "prediction_time": [T0, T0 + DAY], "boolean_value": [True, False]})
    frame.with_columns(integer_value=pl.lit(None, pl.Int64)).write_parquet(path)
    labels = read_labels(path)
    assert labels.columns == ["subject_id", "prediction_time", "boolean_value"]
    assert labels.rows() == [(1, T0 + DAY, False), (2, T0, True)]
    frame.with_columns(boolean_value=pl.lit(None, pl.Boolean)).write_parquet(path)
    with pytest.raises(BadInput, match="2 rows without subject, time or value"):
        read_labels(path)
    with pytest.raises(BadInput, match="no label file"):
        read_labels(tmp_path / "nowhere.parquet")


def test_splits_that_come_with_the_folder(tmp_path):
    with pytest.raises(BadInput, match="comes without a split"):
        read_subject_splits(tmp_path)
    (tmp_path / "metadata").mkdir()
    path = tmp_path / "metadata" / "subject_splits.parquet"
    pl.DataFrame({"subject_id": [1, 2], "split": ["train", "held_out"]}).write_parquet(path)
    assert read_subject_splits(tmp_path) == {1: "train", 2: "held_out"}
    pl.DataFrame({"subject_id": [1, 1], "split": ["train", "held_out"]}).write_parquet(path)
    with pytest.raises(BadInput, match="names a subject twice"):
        read_subject_splits(tmp_path)
