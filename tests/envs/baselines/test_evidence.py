"""Baselines that are given all evidence: what the graph states about codes, and nothing else of the world."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ghar.envs.baselines.evidence import GraphEvidence, fit_boosting_evidence, fit_severities_evidence, with_statements
from ghar.envs.baselines.features import TrainingData, codes_of, labels_of, vocabulary
from ghar.envs.baselines.severities import fit_severities
from ghar.envs.records import Records
from ghar.errors import BadInput
from ghar.launch.entry import load
from tests.envs.baselines.conftest import known_of


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    cache = tmp_path_factory.mktemp("evidence")
    return Records(load(["data.patients=400", "task=los", "threads=1", f"data.cache={cache}"]))


@pytest.fixture(scope="module")
def evidence(records: Records) -> GraphEvidence:
    return GraphEvidence(records.primekg, records.links.nodes)


@pytest.mark.slow
def test_it_reads_one_and_two_relations_from_a_code(records: Records, evidence: GraphEvidence):
    world = records.world
    assert world is not None
    for code in [code for code in world.rare_codes if code in records.links.nodes]:
        path = "target > associated with: course" if code in world.target else "phenotype present: course"
        assert evidence.of(code)[path] == world.severity[code]
    assert evidence.of("ICD10CM/none such") == {}


def test_rare_codes_are_replaced_by_what_the_graph_states(records: Records, evidence: GraphEvidence):
    frequent = vocabulary(records.splits.train, least=10)
    made = with_statements(records.splits.test, evidence, frequent)
    for before, after in zip(records.splits.test, made, strict=True):
        assert after.label == before.label and len(after.history) == len(before.history)
        kept = {code for code in codes_of(after.history[-1]) if code in records.names}
        assert kept == {code for code in codes_of(before.history[-1]) if code in frequent and code in records.names}


@pytest.mark.slow
def test_all_evidence_answers_visits_that_counts_cannot(records: Records, evidence: GraphEvidence):
    known = TrainingData(records.splits.train, records.splits.valid, 10, 0, evidence=lambda: evidence)
    assert records.world is not None
    wanted = set(records.world.truth.filter(pl.col("needs_retrieval"))["visit_id"])
    test = [sample for sample in records.splits.test if sample.visit_id in wanted]
    right = {
        fit.__name__: float((fit(known)(test).argmax(axis=1) == labels_of(test)).mean())
        for fit in (fit_severities, fit_severities_evidence, fit_boosting_evidence)
    }
    assert right["fit_severities_evidence"] > right["fit_severities"] + 0.2, right
    assert right["fit_boosting_evidence"] > right["fit_severities"], right


def test_patients_without_such_a_graph_are_refused(severity: np.ndarray):
    for fit in (fit_severities_evidence, fit_boosting_evidence):
        with pytest.raises(BadInput, match="come with none"):
            fit(known_of(severity, count=40))


def test_it_stands_in_no_list_of_patients_with_a_graph_of_their_own(tmp_path: Path):
    from ghar.envs.baselines.system import _states_grades

    config = load(["data.patients=20", f"data.cache={tmp_path}", f"kg.path={tmp_path / 'kg.csv'}"])
    assert not _states_grades(Records(config))
