"""Every task on visits by one function: EHRSHOT's as visits of codes, a benchmark's own labels, what was there when."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.config import DataConfig
from ghar.config import TaskConfig as TaskConfig
from ghar.data.cohort import Visit
from ghar.data.tasks.ehrshot import TASKS, ehrshot_labels
from ghar.data.tasks.first_day import FIRST_DAY
from ghar.data.tasks.labelled import NO_VISIT, labelled_samples
from ghar.data.tasks.own_labels import label_rows, own_labels, own_splits, split_samples
from ghar.data.tasks.visits import VISIT_TASKS, read_task, visit_samples
from ghar.data.views.visits import visit_list
from ghar.data.visit_codes import KIND_NAMES, KINDS
from ghar.errors import BadInput
from tests.data.audit import audit, ehrshot_samples
from tests.data.small import DAY, HOUR, START, US, balance, small_cohort

pytestmark = pytest.mark.slow

EVENING = START.replace(hour=23, minute=59, second=59)
SECOND = timedelta(seconds=1)


def task_named(name: str) -> TaskConfig:
    return TaskConfig(
        name=name, anchor="discharge", window_days=15, complete=False, draw="all", patients=None,
        legacy_order=False, split=(0.6, 0.2, 0.2), split_of="task", split_seed=0, max_train=None, max_valid=None,
        max_test=None, labels=None, question=None, bins=None, stays=(),
    )  # fmt: skip


def data_in(root, name="meds", leakage="paper") -> DataConfig:
    return DataConfig(
        name=name,
        root=str(root),
        patients=1,
        world_seed=0,
        mix="graph",
        leakage=leakage,
        codes=None,
        mapping="all",
        vocabulary=None,
        more=(),
        earlier=False,
        take=None,
        cache=str(root / "cache"),
    )


def labels_of(*rows) -> pl.DataFrame:
    return pl.DataFrame(rows, {"subject_id": pl.Int64, "prediction_time": US, "label": pl.Int64}, orient="row")


@pytest.mark.parametrize("leakage", ["paper", "strict"])
@pytest.mark.parametrize("name", VISIT_TASKS)
def test_every_task_on_the_demo(mimic4_cohort, name, leakage):
    about, samples = visit_samples(mimic4_cohort, task_named(name), leakage)
    assert len({sample.sample_id for sample in samples}) == len(samples) > 50
    assert {sample.label for sample in samples} <= set(range(len(about.labels)))
    assert all(sample.history[-1].visit_id == sample.visit_id for sample in samples)
    if leakage == "strict" or name in FIRST_DAY:
        assert audit(mimic4_cohort, samples[::7]).is_empty()


@pytest.mark.parametrize("name", TASKS)
def test_ehrshots_samples_are_the_same_for_systems_of_visits_and_of_events(mimic4_cohort, name):
    visits = visit_samples(mimic4_cohort, task_named(name), "paper")[1]
    events = ehrshot_samples(mimic4_cohort, name)[1]

    def about(samples):
        return [(s.sample_id, s.subject_id, s.prediction_time, s.label) for s in samples]

    assert about(visits) == about(events) and balance(visits) == balance(events)
    begun = dict(mimic4_cohort.visits.select("visit_id", "start").rows())
    assert all(begun[visit.visit_id] <= s.prediction_time for s in visits for visit in s.history if visit.visit_id > 0)


@pytest.mark.parametrize("leakage", ["paper", "strict"])
def test_what_the_demo_shows_of_the_stay_under_way(mimic4_cohort, leakage):
    """On the first evening no ICD code of the stay is known, and the drugs are those begun by then."""
    samples = visit_samples(mimic4_cohort, task_named("guo_los"), leakage)[1]
    newest = [sample.history[-1] for sample in samples]
    assert not any(code.startswith("ICD") for visit in newest for code in visit.diagnoses)
    known = audit(mimic4_cohort, [s for s in samples if len(s.history) == 1])
    assert known.is_empty() and sum(len(visit.medications) for visit in newest) > 1000


VISITS = [
    (1, 11, START, START + 2 * HOUR, None),
    (1, 12, START + 3 * HOUR, None, None),  # nobody knows its end
    (1, 13, START + 4 * HOUR, START + 6 * HOUR, None),
]
codes = st.tuples(
    st.sampled_from(VISITS), st.sampled_from(["ICD9CM/1", "DRUG/a", "ICD9PROC/1"]), st.integers(0, 8), st.integers(0, 8)
)


records = given(st.lists(codes), st.integers(-1, 9), st.sampled_from(["paper", "strict"]))


@settings(max_examples=15)
@records
def test_what_is_shown_is_what_was_there(rows, hours, leakage):
    check_shown(rows, hours, leakage)


@records
def test_what_is_shown_of_many_records_is_what_was_there(rows, hours, leakage):
    check_shown(rows, hours, leakage)


def check_shown(rows, hours, leakage):
    """Hold the sample of a prediction after `hours` against what a walk through `rows` finds known by then."""
    events = [(1, visit[1], code, START + at * HOUR, START + known * HOUR) for visit, code, at, known in rows]
    cohort = small_cohort(VISITS, [(1, None, "LAB/1", START - DAY), *events])
    now = START + hours * HOUR
    [sample] = labelled_samples(cohort, "any", labels_of((1, now, 1)), leakage)
    expected = []
    for _, visit_id, start, end, _ in VISITS:
        if start > now:
            continue
        over = end is not None and end <= now
        shown = {kind: [] for kind in KIND_NAMES}
        for _, own, code, *_ in sorted(events, key=lambda event: event[3]):
            seen = [when for _, v, c, _, when in events if (v, c) == (own, code)]
            kind = shown[KINDS[code.partition("/")[0]]]
            if own == visit_id and (min(seen) <= now or (over and leakage == "paper")) and code not in kind:
                kind.append(code)
        expected.append(Visit(visit_id, start, **{kind: tuple(found) for kind, found in shown.items()}))
    assert list(sample.history) == (expected or [Visit(NO_VISIT, now)])
    assert sample.visit_id == sample.history[-1].visit_id and sample.sample_id == "any-1-0"


def test_a_sample_of_which_nothing_is_known_reads_so():
    cohort = small_cohort([(1, 1, START, START + 9 * DAY, None)], [(1, 1, "ICD9CM/1", START + 9 * DAY)])
    about, [sample] = visit_samples(cohort, task_named("guo_los"), "paper")
    view = visit_list(sample, str, style="full", budget=100, count=len)
    assert sample.history == (Visit(1, START),) and view.text.endswith("nothing recorded.")
    assert about is TASKS["guo_los"] and sample.label == 1


@pytest.mark.parametrize("late, known", [(-SECOND, True), (timedelta(0), True), (SECOND, False)])
def test_one_rule_says_what_was_there(late, known):
    """A diagnosis at the prediction time itself is shown, so nobody is asked to predict it."""
    events = [(1, None, "LAB/1", START), (1, None, "ICD9CM/41001", EVENING + late), (1, None, "LAB/1", EVENING + DAY)]
    cohort = small_cohort([(1, 1, START - DAY, START, None)], events)
    labels, left_out = ehrshot_labels(cohort, "new_acutemi")
    assert labels.height == (not known) and left_out == ({"known": 1} if known else {})
    [shown] = ehrshot_samples(cohort, "new_acutemi", labels=labels_of((1, EVENING, 0)))[1]
    assert ("ICD9CM/41001" in shown.history["code"].to_list()) == known


def test_bad_labels(eicu_cohort):
    cohort = small_cohort([(1, 1, START, START + DAY, None)], [(2, None, "LAB/1", START)])
    [sample] = labelled_samples(cohort, "any", labels_of((2, START, 0)), "paper")  # known, never in hospital
    assert sample.history == (Visit(NO_VISIT, START),)
    with pytest.raises(BadInput, match="Patient 3 has a label of any and no event"):
        labelled_samples(cohort, "any", labels_of((1, START, 0), (3, START, 0)), "paper")
    with pytest.raises(BadInput, match="choose paper or strict"):
        labelled_samples(cohort, "any", labels_of((1, START, 0)), "some")
    with pytest.raises(BadInput, match="have no order of hospital stays"):
        labelled_samples(eicu_cohort, "any", labels_of((1, START, 0)), "paper")
    with pytest.raises(BadInput, match="shows no visits of codes"):
        visit_samples(cohort, task_named("series_los"), "paper")
    with pytest.raises(BadInput, match="Task lab_anemia has no sample"):
        visit_samples(cohort, task_named("lab_anemia"), "paper")


@pytest.fixture()
def folder(tmp_path, meds_cohort):
    """A benchmark's labels of guo_los (every third of the counted ones, turned round) and its split."""
    (tmp_path / "labels").mkdir()
    (tmp_path / "metadata").mkdir()
    labels = ehrshot_labels(meds_cohort, "guo_los")[0].gather_every(3)
    given = labels.select("subject_id", "prediction_time", boolean_value=pl.col("label") == 0)
    given.write_parquet(tmp_path / "labels" / "guo_los.parquet")
    names = pl.int_range(pl.len()) % 3
    people = labels.select(pl.col("subject_id").unique().sort())
    split = names.replace_strict({0: "train", 1: "tuning", 2: "held_out"}, return_dtype=pl.String)
    people.with_columns(split=split).write_parquet(tmp_path / "metadata" / "subject_splits.parquet")
    return tmp_path


