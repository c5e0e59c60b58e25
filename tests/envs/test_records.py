"""From a configuration to records and a system on them; and what is said when that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.episode import Retrieve
from ghar.errors import BadInput
from ghar.launch.export_meds import run as export_meds
from ghar.provenance import Provenance
from tests.data.small import DAY, START, small_cohort


def build_from(config):
    return build(Records(config))


def test_the_demo_world_becomes_records_and_a_system(small_records, small_system):
    records, system = small_records, small_system
    assert records.cohort.generated and records.world is not None and system.report.counts["patients"] == 150
    assert system.origin.generated and system.task == records.task
    assert records.task.labels == tuple(str(i) for i in range(10))
    splits, counts = records.splits, system.report.counts
    sizes = [len(part) for part in (splits.train, splits.valid, splits.test)]
    assert sizes == [counts[f"{name} samples"] for name in ("train", "validation", "test")] and min(sizes) > 20
    subjects = [{s.subject_id for s in part} for part in (splits.train, splits.valid, splits.test)]
    assert not (subjects[0] & subjects[1] or subjects[0] & subjects[2] or subjects[1] & subjects[2])
    assert [path.index for path in system.partitions] == list(range(len(system.partitions)))
    assert counts["graph nodes"] == records.primekg.num_nodes


def test_every_condition_and_drug_of_the_world_has_its_nodes_name(small_records):
    """Names in patients' texts are those of the graph, so that a sub-query finds its own node."""
    nodes = set(small_records.primekg.names)
    for code in small_records.world.severity:
        if code in small_records.names:
            assert small_records.names[code] in nodes
    assert not any(";" in name for name in small_records.names.values())


def test_a_topics_own_edge_states_its_grade(small_records, small_system):
    """Looking up a rare topic on the right meta-path finds what the world holds true."""
    world, paths = small_records.world, small_system.partitions
    rare = [code for code, tier in world.tier.items() if tier == "rare" and code in small_records.names]
    direct = {f"disease {small_records.names[code]}": code for code in rare if code not in world.target}
    behind = {f"drug {small_records.names[code]}": code for code in rare if code in world.target}
    proteins = {f"gene {world.target[code]}": code for code in behind.values()}

    def stated(queries: dict[str, str], relation: str, fact: Callable[[str], str]) -> list[bool]:
        ids = tuple(p.index for p in paths if p.relation == relation)
        found = small_system.corpus.retrieve([Retrieve(query, ids, 2) for query in queries])
        return [fact(code) in evidence.text for code, evidence in zip(queries.values(), found, strict=True)]

    def grade(code: str) -> str:
        return f"grade {world.severity[code]} course"

    assert len(direct) > 20 and all(stated(direct, "disease_phenotype_positive", grade))
    assert len(behind) > 20 and all(stated(behind, "drug_protein", lambda code: f"target - {world.target[code]}"))
    assert all(stated(proteins, "phenotype_protein", grade))


def test_cases_show_no_label_and_keep_the_budget(small_records, small_system):
    budget, samples = small_records.config.env.history_tokens, small_records.splits.train
    cases = small_system.cases.train
    assert [(c.sample_id, c.subject_id, c.label) for c in cases] == [
        (s.sample_id, s.subject_id, s.label) for s in samples
    ]
    for case in cases:
        assert len(case.text.split()) <= budget and case.topics
        assert "grade" not in case.text and "acuity" not in case.text


def test_need_of_retrieval_is_the_truths(small_records, small_system):
    truth = dict(small_records.world.truth.select("visit_id", "look_ups").rows())
    for case in small_system.cases.train:
        assert small_system.truth.needs(case) is (truth[case.visit_id] > 0)


def test_same_configuration_same_records(small_records, small_config):
    again = Records(small_config())
    assert again.splits == small_records.splits and again.names == small_records.names
    assert (again.counts(), again.graph_counts()) == (small_records.counts(), small_records.graph_counts())


def test_limits_cut_the_splits(small_records, small_config):
    cut = Records(small_config("task.max_train=5", "task.max_valid=3", "task.max_test=2"))
    whole = small_records.splits
    assert (len(cut.splits.train), len(cut.splits.test)) == (5, 2)
    assert set(cut.splits.train) < set(whole.train) and set(cut.splits.test) < set(whole.test)
    assert len(cut.splits.valid) == cut.counts()["validation samples"] == 3


