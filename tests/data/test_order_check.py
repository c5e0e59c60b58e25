"""Order check: squares balance drugs and stays, the truth is the graph's, and memory is worth nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.tasks.order_check import GROUPS, OrderGraph, OrderQuestion, build_order_questions
from ghar.data.tasks.splits import Splits
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.errors import BadInput
from ghar.kg.contraindications import contraindications
from ghar.kg.graph import KnowledgeGraph, build_graph
from ghar.kg.names import shared_words
from ghar.launch.entry import load
from ghar.trainers.evaluation.evaluate import main_of

pytestmark = pytest.mark.slow

THIRDS = (0.5, 0.25, 0.25)
DISEASES, DRUGS, PATIENTS = 12, 60, 200


def graph_of(edges: Sequence[tuple[int, int, str]], names: Sequence[tuple[str, str]]) -> KnowledgeGraph:
    """A graph of (head, tail, relation) over (name, type)."""
    index = list(range(len(names)))
    nodes = pl.DataFrame({
        "index": index, "id": [str(i) for i in index], "type": [kind for _, kind in names],
        "name": [name for name, _ in names], "source": ["TEST"] * len(names),
    })  # fmt: skip
    heads, tails, relations = zip(*edges, strict=True)
    return build_graph(nodes, pl.DataFrame({
        "head": heads, "tail": tails, "relation": relations, "display_relation": relations,
    }))  # fmt: skip


@pytest.fixture(scope="module")
def small() -> tuple[Cohort, KnowledgeGraph]:
    """Diseases 0 to 11, drugs 12 to 71; each disease rules out a third of the drugs; two codes have no node."""
    rng = np.random.default_rng(0)
    names = [(f"illness {i}", "disease") for i in range(DISEASES)]
    names += [(f"Drug{i}", "drug") for i in range(DRUGS)]
    edges = [
        (disease, DISEASES + int(drug), "contraindication")
        for disease in range(DISEASES)
        for drug in rng.permutation(DRUGS)[: DRUGS // 3]
    ]
    codes = [f"ICD10CM/A{i}" for i in range(DISEASES + 2)]
    told = [(p, int(d)) for p in range(PATIENTS) for d in rng.permutation(DISEASES + 2)[:3]]
    start, end = datetime(2100, 1, 1), datetime(2100, 1, 2)
    events = pl.DataFrame({
        "subject_id": [p for p, _ in told], "time": [start] * len(told), "code": [codes[d] for _, d in told],
        "numeric_value": [None] * len(told), "text_value": [None] * len(told), "visit_id": [p for p, _ in told],
        "recorded": [start] * len(told),
    }, schema_overrides={"numeric_value": pl.Float32, "text_value": pl.String})  # fmt: skip
    visits = pl.DataFrame({
        "subject_id": range(PATIENTS), "visit_id": range(PATIENTS), "start": [start] * PATIENTS,
        "end": [end] * PATIENTS, "died": [False] * PATIENTS, "death_time": [None] * PATIENTS,
    })  # fmt: skip
    table = pl.DataFrame({"code": codes, "description": [f"illness {i}" for i in range(DISEASES + 2)]})
    table = table.with_columns(parents=pl.lit([], pl.List(pl.String)))
    return Cohort("test", events, table, visits), graph_of(edges, names)


def read(cohort: Cohort, graph: KnowledgeGraph, linked: int = DISEASES) -> OrderGraph:
    edges = contraindications(graph)
    nodes = {code: i for i, code in enumerate(cohort.codes["code"]) if i < linked}
    return OrderGraph(
        nodes, edges.drugs, edges.relatives, edges.parents, edges.degrees(), graph.names.__getitem__, shared_words
    )


def made(small: tuple[Cohort, KnowledgeGraph], seed: int = 0) -> Splits[OrderQuestion]:
    return build_order_questions(small[0], small[0].names(), read(*small), THIRDS, seed)[0]


def parts(splits: Splits[OrderQuestion]) -> list[tuple[OrderQuestion, ...]]:
    return [splits.train, splits.valid, splits.test]


def test_the_truth_is_the_graphs(small: tuple[Cohort, KnowledgeGraph]) -> None:
    drugs = contraindications(small[1]).drugs
    for question in (question for part in parts(made(small)) for question in part):
        against = [i for i, nodes in enumerate(question.nodes) if any(question.drug_node in drugs[n] for n in nodes)]
        assert question.against == tuple(against) and question.label == bool(against)
        assert question.conditions == tuple(small[1].names[nodes[0]] for nodes in question.nodes)
        assert question.drug in question.text and all(text in question.text for text in question.conditions)


def check_balance(part: Sequence[OrderQuestion]) -> None:
    assert len({question.sample_id for question in part}) == len(part)
    for key in ("drug_node", "visit_id", "subject_id", "group", "degree"):
        both = [Counter(getattr(question, key) for question in part if question.label == label) for label in (0, 1)]
        assert both[0] == both[1], key
    for i in range(0, len(part), 4):
        square = part[i : i + 4]
        assert [question.label for question in square] == [1, 0, 1, 0] and len({q.square for q in square}) == 1
        assert len({q.visit_id for q in square}) == len({q.drug_node for q in square}) == 2


def test_each_drug_and_each_stay_has_as_many_yes_as_no(small: tuple[Cohort, KnowledgeGraph]) -> None:
    for part in parts(made(small)):
        check_balance(part)


def test_no_patient_and_no_drug_is_in_two_splits(small: tuple[Cohort, KnowledgeGraph]) -> None:
    for key in ("subject_id", "drug_node"):
        seen = [{getattr(question, key) for question in part} for part in parts(made(small))]
        assert not (seen[0] & seen[1] or seen[0] & seen[2] or seen[1] & seen[2]), key


def test_questions_depend_on_the_seed_alone(small: tuple[Cohort, KnowledgeGraph]) -> None:
    assert made(small) == made(small) != made(small, seed=1)


def test_a_parent_disease_is_a_group_of_its_own() -> None:
    names = [("gout", "disease"), ("joint disease", "disease"), ("knee disease", "disease"), ("Drug", "drug")]
    graph = graph_of([(1, 3, "contraindication"), (0, 1, "disease_disease"), (1, 2, "disease_disease")], names)
    found = contraindications(graph)
    assert found.parents[0] == found.parents[2] == {1} and not found.parents[1]
    assert found.drugs == {1: frozenset({3})} and found.degrees() == {3: 1}


def test_a_graph_without_contraindications_is_refused_with_its_counts(small: tuple[Cohort, KnowledgeGraph]) -> None:
    graph = graph_of([(0, 1, "indication")], [("gout", "disease"), ("Drug", "drug")])
    with pytest.raises(BadInput, match=r"0 contraindication edges .* 1 edges \(indication 1\)"):
        contraindications(graph)


def test_a_cohort_without_linked_conditions_is_refused_with_its_counts(small: tuple[Cohort, KnowledgeGraph]) -> None:
    with pytest.raises(BadInput, match=r"None of 200 stays of the test .* 0 of 14 codes have a node, and 12 diseases"):
        build_order_questions(small[0], small[0].names(), read(*small, linked=0), THIRDS, 0)


@pytest.mark.parametrize(("text", "name", "group"), [
    ("atrial fibrillation", "atrial fibrillation (disease)", "name"),
    ("chronic kidney disease, Stage 3 (GFR 30-59)", "chronic kidney disease", "name"),
    ("hepatic dysfunction, with cirrhosis", "cirrhosis of liver", "word"),
    ("DKA", "diabetic ketoacidosis", "none"),
])  # fmt: skip
def test_groups_are_by_shared_words(text: str, name: str, group: str) -> None:
    assert shared_words(text, name) == group


@pytest.fixture(scope="module")
def eicu(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Records:
    """The open eICU demo with the PrimeKG subset."""
    graph = shared_data / "kg/primekg-subset"
    return Records(load([
        "data=eicu", "task=order_check", "scale=laptop", f"data.root={shared_data / 'eicu-crd-demo-2.0.1'}",
        f"kg.path={graph / 'merged_kg_12col.csv.gz'}", f"kg.references={graph / 'txgnn_mondo_references.csv.gz'}",
        f"data.cache={tmp_path_factory.mktemp('order')}",
    ]))  # fmt: skip


def test_the_open_demo_has_the_counted_questions(eicu: Records) -> None:
    splits, counts = eicu.order_questions
    assert counts["stays that can be asked"] > 1500 and counts["conditions with a contraindication"] > 130
    assert len(splits.train) > 3000 and len(splits.test) > 1000
    for part in parts(splits):
        check_balance(part)
        assert {question.group for question in part} == set(GROUPS)


def test_neither_drug_nor_patient_nor_many_contraindications_tell_the_answer(eicu: Records) -> None:
    """Memories of seen drugs and patients, each question held out of its own memory; a threshold on the number of
    contraindications and a regression on numbers alone, of patients and drugs never seen."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    splits, _ = eicu.order_questions
    train, test = splits.train, splits.test
    for key in ("drug_node", "subject_id"):
        share = {k: Counter(q.label for q in train if getattr(q, key) == k) for k in {getattr(q, key) for q in train}}
        right = [share[getattr(q, key)][q.label] - 1 > share[getattr(q, key)][1 - q.label] for q in train]
        assert not any(right)  # left out, each answer is in the minority of its own drug and patient
        assert not {getattr(q, key) for q in test} & share.keys()
    for bound in range(1, 80):
        assert np.mean([(q.degree >= bound) == q.label for q in test]) == 0.5
    edges = contraindications(eicu.primekg).drugs

    def numbers(question: OrderQuestion) -> list[float]:
        each = [sum(len(edges.get(node, ())) for node in nodes) for nodes in question.nodes]
        return [question.degree, len(each), sum(each), max(each), question.degree * sum(each)]

    scale = StandardScaler().fit([numbers(q) for q in train])
    model = LogisticRegression().fit(scale.transform([numbers(q) for q in train]), [q.label for q in train])
    assert abs(model.score(scale.transform([numbers(q) for q in test]), [q.label for q in test]) - 0.5) < 0.04


