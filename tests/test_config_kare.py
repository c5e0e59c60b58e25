"""The section kare: the paper's and the released code's numbers, and values that contradict each other."""

from __future__ import annotations

import pytest

from ghar.errors import BadInput
from launch.entry import load


def test_the_papers_numbers_and_the_released_ones() -> None:
    paper, released = load(["policy=kare"]).kare, load(["policy=kare_released"]).kare
    assert paper is not None and released is not None
    assert (paper.paths, paper.communities) == ((20, 7, 40, 12_000), (25, 5, 20, 150))
    assert paper.weights == (0.1, 0.7, 0.2, 0.2, 0.3) and paper.variant == "paper"
    assert (released.paths[3], released.communities[1]) == (10_000, 10)
    assert released.weights == (0.8, 0.5, 0.1, 0.1, 0.1) and released.variant == "released"


def test_the_papers_training() -> None:
    own = ["data.root=tables", "kare.expert=expert@http://127.0.0.1:8000/v1", "scale=full", "model=mistral_7b"]
    c = load(["+experiment=mimic4_mortality", *own])
    warmup = c.trainer.warmup
    assert (warmup.epochs, warmup.batch, warmup.micro_batch, warmup.lr) == (3, 32, 1, 5e-6)
    assert (c.model.path, c.model.finetune) == ("mistralai/Mistral-7B-Instruct-v0.3", "full")
    assert (c.task.name, c.task.split, c.task.window_days) == ("kare_mortality", (0.8, 0.1, 0.1), 15)
    assert load(["policy=kare", "deepspeed=zero3"]).deepspeed is not None


@pytest.mark.parametrize("overrides, said", [
    (["policy=kare", "kare.methods=[]"], "at least one method"),
    (["policy=kare", "kare.methods=[kare,kare]"], "each only once"),
    (["policy=kare", "kare.communities=[25,5,150,20]"], "Z_s below Z_c"),
    (["policy=kare", "kare.weights=[1,0.7,0.2,0.2,0.3]"], "alpha below 1"),
    (["policy=kare", "kare.weights=[0.1,0,0.2,0.2,0.3]"], "beta above 0"),
    (["policy=kare", "retriever=bm25"], "makes no vectors of summaries"),
    (["policy=kare", "engine=api"], "engine=api asks the server that model.path names"),
    (["policy=kare", "task=series_los"], "does not read task=series_los"),
    (["engine=api"], "policy=ghar does not ask a server"),
    (["task=kare_mortality"], "not told in the demo world"),
])  # fmt: skip
def test_contradictions_are_told(overrides: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        load(overrides)