def test_a_benchmarks_own_labels_and_split(folder, meds_cohort):
    counted = ehrshot_labels(meds_cohort, "guo_los")[0].gather_every(3)
    rows, counts = label_rows(meds_cohort, data_in(folder), "guo_los")
    assert rows.equals(counted.with_columns(label=1 - pl.col("label"))) and len(counts) == 1
    found = read_task(meds_cohort, data_in(folder), task_named("guo_los"))
    assert [s.label for s in found.samples] == rows["label"].to_list() and found.counts == counts
    split = own_splits(data_in(folder), "guo_los")
    assert split is not None and {split[s.subject_id] for s in found.splits.test} == {"held_out"}
    assert len(found.splits.train) + len(found.splits.valid) + len(found.splits.test) == rows.height


def test_labels_in_a_folder_of_files(folder, meds_cohort):
    data, labels = data_in(folder), folder / "labels"
    rows = own_labels(data, "guo_los")
    (labels / "guo_los").mkdir()
    (labels / "guo_los.parquet").rename(labels / "guo_los" / "0.parquet")
    assert rows is not None and rows.equals(own_labels(data, "guo_los"))


@pytest.mark.parametrize("name", ["read", "new_acutemi"])
def test_without_own_labels_they_are_counted(folder, meds_cohort, name):
    """The split that lies there belongs to the labels that lie there."""
    data, task = data_in(folder), task_named(name)
    assert own_labels(data, name) is None and own_splits(data, name) is None
    about, samples = visit_samples(meds_cohort, task, "paper")
    found = read_task(meds_cohort, data, task)
    assert found.task == about and found.samples == samples and found.splits == split_samples(samples, task)
    left_out = {"left out, known": 39, "left out, after_death": 11}
    assert found.counts == (left_out if name == "new_acutemi" else {})
    assert own_labels(data_in(folder, name="mimic4"), "guo_los") is None