@pytest.mark.parametrize(("name", "title", "folder"), [
    ("eicu", "eICU demo", "eicu-crd-demo-2.0.1"), ("mimic4", "MIMIC-IV demo", "mimic-iv-demo-2.2"),
    ("mimic3", "MIMIC-III demo", "mimic-iii-demo-1.4"),
])  # fmt: skip
def test_the_page_has_the_counts_of_the_demos(
    name: str, title: str, folder: str, shared_data: Path, tmp_path: Path
) -> None:
    subset = shared_data / "kg" / "primekg-subset"
    config = load([
        "+experiment=order_check", f"data={name}", f"data.root={shared_data / folder}", f"run_dir={tmp_path}",
        f"kg.path={subset / 'merged_kg_12col.csv.gz'}", f"kg.references={subset / 'txgnn_mondo_references.csv.gz'}",
    ])  # fmt: skip
    system = build(Records(config))
    assert main_of(system, ["usual", "lexical", "scripted"]) == "scripted"  # the report is of no baseline before it
    counts = system.report.counts
    groups = ", ".join(f"{counts[f'test questions, {group}']}" for group in ("name", "word", "none", "parent"))
    columns = ("stays that can be asked", "patients that can be asked", "conditions with a contraindication",
               "candidate drugs", "training questions", "validation questions", "test questions")  # fmt: skip
    numbers = " | ".join(f"{counts[column]:,}" for column in columns)
    page = (Path(__file__).resolve().parents[2] / "docs" / "order-check.md").read_text()
    assert f"| {title} | {numbers} ({groups}) |" in page
