"""From a configuration to task, patients, graph and retriever; and what is said when that cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ghar.episode import Retrieve
from ghar.errors import BadInput
from trainers.play import needs_retrieval
from trainers.study import prepare


def test_the_demo_world_becomes_a_study(small_study):
    study = small_study
    assert study.cohort.generated and study.world is not None and study.counts["patients"] == 150
    assert study.task.labels == tuple(str(i) for i in range(10))
    sizes = [len(part) for part in (study.splits.train, study.splits.valid, study.splits.test)]
    assert sizes == [study.counts[f"{name} samples"] for name in ("train", "validation", "test")] and min(sizes) > 20
    subjects = [{s.subject_id for s in part} for part in (study.splits.train, study.splits.valid, study.splits.test)]
    assert not (subjects[0] & subjects[1] or subjects[0] & subjects[2] or subjects[1] & subjects[2])
    assert [path.index for path in study.episodes.metapaths] == list(range(len(study.episodes.metapaths)))


def test_every_condition_and_drug_of_the_world_has_its_nodes_name(small_study):
    """Names in patients' texts are those of the graph, so that a sub-query finds its own node."""
    nodes = set(small_study.graph.names)
    for code in small_study.world.severity:
        if code in small_study.names:
            assert small_study.names[code] in nodes
    assert not any(";" in name for name in small_study.names.values())


def test_a_topics_own_edge_states_its_grade(small_study):
    """Looking up a rare topic on the right meta-path finds what the world holds true."""
    world, paths = small_study.world, small_study.episodes.metapaths
    relation = {"ICD10CM": "disease_phenotype_positive", "DRUG": "drug_effect"}
    rare = [code for code, tier in world.tier.items() if tier == "rare" and code in small_study.names][:40]
    requests = []
    for code in rare:
        ids = tuple(p.index for p in paths if p.relation == relation[code.split("/")[0]])
        kind = "drug" if code.startswith("DRUG") else "disease"
        requests.append(Retrieve(f"{kind} {small_study.names[code]}", ids, 1))
    found = small_study.retriever.retrieve(requests)
    stated = [
        f"grade {world.severity[code]} course" in evidence.text for code, evidence in zip(rare, found, strict=True)
    ]
    assert len(rare) > 20 and np.mean(stated) > 0.95


def test_cases_show_no_label_and_keep_the_budget(small_study):
    budget = small_study.config.env.history_tokens
    cases = small_study.cases(small_study.splits.train, None)
    assert [c.label for c in cases] == [s.label for s in small_study.splits.train]
    for case in cases:
        assert len(case.text.split()) <= budget and case.topics
        assert "grade" not in case.text and "acuity" not in case.text


def test_need_of_retrieval_is_the_truths(small_study):
    cases = small_study.cases(small_study.splits.train, None)
    needs = needs_retrieval(small_study, cases)
    truth = dict(small_study.world.truth.select("visit_id", "n_rare").rows())
    assert needs == {c.sample_id: truth[c.visit_id] > 0 for c in cases}


def test_same_configuration_same_study(small_study, small_config):
    again = prepare(small_config())
    assert again.splits == small_study.splits and again.counts == small_study.counts
    assert again.names == small_study.names


def test_limits_cut_the_splits(small_study, small_config):
    cut = prepare(small_config("task.max_train=5", "task.max_valid=3", "task.max_test=2"))
    assert cut.splits.train == small_study.splits.train[:5] and cut.splits.test == small_study.splits.test[:2]
    assert len(cut.splits.valid) == cut.counts["validation samples"] == 3


@pytest.mark.parametrize("task", ["read", "dec"])
def test_the_other_tasks(small_config, task):
    study = prepare(small_config(f"task={task}"))
    assert study.task.name == task and len(study.task.labels) == 2 and study.splits.test


def test_a_root_that_is_not_there_is_named(tmp_path, small_config):
    with pytest.raises(BadInput, match=r"data.root=.*nowhere is not a folder"):
        prepare(small_config("data=mimic4", f"data.root={tmp_path / 'nowhere'}", f"kg.path={tmp_path}"))


def test_a_graph_that_is_not_there_is_named(tmp_path, small_config):
    with pytest.raises(BadInput, match=r"kg.path=.*kg.csv does not exist"):
        prepare(small_config(f"kg.path={tmp_path / 'kg.csv'}"))
    with pytest.raises(BadInput, match=r"kg.references=.*refs.csv does not exist"):
        prepare(small_config(f"kg.references={tmp_path / 'refs.csv'}"))


def test_tables_without_a_graph_ask_for_one(small_study, small_config, tmp_path):
    world: Path = small_study.world.root
    for name in ("hosp", "icu"):
        (tmp_path / name).symlink_to(world / name)
    with pytest.raises(BadInput, match=r"set kg\.path"):
        prepare(small_config("data=mimic4", f"data.root={tmp_path}"))


def test_a_folder_without_the_tables_is_named(small_config, small_study, tmp_path):
    with pytest.raises(BadInput, match=str(tmp_path)):
        prepare(
            small_config("data=mimic4", f"data.root={tmp_path}", f"kg.path={small_study.world.root / 'kg/kg.csv.gz'}")
        )


@pytest.mark.parametrize("source", ["mimic3", "eicu"])
def test_a_source_without_its_tables_says_so_before_anything_is_made(small_config, tmp_path, source):
    with pytest.raises(BadInput, match=f"data={source} needs data.root"):
        prepare(small_config(f"data={source}", f"data.cache={tmp_path}"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("source", "folder", "first"),
    [
        ("mimic3", "mimic-iii-demo-1.4", "ICD9CM/"),
        ("eicu", "eicu-crd-demo-2.0.1", "ICD10CM/"),
    ],
)
def test_the_other_sources_become_studies(small_config, small_study, shared_data, tmp_path, source, folder, first):
    tables = [f"data.root={shared_data / folder}", f"kg.path={small_study.world.root / 'kg/kg.csv.gz'}"]
    study = prepare(small_config(f"data={source}", f"data.cache={tmp_path}", *tables))
    assert study.world is None and not study.cohort.credentialed and not study.cohort.generated
    assert any(code.startswith(first) for code in study.cohort.codes["code"])
    cases = study.cases(study.splits.train[:20], None)
    assert len(cases) == 20 and all(case.text for case in cases)
