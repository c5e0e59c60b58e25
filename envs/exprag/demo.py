"""EXPRAG on generated patients and their discharge summaries, as `gymnasium.make("ghar/EXPRAG-v0")` plays it."""

from __future__ import annotations

from functools import cache, partial

from ghar.data.readers.notes import read_notes
from ghar.disk import cache_of
from ghar.envs.demo import ETA, SEED, WORDS, demo_cohort
from ghar.envs.exprag.corpus import rank_by_codes
from ghar.envs.exprag.dischargeqa import build_questions, question_case
from ghar.envs.exprag.episode import ExpragEpisodes, ExpragSpec, exprag_scene
from ghar.envs.exprag.report_build import index_reports, queries_of
from ghar.envs.exprag.report_corpus import ReportCorpus
from ghar.envs.stepper import Scene
from ghar.envs.worlds.severity.notes import write_notes
from ghar.retrieval.experience import make_finder
from ghar.retrieval.matching import tfidf
from ghar.retrieval.reports import weights

SPEC = ExpragSpec("compact", top_k=5, excerpts=8, words=96)
ROWS = (1, 40)  # of a table; generated stays have 1 to 4


@cache
def demo_questions(folder: str | None = None) -> Scene:
    """Which diagnoses were made at discharge? Asked of every stay of a generated world with a readable summary."""
    world, cohort = demo_cohort(folder)
    written = world.root.with_name(f"{world.root.name}-notes")
    write_notes(world.root, written)
    notes = read_notes(written, cache_of(folder) / "notes")
    questions, _ = build_questions(cohort, notes, "diagnosis", rows=ROWS, words=WORDS, seed=SEED)
    index, weight = index_reports(cohort, notes, None, cache_of(folder) / "indexes"), weights("uniform", "diagnoses")
    corpus = ReportCorpus(
        index,
        notes,
        queries_of(cohort, [question.visit_id for question in questions], strict=False),
        partial(rank_by_codes, index, weight),
        make_finder("auto_merging", tfidf),
        "stay {}".format,
    )
    return exprag_scene(ExpragEpisodes(SPEC), corpus, list(map(question_case, questions)), ETA)
