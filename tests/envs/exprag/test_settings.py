"""The keys of system=exprag: presets, values that contradict each other, and what a task or a source lacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ghar.envs.exprag.report_corpus import ReportCorpus
from ghar.envs.exprag.settings import Settings
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.errors import BadInput
from ghar.launch.entry import load


def settings(*overrides: str) -> Settings:
    own = load(overrides).system
    assert isinstance(own, Settings)
    return own


def test_the_papers_numbers_and_the_released_ranker() -> None:
    paper, released = settings("system=exprag"), settings("system=exprag_released")
    assert (paper.top_k, paper.ranker, paper.retriever) == (15, "uniform", "auto_merging")
    assert released.ranker == "released" and released.top_k == 15
    own = settings("+experiment=mimic4_dischargeqa", "data.root=tables", "system.notes=notes")
    assert own.words == 3000
    assert (own.fewest_rows, own.most_rows) == (3, 40)
    assert load(["system=exprag"]).task.name == "dischargeqa_diagnosis"
    assert load(["system=exprag", "task=dischargeqa_medication"]).task.name == "dischargeqa_medication"


@pytest.mark.parametrize("overrides, message", [
    (["system.fewest_rows=4", "system.most_rows=2"], "system.fewest_rows=4 is above"),
    (["retriever=bm25"], "makes no vectors for exprag"),
    (["system.ranker=text", "system.ranker_encoder=bm25"], "system.ranker_encoder=bm25 makes no vectors"),
    (["retriever=bm25", "system.retriever=bm25", "system.ranker=text"], "makes no vectors for exprag"),
    (["system.retriever=colbert"], "system.retriever is"),
])  # fmt: skip
def test_contradictions_are_named(overrides: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load(["system=exprag", *overrides])


@pytest.mark.parametrize("overrides, message", [
    (["data=mimic4", "data.root=."], "system.notes is null"),
    (["data=mimic3"], "data=mimic3 needs data.root"),
    (["task=los", "system.retriever=flare"], "system.retriever=flare .* task=los asks for a label"),
    (["task=los", "system.ranker=task_focused"], "system.ranker=task_focused .* task=los asks for a label"),
    (["task=los", "system.judged=3"], "system.judged=3 .* task=los asks for a label"),
    (["task=series_mortality"], "task=series_mortality shows no visits"),
])  # fmt: skip
def test_what_a_task_or_a_source_lacks(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        build(Records(load(["system=exprag", "data.patients=60", f"data.cache={tmp_path}", *overrides])))


def test_the_ranker_by_text_may_have_an_encoder_of_its_own(world_cache: Path) -> None:
    small = ("system=exprag", "task=dischargeqa_instruction", "data.patients=60", f"data.cache={world_cache}")
    own = ("system.ranker=text", "retriever=tfidf")
    usual, other = (
        build(Records(load([*small, *own, *more]))).corpus for more in ([], ["system.ranker_encoder=hashing"])
    )
    assert isinstance(usual, ReportCorpus) and isinstance(other, ReportCorpus)
    query, text = next(iter(usual.queries.values())), "aspirin at home and a follow-up with cardiology"
    assert not np.array_equal(usual.ranker(query, text, 9)[1], other.ranker(query, text, 9)[1])
