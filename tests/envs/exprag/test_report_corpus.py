"""The corpus of reports: who may see whose report, and what comes back; the index made from a cohort."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ghar.data.cohort import Cohort
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.notes import Notes, read_notes
from ghar.envs.exprag.report_build import index_reports, queries_of
from ghar.envs.exprag.report_corpus import FindExcerpts, RankReports, ReportCorpus
from ghar.envs.exprag.report_texts import rank_by_text, text_scores
from ghar.envs.worlds.severity.notes import write_notes
from ghar.envs.worlds.severity.world import generate_world
from ghar.episode import Retrieve
from ghar.retrieval.encoders import HashingEncoder
from ghar.retrieval.experience import make_finder
from ghar.retrieval.matching import tfidf
from ghar.retrieval.reports import ReportIndex, ReportQuery, rank, similarities, weights

UNIFORM = weights("uniform", "diagnoses")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cohort, Notes, Path]:
    root = tmp_path_factory.mktemp("reports")
    generate_world(root / "world", seed=2, patients=50)
    write_notes(root / "world", root / "notes")
    return read_mimic4(root / "world", root / "cache", charts=False), read_notes(root / "notes", root / "cache"), root


def corpus_of(world: tuple[Cohort, Notes, Path], *, strict: bool = False) -> ReportCorpus:
    cohort, notes, root = world
    index = index_reports(cohort, notes, None, root / "indexes")
    queries = queries_of(cohort, cohort.visits["visit_id"].to_list(), strict=strict)
    finder = make_finder("bm25", tfidf)
    return ReportCorpus(index, notes, queries, lambda q, t, k: rank(index, q, UNIFORM, k), finder, str)


def owners(index: ReportIndex) -> dict[int, int]:
    return dict(zip(index.visit_id.tolist(), index.subject_id.tolist(), strict=True))


def test_the_index_holds_the_codes_of_the_cohort(world: tuple[Cohort, Notes, Path]) -> None:
    cohort, notes, _ = world
    corpus = corpus_of(world)
    assert sorted(corpus.index.visit_id.tolist()) == notes.visit_id.tolist()
    stay = int(corpus.index.visit_id[3])
    visit, scores = cohort.shown.visits[stay], similarities(corpus.index, corpus.queries[stay], UNIFORM)
    assert scores[3] == pytest.approx(sum(map(bool, (visit.diagnoses, visit.medications, visit.procedures))) / 3)
    row = int(np.argmin(scores))
    other = cohort.shown.visits[int(corpus.index.visit_id[row])]
    shared = [set(a) & set(b) for a, b in ((visit.diagnoses, other.diagnoses), (visit.medications, other.medications))]
    assert scores[row] > 0 or not any(shared)


def test_no_stay_sees_reports_of_its_own_patient(world: tuple[Cohort, Notes, Path]) -> None:
    corpus = corpus_of(world)
    owner = owners(corpus.index)
    for stay, query in corpus.queries.items():
        [found] = corpus.retrieve([RankReports("", None, 15, stay)])
        assert all(p.kind == "report" and owner[p.ident] != query.subject_id for p in found.passages)
        scores = [p.score for p in found.passages]
        assert scores == sorted(scores, reverse=True) and len(scores) <= 15


def test_strict_shows_neither_later_reports_nor_codes_of_the_discharge(world: tuple[Cohort, Notes, Path]) -> None:
    corpus = corpus_of(world, strict=True)
    for stay, query in corpus.queries.items():
        assert query.before is not None and not any(c.startswith("ICD10CM/") for c in query.codes[0])
        [found] = corpus.retrieve([RankReports("", None, 15, stay)])
        for passage in found.passages:
            row = corpus.notes.row(passage.ident)
            assert row is not None and corpus.notes.available[row] < query.before


def test_excerpts_come_from_the_ranked_reports_alone(world: tuple[Cohort, Notes, Path]) -> None:
    corpus = corpus_of(world)
    stay = next(iter(corpus.queries))
    [ranked] = corpus.retrieve([RankReports("", None, 5, stay)])
    stays = tuple(p.ident for p in ranked.passages)
    [found] = corpus.retrieve([FindExcerpts("discharge diagnosis heart", stays, 4, stay)])
    assert found.passages and all(p.kind == "excerpt" and p.partition in stays for p in found.passages)
    for passage in found.passages:
        heading, _, text = passage.text.partition(": ")
        assert heading and text in corpus.notes.text(passage.partition)


def test_what_may_not_be_shown_is_refused(world: tuple[Cohort, Notes, Path]) -> None:
    corpus = corpus_of(world)
    stay = next(iter(corpus.queries))
    with pytest.raises(ValueError, match=f"stay {stay} may not be shown to stay {stay}"):
        corpus.retrieve([FindExcerpts("x", (stay,), 4, stay)])
    with pytest.raises(TypeError, match="ranks stays"):
        corpus.retrieve([Retrieve("x", (stay,), 4)])


def test_a_pool_of_patients(world: tuple[Cohort, Notes, Path]) -> None:
    cohort, notes, root = world
    some = set(cohort.visits["subject_id"].unique().sort().head(10).to_list())
    index = index_reports(cohort, notes, some, root / "indexes")
    assert set(index.subject_id.tolist()) == some
    assert len(list((root / "indexes").iterdir())) >= 1


@pytest.mark.parametrize("encoder", [None, HashingEncoder(64)])
def test_the_text_ranker_orders_by_likeness(world: tuple[Cohort, Notes, Path], encoder: HashingEncoder | None) -> None:
    corpus = corpus_of(world)
    index, notes = corpus.index, corpus.notes
    scores = text_scores(index, notes, encoder)
    text = notes.text(int(index.visit_id[7]))
    own = ReportQuery(-1, None, ((), (), ()))
    rows, found = rank_by_text(index, scores, own, text, 5)
    assert rows[0] == 7 and found[0] == pytest.approx(1.0, abs=1e-5) and len(rows) == 5
    rows, _ = rank_by_text(index, scores, ReportQuery(int(index.subject_id[7]), None, own.codes), text, 5)
    assert index.subject_id[7] not in index.subject_id[rows]
