"""Records show the chart's own words in every system; a linked node's name is for retrieval only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ghar.envs.graph_cases import NodeQueries, graph_corpus
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.episode import Retrieve
from ghar.kg.drug_names import order_text
from ghar.kg.names import disease_key
from ghar.launch.entry import load
from tests.envs.parts import Corpus

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unsigned(small_records, small_config, tmp_path_factory) -> Records:
    """The small world's tables without its signature: read as a hospital's are."""
    world, folder = small_records.world.root, tmp_path_factory.mktemp("unsigned")
    for name in ("hosp", "icu", "kg"):
        (folder / name).symlink_to(world / name)
    return Records(small_config("data=mimic4", f"data.root={folder}"))


def test_a_real_chart_is_shown_letter_by_letter(unsigned: Records, small_records: Records) -> None:
    assert not unsigned.source.generated and unsigned.names == unsigned.cohort.names()
    assert any(small_records.names[code] != text for code, text in unsigned.names.items())  # letter case of nodes


def test_a_generated_chart_keeps_its_words(small_records: Records) -> None:
    described = small_records.cohort.names()
    assert {code: text.lower() for code, text in small_records.names.items()} == {
        code: text.lower() for code, text in described.items()
    }
    assert small_records.node_names == {} and not isinstance(graph_corpus(small_records)[0], NodeQueries)


def test_all_systems_read_the_same_words(unsigned: Records) -> None:
    names = {text for code, text in unsigned.names.items() if code.startswith("ICD")}
    long = ("env.prompts=full", "env.history_tokens=4000", "task=read")
    for system in ("ghar", "graphwalker", "baselines", "comparators"):
        config = unsigned.config
        overrides = [f"system={system}", "data=mimic4", f"data.root={unsigned.root}", f"data.cache={config.data.cache}"]
        case = build(Records(load([*overrides, *long]))).cases.train[0]
        shown = case.text.split("Conditions: ")[1].split(".")[0].split("; ")
        assert set(shown) <= names, system


def test_queries_in_the_charts_words_are_asked_by_the_nodes_name() -> None:
    names = {"STEMI": "acute myocardial infarction", "GI bleed, upper": "peptic ulcer", "aspirin 81 mg": "Aspirin"}
    asked: list[str] = []

    class Listens(Corpus):
        def retrieve(self, requests):
            asked.extend(request.query for request in requests)
            return super().retrieve(requests)

    corpus = NodeQueries(Listens(), names)
    queries = ("disease STEMI", "what helps in gi bleed upper?", "drug aspirin 81 mg and stemi", "drug aspirin", "")
    corpus.retrieve([Retrieve(query, None, 1) for query in queries])
    assert asked == [
        "disease acute myocardial infarction",
        "what helps in peptic ulcer",
        "drug Aspirin and acute myocardial infarction",
        "drug aspirin",
        "",
    ]


@pytest.mark.parametrize("source", ["eicu", "mimic4"])
def test_open_demos_show_what_was_charted(source: str, shared_data: Path, tmp_path: Path) -> None:
    """STEMI was shown as "hemoglobinopathy", the name of PrimeKG's grouped node."""
    folder = {"eicu": "eicu-crd-demo-2.0.1", "mimic4": "mimic-iv-demo-2.2"}[source]
    kg = shared_data / "kg/primekg-subset"
    overrides = [
        f"data={source}", f"data.root={shared_data / folder}", f"data.cache={tmp_path}", "task=los",
        f"kg.path={kg / 'merged_kg_12col.csv.gz'}", f"kg.references={kg / 'txgnn_mondo_references.csv.gz'}",
    ]  # fmt: skip
    records = Records(load(overrides))
    described = records.cohort.names()
    texts = {code: text.replace(";", ",") for code, text in described.items()}
    orders = {code: order_text(text) for code, text in texts.items() if code.startswith("DRUG/")}
    assert records.names == texts | orders
    assert all(word in texts[code] for code, order in orders.items() for word in re.findall("[a-z]+", order))
    table = records.linked_codes()
    graph = records.primekg
    sources = [graph.sources[at] for at in graph.source.tolist()]
    grouped = {name for name, source in zip(graph.names, sources, strict=True) if source == "MONDO_grouped"}
    assert not table.filter(shown="STEMI", node="hemoglobinopathy").height
    for shown, node in table.filter(rule="reference_exact").select("shown", "node").iter_rows():
        if node in grouped:
            assert set(disease_key(shown).split()) & set(disease_key(node).split()), (shown, node)
