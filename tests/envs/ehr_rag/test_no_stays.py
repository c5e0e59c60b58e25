"""MEDS folders without inpatient stays, as those of OMOP: for systems that read events alone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from envs.records import Records
from envs.system import build
from ghar.errors import BadInput
from launch.entry import load
from tests.data.test_meds import DAY, HOUR, T0, shard

PATIENTS = 30


@pytest.fixture
def outpatients(tmp_path: Path) -> Path:
    rows, labels = [], []
    for subject in range(1, PATIENTS + 1):
        rows += [
            (subject, T0 - 20_000 * DAY, "MEDS_BIRTH"),
            (subject, T0, "Visit/OP"),
            (subject, T0 + HOUR, "SNOMED/38341003"),
            (subject, T0 + 2 * HOUR, "RxNorm/1049640"),
        ]
        labels.append((subject, T0 + DAY, subject % 3 == 0))
    root = shard(tmp_path / "meds", rows)
    (root / "labels").mkdir()
    schema = {"subject_id": pl.Int64, "prediction_time": pl.Datetime("us"), "boolean_value": pl.Boolean}
    pl.DataFrame(labels, schema, orient="row").write_parquet(root / "labels" / "worse.parquet")
    return root


def configured(root: Path, tmp_path: Path, system: str, *more: str):
    fixed = ["data=meds", f"data.root={root}", f"data.cache={tmp_path / 'cache'}", f"system={system}", *more]
    return Records(load(fixed))


def test_ehr_rag_reads_patients_without_a_stay(outpatients: Path, tmp_path: Path) -> None:
    records = configured(outpatients, tmp_path, "ehr_rag", "task=labels")
    system = build(records)
    cases = [*system.cases.train, *system.cases.valid, *system.cases.test]
    assert len(cases) == PATIENTS and sum(case.label for case in cases) == PATIENTS // 3
    assert records.cohort.visits.is_empty()
    assert all(case.prediction_time == T0 + timedelta(days=1) for case in cases)


@pytest.mark.parametrize("system", ["exprag", "baselines"])
def test_other_systems_say_what_they_need(outpatients: Path, tmp_path: Path, system: str) -> None:
    with pytest.raises(BadInput, match=r"have no visit: .*system=ehr_rag, which reads events and needs no stays"):
        build(configured(outpatients, tmp_path, system, "task=labels"))


def test_a_task_of_stays_is_refused_in_a_sentence(outpatients: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        build(configured(outpatients, tmp_path, "ehr_rag", "task=guo_los"))
    with pytest.raises(BadInput):
        build(configured(outpatients, tmp_path, "ehr_rag", "task=los"))
