from pathlib import Path

import polars as pl
import pytest

from ghar.errors import BadInput
from ghar.kg.paths import PathSearch, facts_along
from ghar.kg.umls import read_umls


def name(cui: str, text: str, *, source: str = "MSH", code: str = "D1", language="ENG", best="P", suppress="N") -> str:
    form, preferred = ("PF", "Y") if best == "P" else ("VO", "N")
    fields = [
        cui,
        language,
        best,
        "L1",
        form,
        "S1",
        preferred,
        "A1",
        "",
        "",
        "",
        source,
        "PT",
        code,
        text,
        "0",
        suppress,
    ]
    return "|".join([*fields, "256"]) + "|\n"


def relation(first: str, second: str, rel: str, rela: str = "", *, direction: str = "", suppress: str = "N") -> str:
    fields = [first, "A1", "CUI", rel, second, "A2", "CUI", rela, "R1", "", "MSH", "MSH", "", direction, suppress]
    return "|".join([*fields, ""]) + "|\n"


NAMES = [
    name("C0003", "Furosemide", source="ATC", code="C03CA01"),
    name("C0001", "heart failure (finding)", best="S"),
    name("C0001", 'Failure, "heart"'),
    name("C0001", "Heart failure, unspecified", source="ICD10CM", code="I50.9", best="S"),
    name("C0001", "Herzinsuffizienz", language="GER"),
    name("C0002", "Oedema"),
    name("C0004", "Old name", suppress="Y"),
]
RELATIONS = [
    relation("C0001", "C0003", "RO", "may_treat"),  # furosemide may treat heart failure
    relation("C0003", "C0001", "RO", "may_be_treated_by", direction="N"),
    relation("C0001", "C0002", "CHD"),  # oedema is child of heart failure
    relation("C0002", "C0002", "SY"),
    relation("C0002", "C0004", "RO"),  # nobody says in English what C0004 is
    relation("C0002", "C0003", "RO", "causes", suppress="Y"),
    relation("C0002", "C0001", "RO", "has_finding", direction="Y"),
]


def write(folder: Path, names: list[str] = NAMES, relations: list[str] = RELATIONS) -> Path:
    (folder / "MRCONSO.RRF").write_text("".join(names))
    (folder / "MRREL.RRF").write_text("".join(relations))
    return folder


def test_relations_run_from_the_second_concept_to_the_first(tmp_path: Path) -> None:
    umls = read_umls(write(tmp_path))
    graph = umls.graph
    assert umls.cuis == ["C0001", "C0002", "C0003"]
    assert list(graph.names) == ['Failure, "heart"', "Oedema", "Furosemide"]
    said = zip(graph.head.tolist(), [graph.relations[r] for r in graph.relation], graph.tail.tolist(), strict=True)
    assert sorted(said) == [(0, "has finding", 1), (1, "is child of", 0), (2, "may treat", 0)]
    found = PathSearch(graph, max_length=7, max_paths=40, max_nodes=100).find(2, 1)
    assert found.paths == ((2, 0, 1),)
    assert len(facts_along(graph, found.paths)) == 3


def test_codes_are_linked_by_code_then_by_name(tmp_path: Path) -> None:
    umls = read_umls(write(tmp_path))
    codes = {
        "ICD10CM/I509": "another text",
        "ICD9CM/4280": "Heart failure NOS",
        "DRUG/furosemide 20mg tab": "",
        "ATC/C03CA01": "",
        "ICD10CM/Z99": "something else",
        "ICD9CM/I509": "",
    }
    table = pl.DataFrame({"code": list(codes), "description": list(codes.values())})
    linked = {"ICD10CM/I509": 0, "ICD9CM/4280": 0, "DRUG/furosemide 20mg tab": 2, "ATC/C03CA01": 2}
    assert umls.link(table) == linked


@pytest.mark.parametrize("missing", ["MRCONSO.RRF", "MRREL.RRF"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    (write(tmp_path) / missing).unlink()
    with pytest.raises(BadInput, match=f"{missing}: no such file"):
        read_umls(tmp_path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="3 fields a row where the UMLS has 16"):
        read_umls(write(tmp_path, relations=["a|b|\n"]))
    with pytest.raises(BadInput, match=r"MRCONSO\.RRF cannot be read"):
        read_umls(write(tmp_path, names=[]))
    with pytest.raises(BadInput, match="no English name"):
        read_umls(write(tmp_path, names=[name("C1", "Herz", language="GER")]))
