"""KARE's knowledge from other sources: UMLS's files, an extractor that answers prose, real tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ghar.config import Config
from ghar.episode import Retrieve
from ghar.errors import BadInput
from ghar.kg.scripted_summaries import reply as scripted_summary
from ghar.kg.umls import Umls
from ghar.llm.scripted import ScriptedEngine
from ghar.metrics.runfolder import RunFolder
from launch.entry import load
from tests.kg.test_umls import name, relation
from trainers import kare_build
from trainers.kare import evaluate
from trainers.kare_study import prepare
from trainers.records import read_records
from trainers.study import prepare as prepare_ghar

TINY = ("+experiment=kare_demo", "data.patients=40", "kare.communities=[2,5,5,6]", "kare.paths=[5,3,5,500]")


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


def prose_for_triples(prompt: str) -> str:
    return scripted_summary(prompt) if "words" in prompt and "Facts:" in prompt else "I would rather not say."


@pytest.fixture(scope="module")
def umls(cache: Path) -> Path:
    """UMLS's two files: the first conditions of the demo world, each related to the next."""
    codes = read_records(configured(cache)).cohort.codes
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
    config = configured(cache, f"kg.path={umls}", "kare.expert=engine")
    records = read_records(config)
    assert isinstance(records.graph, Umls) and records.counts["graph nodes"] == 30
    assert records.counts["codes linked, UMLS"] == len(records.links.nodes) >= 30
    monkeypatch.setattr(kare_build, "named_engine", engine_of(prose_for_triples))
    report = prepare(config).graph.report
    assert report["graphs"]["triples"]["graph"] > 0 and report["communities"]["communities"] > 0


def test_umls_is_refused_where_primekg_is_needed(cache: Path, umls: Path) -> None:
    with pytest.raises(BadInput, match="holds UMLS"):
        prepare(configured(cache, f"kg.path={umls}"))  # the scripted extractor recites PrimeKG's format
    with pytest.raises(BadInput, match="holds UMLS"):
        prepare_ghar(load([f"data.cache={cache}", "data.patients=40", f"kg.path={umls}"]))


def test_an_extractor_that_answers_prose_is_counted_and_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kare_build, "named_engine", engine_of(prose_for_triples))
    report = prepare(configured(cache, "kare.expert=engine")).graph.report["graphs"]
    for source in ("corpus", "model"):
        told = report["asked"][source]
        assert told["unreadable"] == told["asked"] + told["reused"] > 0 and set(told["by_reason"]) == {"no_list"}
        assert set(told["failed"].values()) == {"no_list"} and report["triples"][source] == 0
    assert report["triples"]["graph"] == report["triples"]["all"] > 0


def test_no_triple_at_all_is_bad_input(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kare_build, "named_engine", engine_of(lambda prompt: "[]"))
    (tmp_path / "MRCONSO.RRF").write_text(name("C1", "nothing of ours"))
    (tmp_path / "MRREL.RRF").write_text(relation("C1", "C1", "RO"))
    with pytest.raises(BadInput, match="No source knows"):
        prepare(configured(cache, f"kg.path={tmp_path}", "kare.expert=engine", "kare.abstracts=null"))


def test_ghar_looks_communities_up(cache: Path) -> None:
    """policy=ghar_communities: GHAR's episodes over KARE's communities."""
    study = prepare_ghar(load(["policy=ghar_communities", f"data.cache={cache}", "data.patients=40"]))
    menu = study.episodes.metapaths
    assert menu and all(part.text for part in menu)
    [found] = study.retriever.retrieve([Retrieve("disease heart failure", (menu[0].index,), 2)])
    assert found.passages and {passage.kind for passage in found.passages} == {"community"}


def test_real_tables(shared_data: Path, tmp_path: Path) -> None:
    graph = shared_data / "kg" / "primekg-subset"
    tables = [
        "policy=kare", "data=mimic4", f"data.root={shared_data / 'mimic-iv-demo-2.2'}", f"data.cache={tmp_path}",
        f"kg.path={graph / 'merged_kg_12col.csv.gz'}", f"kg.references={graph / 'txgnn_mondo_references.csv.gz'}",
        "task.max_train=12", "task.max_valid=2", "task.max_test=4", "kare.paths=[3,3,5,500]",
        "kare.communities=[2,5,10,20]", f"run_dir={tmp_path / 'run'}", "eval.bootstrap=20",
    ]  # fmt: skip
    with pytest.raises(BadInput, match=r"set kare\.abstracts"):
        evaluate(load([*tables, "kare.methods=[rag]"]))
    summary = evaluate(load([*tables, "kare.methods=[scripted,scripted_base]"]))
    assert not summary["generated"] and summary["policies"]["scripted"]["n"] == 4
    assert summary["build"]["graphs"]["without_node"] and summary["build"]["graphs"]["triples"]["corpus"] == 0
    rows = list(RunFolder(tmp_path / "run").episodes("scripted"))
    assert any(row["retrieved"] for row in rows) and json.loads((tmp_path / "run" / "summary.json").read_text())
    assert "This page contains patient text" in (tmp_path / "run" / "report.html").read_text()
