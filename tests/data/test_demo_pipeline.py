"""The demo world through the real readers: same labels, all codes shown, every entity linked to its own node."""

import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.tasks.stays import make_samples
from ghar.envs.worlds.severity import World, generate_world
from ghar.kg.linking import link_codes
from ghar.kg.primekg import read_primekg


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> World:
    return generate_world(tmp_path_factory.mktemp("world") / "demo", seed=11, patients=300, labs_per_visit=2)


@pytest.fixture(scope="module")
def cohort(demo: World) -> Cohort:
    return read_mimic4(demo.root)


def test_cohort_is_generated_and_whole(demo: World, cohort: Cohort):
    assert cohort.generated and not cohort.credentialed
    assert set(cohort.visits["visit_id"]) == set(demo.truth["visit_id"])


@pytest.mark.parametrize("task", ["los", "read", "dec"])
def test_labels_of_the_tasks_are_those_of_the_truth(demo: World, cohort: Cohort, task):
    labels = {sample.visit_id: sample.label for sample in make_samples(cohort, task)[1]}
    truth = demo.truth.filter(pl.col(task).is_not_null())
    assert labels == dict(truth.select("visit_id", task).rows())


def test_a_sample_shows_the_entities_that_make_its_acuity(demo: World, cohort: Cohort):
    acuity = dict(demo.truth.select("visit_id", "acuity").rows())
    for sample in make_samples(cohort, "los")[1]:
        visit = sample.history[-1]
        assert max(demo.severity[c] for c in visit.diagnoses + visit.medications) == acuity[sample.visit_id]


def test_every_entity_links_to_its_own_node_with_and_without_references(demo: World, cohort: Cohort):
    graph = read_primekg(demo.root / "kg/kg.csv.gz")
    codes = cohort.codes.filter(pl.col("code").is_in(list(demo.severity)))
    conditions, drugs = (codes["code"].str.starts_with(kind).sum() for kind in ("ICD10CM/", "DRUG/"))
    for references, rule in ((demo.root / "kg/mondo_references.csv.gz", "reference_exact"), (None, "name")):
        links = link_codes(codes, graph, references)
        assert links.counts[rule] == conditions and links.counts["drug_exact"] == drugs
        for code, description in codes.select("code", "description").rows():
            assert graph.names[links.nodes[code]] == description.lower()
