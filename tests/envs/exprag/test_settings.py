"""The section exprag: presets, and values that contradict each other."""

from __future__ import annotations

import pytest

from ghar.errors import BadInput
from launch.entry import load


def test_the_papers_numbers_and_the_released_ranker() -> None:
    paper, released = load(["policy=exprag"]).exprag, load(["policy=exprag_released"]).exprag
    assert paper is not None and released is not None
    assert (paper.top_k, paper.ranker, paper.retriever) == (15, "uniform", "auto_merging")
    assert released.ranker == "released" and released.top_k == 15
    own = load(["+experiment=mimic4_dischargeqa", "data.root=tables", "exprag.notes=notes"])
    assert own.exprag is not None and own.exprag.rows == (3, 40) and own.task.name == "dischargeqa_diagnosis"
    assert load(["policy=exprag", "task=dischargeqa_medication"]).task.name == "dischargeqa_medication"


@pytest.mark.parametrize("overrides, said", [
    (["policy=exprag", "task=los"], "policy=exprag does not answer task=los"),
    (["task=dischargeqa_diagnosis"], "policy=ghar does not answer task=dischargeqa_diagnosis"),
    (["policy=exprag", "exprag.rows=[4,2]"], "fewest rows first"),
    (["policy=exprag", "exprag.policies=[]"], "at least one policy"),
    (["policy=exprag", "exprag.retriever=flare"], "policy scripted is none"),
    (["policy=exprag", "exprag.judged=3", "exprag.policies=[scripted]"], "needs a language model as judge"),
    (["policy=exprag", "retriever=bm25"], "makes no vectors for exprag"),
    (["policy=exprag", "exprag.retriever=colbert"], "exprag.retriever is"),
])  # fmt: skip
def test_contradictions_are_told(overrides: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        load(overrides)
