"""protocol=NAME from the command line to the samples, on the open demos; each count is made again from the tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from ghar.data.cohort import Cohort, Sample
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.visits import TaskSamples, read_task
from ghar.errors import BadInput
from ghar.launch.entry import load

pytestmark = pytest.mark.slow


def read(cohort: Cohort, *overrides: str) -> TaskSamples:
    config = load([f"data={'mimic3' if 'III' in cohort.name else 'mimic4'}", "data.root=.", "data.codes=.", *overrides])
    return read_task(cohort, config.data, config.task)


def balance(found: TaskSamples) -> dict[str, int]:
    counts = Counter(found.task.labels[sample.label] for sample in found.samples)
    return {label: counts[label] for label in found.task.labels if counts[label]}


def patients(samples: tuple[Sample, ...]) -> set[int]:
    return {sample.subject_id for sample in samples}


@pytest.fixture(scope="module")
def complete(demo: Path) -> pl.DataFrame:
    """Admissions of the MIMIC-IV demo with a diagnosis, a procedure and a drug, in time order, read from the files."""
    stays = pl.read_csv(demo / "hosp/admissions.csv.gz", try_parse_dates=True).sort("subject_id", "admittime")
    stays = stays.with_columns(next=pl.col("admittime").shift(-1).over("subject_id"))
    for table in ("diagnoses_icd", "procedures_icd", "prescriptions"):
        stays = stays.join(pl.read_csv(demo / f"hosp/{table}.csv.gz", infer_schema=False).select(
            pl.col("hadm_id").cast(int)).unique(), on="hadm_id", how="semi")  # fmt: skip
    return stays


def test_ghar_predicts_and_shows_complete_visits(mimic4_cohort: Cohort, complete: pl.DataFrame) -> None:
    found = read(mimic4_cohort, "protocol=ghar", "task=los", "task.legacy_order=false")
    assert {s.visit_id for s in found.samples} == set(complete["hadm_id"]) and len(found.samples) == 186
    shown = {visit.visit_id for sample in found.samples for visit in sample.history}
    assert shown == set(complete["hadm_id"])
    assert all(v.diagnoses and v.procedures and v.medications for s in found.samples for v in s.history)
    parts = found.splits
    sizes = [len(patients(part)) for part in (parts.train, parts.valid, parts.test)]
    assert sizes == [round(0.6 * sum(sizes)), round(0.8 * sum(sizes)) - round(0.6 * sum(sizes)), sizes[2]]


def test_ghar_counts_readmission_from_encounter_to_encounter(mimic4_cohort: Cohort, complete: pl.DataFrame) -> None:
    found = read(mimic4_cohort, "protocol=ghar", "task=read", "task.legacy_order=false")
    live = complete.filter((pl.col("hospital_expire_flag") == 0) & (pl.col("next") >= pl.col("dischtime")))
    soon = live.select(((pl.col("next") - pl.col("admittime")) <= pl.duration(days=15)).sum()).item()
    assert balance(found) == {"no": live.height - soon, "yes": soon} == {"no": 98, "yes": 10}
    every = read(mimic4_cohort, "task=read", "task.anchor=admission")
    assert balance(every)["yes"] == 20 and balance(read(mimic4_cohort, "task=read"))["yes"] == 38
    assert balance(read(mimic4_cohort, "task=read", "task.complete=true"))["yes"] == 28
    assert all(s.outcome_time >= s.prediction_time for s in (*found.samples, *every.samples) if s.outcome_time)


def test_kares_windows_order_and_draw(mimic4_cohort: Cohort) -> None:
    legacy, kare = ("protocol=kare", "task=kare_readmission"), (
        "protocol=kare", "task=kare_readmission", "task.legacy_order=false",
    )  # fmt: skip
    plain, released = read(mimic4_cohort, *kare), read(mimic4_cohort, *kare, "task.anchor=admission")
    assert balance(plain) == {"no": 80, "yes": 28} and balance(released)["yes"] < 28
    assert balance(read(mimic4_cohort, *legacy)) == {"no": 52, "yes": 52}
    drawn = read(mimic4_cohort, *kare, "task.draw=kare", "task.patients=20")
    assert balance(drawn) == {"no": 10, "yes": 10} and len(patients(tuple(drawn.samples))) == 20
    with pytest.raises(BadInput, match=r"draw of 10000 patients for readmission is not possible"):
        read(mimic4_cohort, *kare, "task.draw=kare", "task.patients=10000")
    with pytest.raises(BadInput, match=r"task\.draw=kare is KARE's of its own two tasks, not of los"):
        read(mimic4_cohort, "task=los", "task.draw=kare")


def test_protocols_have_the_papers_order_and_anchor(mimic4_cohort: Cohort, mimic3_cohort: Cohort) -> None:
    """READ near 50%, DEC from the admission: the papers' tables exclude time order and the discharge."""
    found = {
        (name, task): balance(read(cohort, f"protocol={name.split()[0]}", f"task={task}"))
        for name, task, cohort in (
            ("ghar IV", "read", mimic4_cohort), ("ghar IV", "dec", mimic4_cohort), ("ghar III", "read", mimic3_cohort),
            ("ghar III", "dec", mimic3_cohort), ("kare III", "kare_readmission", mimic3_cohort),
        )
    }  # fmt: skip
    assert found["ghar IV", "read"] == {"no": 52, "yes": 52} and found["ghar III", "read"] == {"no": 10, "yes": 17}
    assert found["ghar IV", "dec"] == {"no": 185, "yes": 1} and found["ghar III", "dec"] == {"no": 100, "yes": 7}
    assert found["kare III", "kare_readmission"] == {"no": 10, "yes": 17}
    with pytest.raises(BadInput, match=r"legacy_order=true shows visits of the future"):
        read(mimic4_cohort, "protocol=ghar", "task=read", "data.leakage=strict")


