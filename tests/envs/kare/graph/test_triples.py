from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.envs.kare.graph.triples import SOURCES, ConceptGraphs, Triple, concept_name, make_triple, union
from ghar.errors import BadInput
from ghar.seal import seal

WORDS = st.sampled_from(["sepsis", "fever", "shock", "lactate"])
TRIPLES = st.lists(st.builds(Triple, WORDS, st.sampled_from(["causes", "raises"]), WORDS), max_size=6)
PARTS = st.dictionaries(st.sampled_from(SOURCES), st.dictionaries(WORDS, TRIPLES, max_size=3), max_size=3)


@given(PARTS)
def test_union_is_eq_1(parts: dict[str, dict[str, list[Triple]]]) -> None:
    graphs = union(parts)
    everything = {triple for concepts in parts.values() for triples in concepts.values() for triple in triples}
    assert list(graphs.triples) == sorted(everything)
    for triple, sources in zip(graphs.triples, graphs.sources, strict=True):
        stating = {source for source, concepts in parts.items() if any(triple in own for own in concepts.values())}
        assert sources == stating
    assert set(graphs.of) == {concept for concepts in parts.values() for concept in concepts}
    for concept, ids in graphs.of.items():
        own = {triple for concepts in parts.values() for triple in concepts.get(concept, ())}
        assert [graphs.triples[i] for i in ids] == sorted(own)


def test_a_folder_gives_back_what_was_written(tmp_path: Path) -> None:
    a, b = Triple("sepsis", "causes", "shock"), Triple("shock", "causes", "sepsis")
    graphs = union({"graph": {"sepsis": [a], "gout": []}, "model": {"sepsis": [b, a]}})
    graphs.write(tmp_path / "graphs")
    read = ConceptGraphs.read(tmp_path / "graphs")
    assert read.triples == graphs.triples == (a, b)
    assert read.sources == graphs.sources == (frozenset({"graph", "model"}), frozenset({"model"}))
    assert list(read.of) == ["gout", "sepsis"]
    assert all(np.array_equal(read.of[concept], graphs.of[concept]) for concept in graphs.of)


def test_an_empty_union_can_be_kept(tmp_path: Path) -> None:
    union({}).write(tmp_path / "graphs")
    read = ConceptGraphs.read(tmp_path / "graphs")
    assert read.triples == () and read.of == {}


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"sealed\.json is missing"):
        ConceptGraphs.read(tmp_path)
    (tmp_path / "meta.json").write_text('{"format": 1}')
    seal(tmp_path)
    with pytest.raises(BadInput, match="build it again"):
        ConceptGraphs.read(tmp_path)


def test_names_are_normalised_and_loops_are_none() -> None:
    assert make_triple(" Heart failure, NOS ", "Is-a", "DISEASE") == ("heart failure nos", "is a", "disease")
    assert make_triple("Fever", "is", "fever") is None
    assert make_triple("Fever", "?", "shock") is None


def test_an_unknown_source_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="gossip"):
        union({"gossip": {}})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Body mass index [BMI] 31.0-31.9, adult", "body mass index bmi 31.0-31.9 adult"),
        ("0.9% Sodium Chloride", "0.9% sodium chloride"),
        ("Dextrose 5%", "dextrose 5%"),
        ("Vitamin B12.", "vitamin b12"),
        ("Propofol 1.5MG/ML", "propofol 1.5 mg ml"),
        ("Type 2 diabetes, E11.9", "type 2 diabetes e11 9"),
        ("norepinephrine > 0.1 micrograms/kg/min", "norepinephrine >0.1 micrograms kg min"),
        ("norepinephrine <= 0.1 micrograms/kg/min", "norepinephrine <=0.1 micrograms kg min"),
        ("oxygen therapy (< 40%), 25-30%", "oxygen therapy <40% 25-30%"),
        ("chronic kidney disease, Stage 4 (GFR 15-29)", "chronic kidney disease stage 4 gfr 15-29"),
        ("valve replacement < 7days, aortic", "valve replacement <7 days aortic"),
        ("1,2-butanediol 3-4-dione", "1 2 butanediol 3 4 dione"),
    ],
)
def test_numbers_of_a_name_stay_whole(text: str, name: str) -> None:
    assert concept_name(text) == concept_name(name) == name
