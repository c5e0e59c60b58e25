"""KARE's knowledge from other sources: UMLS's files, an extractor that answers prose, real tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ghar.envs.kare.build as kare_build
from ghar.config import Config
from ghar.envs.kare.graph.scripted_summaries import reply as scripted_summary
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.episode import Act, Completion
from ghar.errors import BadInput
from ghar.kg.umls import Umls
from ghar.launch.entry import load
from ghar.llm.scripted import ScriptedEngine
from tests.envs.kare.playing import built, rows_as_reported
from tests.kg.test_umls import name, relation

pytestmark = pytest.mark.slow

PATHS = ("system.path_length=3", "system.path_count=5", "system.path_nodes=500", "system.leiden_runs=2")
TINY = ("+experiment=kare_demo", "task=kare_readmission", "data.patients=40", "system.concepts=5", *PATHS)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build")


def configured(cache: Path, *overrides: str) -> Config:
    return load([*TINY, f"data.cache={cache}", *overrides])


def engine_of(reply: Callable[[str], str]) -> Any:
    """In place of `named_engine`: one that replies so, whoever was named."""

    @contextmanager
    def named(*_: Any) -> Iterator[ScriptedEngine]:
        yield ScriptedEngine(reply)

    return named


def report_of(config: Config) -> dict[str, Any]:
    """What each step of a build says."""
    return build(Records(config)).report.summary({})["build"]


def prose_for_triples(prompt: str) -> str:
    return scripted_summary(prompt) if "words" in prompt and "Facts:" in prompt else "I would rather not say."


@pytest.fixture(scope="module")
def umls(cache: Path) -> Path:
    """UMLS's two files: the first conditions of the demo world, each related to the next."""
    codes = Records(configured(cache)).cohort.codes
    conditions = [row for row in codes.select("code", "description").rows() if row[0].startswith("ICD10CM/")][:30]
    folder = cache / "umls"
    folder.mkdir()
    names = [
        name(f"C{i:04}", text, source="ICD10CM", code=code.partition("/")[2])
        for i, (code, text) in enumerate(conditions)
    ]
    (folder / "MRCONSO.RRF").write_text("".join(names))
    relations = [relation(f"C{i:04}", f"C{i + 1:04}", "RO", "co_occurs_with") for i in range(len(conditions) - 1)]
    (folder / "MRREL.RRF").write_text("".join(relations))
    return folder


def test_umls_is_searched_for_paths(cache: Path, umls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(cache, f"kg.path={umls}", "system.expert=engine")
    records = Records(config)
    assert isinstance(records.graph, Umls) and records.graph_counts()["graph nodes"] == 30
    assert records.graph_counts()["codes linked, UMLS"] == len(records.links.nodes) >= 30
    monkeypatch.setattr(kare_build, "named_engine", engine_of(prose_for_triples))
    report = report_of(config)
    assert report["graphs"]["triples"]["graph"] > 0 and report["communities"]["communities"] > 0


def test_umls_is_refused_where_primekg_is_needed(cache: Path, umls: Path) -> None:
    with pytest.raises(BadInput, match="holds UMLS"):
        build(Records(configured(cache, f"kg.path={umls}")))  # the scripted extractor recites PrimeKG's format


def test_an_extractor_that_answers_prose_is_counted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kare_build, "named_engine", engine_of(prose_for_triples))
    report = report_of(configured(cache, "system.expert=engine"))["graphs"]
    for source in ("corpus", "model"):
        cost = report["asked"][source]
        assert cost["unreadable"] == cost["asked"] + cost["reused"] > 0 and set(cost["by_reason"]) == {"no_list"}
        assert set(cost["failed"].values()) == {"no_list"} and report["triples"][source] == 0
    assert report["triples"]["graph"] == report["triples"]["all"] > 0


def test_each_source_of_the_graph_can_be_left_out(cache: Path) -> None:
    whole = report_of(configured(cache))["graphs"]["triples"]
    assert all(whole.values())
    for left in ("graph", "corpus", "model"):
        some = [source for source in ("graph", "corpus", "model") if source != left]
        report = report_of(configured(cache, f"system.sources=[{','.join(some)}]"))["graphs"]
        assert report["triples"] == {**whole, left: 0, "all": report["triples"]["all"]}
        assert set(report["asked"]) == {"corpus", "model"} - {left} and report["triples"]["all"] < whole["all"]
    assert report_of(configured(cache, "system.sources=[model,corpus,graph]"))["graphs"]["triples"] == whole
    for wrong in ("[]", "[graph,graph]"):
        with pytest.raises(BadInput, match="at least one source, each once"):
            configured(cache, f"system.sources={wrong}")


def test_no_triple_at_all_is_bad_input(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kare_build, "named_engine", engine_of(lambda prompt: "[]"))
    (tmp_path / "MRCONSO.RRF").write_text(name("C1", "nothing of ours"))
    (tmp_path / "MRREL.RRF").write_text(relation("C1", "C1", "RO"))
    with pytest.raises(BadInput, match="No source knows"):
        build(Records(configured(cache, f"kg.path={tmp_path}", "system.expert=engine", "system.abstracts=null")))


def test_real_tables(shared_data: Path, tmp_path: Path) -> None:
    graph = shared_data / "kg" / "primekg-subset"
    tables = [
        "system=kare", "data=mimic4", f"data.root={shared_data / 'mimic-iv-demo-2.2'}", f"data.cache={tmp_path}",
        f"kg.path={graph / 'merged_kg_12col.csv.gz'}", f"kg.references={graph / 'txgnn_mondo_references.csv.gz'}",
        "task.max_train=12", "task.max_valid=2", "task.max_test=4", "system.concepts=3", *PATHS, "system.small=10",
        "system.large=20",
    ]  # fmt: skip
    with pytest.raises(BadInput, match=r"set system\.abstracts"):
        built(*tables, "eval.variants=[rag]")
    system = built(*tables)
    assert not system.origin.generated and "rag" not in system.variants
    with pytest.raises(BadInput, match=r"knows the grades of the demo world and nothing of these patients"):
        rows_as_reported(system, "scripted")

    class Always:
        def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
            return [Completion("no") for _ in acts]

    knows_nothing = replace(system, fixed={"rule": Always}, refused={})
    rows = rows_as_reported(knows_nothing, "scripted")
    assert len(rows) == 4 and any(row["retrieved"] for row in rows)
    report = system.report.summary({})["build"]["graphs"]
    assert report["without_node"] and report["triples"]["corpus"] == 0


def test_names_that_lead_to_one_drug_are_known(shared_data: Path, tmp_path: Path) -> None:
    """Of orders; a group of codes leads to the drug of some of its members, and is no name of it."""
    graph = f"kg.path={shared_data / 'kg/primekg-subset/merged_kg_12col.csv.gz'}"
    tables = f"data.root={shared_data / 'mimic-iv-demo-2.2'}"
    own = "system=kare", "data=mimic4", tables, f"data.cache={tmp_path}", graph
    drugs = kare_build._drugs(Records(load([*own])))
    assert drugs["heparin sodium"] == drugs["heparin crrt machine priming"] == drugs["heparin"] != drugs["warfarin"]
    assert "acute kidney failure unspecified" not in drugs and len(set(drugs.values())) < len(drugs) - 50
    assert kare_build._drugs(Records(load([*own, f"data.codes={shared_data / 'codes'}"]))) == {}