def test_drawing_patients_and_their_last_visits(mimic4_cohort: Cohort) -> None:
    whole, some = read(mimic4_cohort, "task=los"), read(mimic4_cohort, "task=los", "task.patients=30")
    assert len(patients(tuple(some.samples))) == 30 and len(patients(tuple(whole.samples))) == 100
    assert some.samples == [s for s in whole.samples if s.subject_id in patients(tuple(some.samples))]
    last = read(mimic4_cohort, "task=los", "task.draw=last")
    visits = mimic4_cohort.visits.group_by("subject_id").agg(pl.len(), pl.col("visit_id").last())
    wanted = set(visits.filter(pl.col("len") >= 2)["visit_id"])
    assert {s.visit_id for s in last.samples} == wanted
    with pytest.raises(BadInput, match=r"choose task\.patients from 1 to 100"):
        read(mimic4_cohort, "task=los", "task.patients=101")


def test_one_split_of_the_cohort_keeps_patients_on_their_side(mimic4_cohort: Cohort) -> None:
    def parts(task: str, *more: str) -> Splits[Sample]:
        return read(mimic4_cohort, f"task={task}", *more).splits

    los, mortality = (parts(task, "task.split_of=cohort") for task in ("los", "kare_mortality"))
    assert not patients((*mortality.train, *mortality.valid)) & patients(los.test)
    alone = parts("los"), parts("kare_mortality")
    assert patients((*alone[1].train, *alone[1].valid)) & patients(alone[0].test)


@pytest.mark.parametrize("task, known", [
    ("los", lambda visit, s: visit["end"]),
    ("dec", lambda visit, s: visit["death_time"] if s.label else None),
    ("guo_readmission", lambda visit, s: None),
])  # fmt: skip
def test_when_an_outcome_is_known(mimic4_cohort: Cohort, task: str, known) -> None:
    visits = {row["visit_id"]: row for row in mimic4_cohort.visits.to_dicts()}
    for sample in read(mimic4_cohort, f"task={task}", "data.leakage=strict").samples:
        wanted = known(visits[sample.visit_id], sample)
        assert sample.outcome_time is not None and sample.outcome_time >= sample.prediction_time
        assert wanted is None or sample.outcome_time == wanted


@pytest.mark.parametrize("wrong, said", [
    (("protocol=kare", "task=los"), "protocol=kare has no task=los: choose task=kare_mortality, kare_readmission"),
    (("protocol=ghar", "data=mimic4", "data.root=."), "protocol=ghar maps codes as its paper does: set data.codes"),
    (("protocol=graphwalker", "task.complete=true"), "reads neither task.complete"),
    (("protocol=gar",), "no protocol=gar. Choices: ehrshot, exprag, ghar, .*Did you mean ghar"),
])  # fmt: skip
def test_what_does_not_go_together(wrong: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        load(wrong)


@pytest.mark.parametrize("name", ["ghar", "kare", "graphwalker", "ehrshot", "exprag", "strict"])
def test_every_preset_says_what_it_is_and_where_its_paper_is_silent(name: str) -> None:
    text = (Path(__file__).resolve().parents[2] / f"conf/protocol/{name}.yaml").read_text()
    assert load([f"protocol={name}"]).protocol.name == name
    assert name == "strict" or "# Silent:" in text