@pytest.mark.parametrize("task", ["read", "dec"])
def test_the_other_tasks(small_config, task):
    records = Records(small_config(f"task={task}"))
    assert records.task.name == task and len(records.task.labels) == 2 and records.splits.test


def test_a_root_that_is_not_there_is_named(tmp_path, small_config, small_records):
    graph = f"kg.path={small_records.world.root / 'kg/kg.csv.gz'}"
    for more in ([], [graph]):
        with pytest.raises(BadInput, match=r"data.root=.*nowhere is not a folder"):
            build_from(small_config("data=mimic4", f"data.root={tmp_path / 'nowhere'}", *more))


def test_a_graph_that_is_not_there_is_named(tmp_path, small_config):
    with pytest.raises(BadInput, match=r"kg.path=.*kg.csv does not exist"):
        build_from(small_config(f"kg.path={tmp_path / 'kg.csv'}"))
    with pytest.raises(BadInput, match=r"kg.references=.*refs.csv does not exist"):
        build_from(small_config(f"kg.references={tmp_path / 'refs.csv'}"))


def test_tables_without_a_graph_ask_for_one(small_records, small_config, tmp_path):
    world: Path = small_records.world.root
    for name in ("hosp", "icu"):
        (tmp_path / name).symlink_to(world / name)
    with pytest.raises(BadInput, match=r"set kg\.path"):
        build_from(small_config("data=mimic4", f"data.root={tmp_path}"))


def test_a_folder_without_the_tables_is_named(small_config, small_records, tmp_path):
    with pytest.raises(BadInput, match=str(tmp_path)):
        build_from(
            small_config("data=mimic4", f"data.root={tmp_path}", f"kg.path={small_records.world.root / 'kg/kg.csv.gz'}")
        )


@pytest.mark.slow
def test_an_export_of_generated_patients_trains_as_any_folder_and_has_no_truth(small_config, small_records, tmp_path):
    kept = small_config(f"run_dir={tmp_path}")
    export_meds(kept)
    graph = small_records.world.root / "kg/kg.csv.gz"
    records = Records(small_config("data=meds", f"data.root={tmp_path}/meds", f"kg.path={graph}"))
    assert records.world is None and records.cohort.generated and not records.cohort.credentialed
    system = build(records)
    assert system.origin.generated and system.truth.upper_bounds(system.cases.test) is None
    assert system.cases.train[0].text


@pytest.mark.parametrize("source", ["mimic3", "eicu"])
def test_a_source_without_its_tables_says_so_before_anything_is_made(small_config, tmp_path, source):
    with pytest.raises(BadInput, match=f"data={source} needs data.root"):
        build_from(small_config(f"data={source}", f"data.cache={tmp_path}"))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "folder", "first"),
    [
        ("mimic3", "mimic-iii-demo-1.4", "ICD9CM/"),
        ("eicu", "eicu-crd-demo-2.0.1", "ICD10CM/"),
    ],
)
def test_the_other_sources_become_systems(small_config, small_records, shared_data, tmp_path, source, folder, first):
    tables = [f"data.root={shared_data / folder}", f"kg.path={small_records.world.root / 'kg/kg.csv.gz'}"]
    records = Records(small_config(f"data={source}", f"data.cache={tmp_path}", *tables))
    assert records.world is None and not records.cohort.credentialed and not records.cohort.generated
    assert any(code.startswith(first) for code in records.cohort.codes["code"])
    system = build(records)
    assert system.origin == Provenance(generated=False, credentialed=False)
    assert system.truth.upper_bounds(system.cases.test) is None
    cases = system.cases.train[:20]
    assert len(cases) == 20 and all(case.text for case in cases)
    assert all(system.truth.needs(case) is None for case in cases)


def test_a_stays_record_names_drugs_as_the_patients_own(small_config, tmp_path: Path):
    """EXPRAG and like_stays showed "4 ml vial : furosemide 10 mg/ml ij soln" beside the patient's "furosemide"."""
    orders = ("DRUG/4 ml vial : furosemide 10 mg/ml ij soln", "DRUG/furosemide 40 mg tab", "DRUG/senna")
    events = [(1, 7, order, START) for order in orders]
    cohort = small_cohort([(1, 7, START, START + DAY, None)], events)
    named = cohort.codes.with_columns(description=cohort.codes["code"].str.strip_prefix("DRUG/"))
    records = Records(small_config("data=mimic4", f"data.root={tmp_path}"), replace(cohort, codes=named))
    text = records.reports(None).text(7)
    assert "Medications given: furosemide; senna." in text
