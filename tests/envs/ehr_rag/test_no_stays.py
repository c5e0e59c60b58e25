"""MEDS folders without inpatient stays, as those of OMOP: for systems that read events alone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from ghar.envs.ehr_rag.system import FOLDS, CrossFitted
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.episode import Act, Completion
from ghar.errors import BadInput
from ghar.launch.entry import load
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
    assert all(case.reads.prediction_time == T0 + timedelta(days=1) for case in cases)


def test_the_rule_has_not_seen_the_label_of_the_patient_it_is_asked_about(outpatients: Path, tmp_path: Path) -> None:
    """Labels as features: one rule a fold, fitted without its patients (`CrossFitted`)."""
    system = build(configured(outpatients, tmp_path, "ehr_rag", "task=labels"))
    rule = system.fixed["reader"]()
    assert isinstance(rule, CrossFitted) and len(rule.folds) == FOLDS
    train = {case.subject_id for case in system.cases.train}
    assert set(rule.fold_of) == train and set(rule.fold_of.values()) == set(range(FOLDS))

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def answer(self, acts, seeds):
            return [Completion(self.name) for _ in acts]

    named = CrossFitted(rule.fold_of, [Named(f"fold {fold}") for fold in range(FOLDS)], Named("whole"))
    case, other = system.cases.train[0], system.cases.test[0]
    acts = [Act("reader", "weigh", "", facts={"case": one}) for one in (case, other)]
    said = [completion.text for completion in named.answer(acts, [0, 0])]
    assert said == [f"fold {rule.fold_of[case.subject_id]}", "whole"]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["exprag", "baselines"])
def test_other_systems_say_what_they_need(outpatients: Path, tmp_path: Path, system: str) -> None:
    with pytest.raises(BadInput, match=r"have no visit: .*system=ehr_rag, which reads events and needs no stays"):
        build(configured(outpatients, tmp_path, system, "task=labels"))


@pytest.mark.slow
def test_a_task_of_stays_is_refused_in_a_sentence(outpatients: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        build(configured(outpatients, tmp_path, "ehr_rag", "task=guo_los"))
    with pytest.raises(BadInput):
        build(configured(outpatients, tmp_path, "ehr_rag", "task=los"))
