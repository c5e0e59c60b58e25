"""The keys of system=kare: the paper's and the released code's numbers, and values that contradict each other."""

from __future__ import annotations

import pytest

from ghar.config import Config
from ghar.envs.kare.settings import Settings, sizes
from ghar.errors import BadInput
from ghar.launch.entry import load


def own(config: Config) -> Settings:
    assert isinstance(config.system, Settings)
    return config.system


def test_the_papers_numbers_and_the_released_codes() -> None:
    paper, released = own(load(["system=kare"])), own(load(["system=kare_released"]))
    assert (paper.path_length, paper.path_count, paper.path_nodes, paper.cluster_size) == (7, 40, 12000, 5)
    assert (paper.alpha, paper.beta, paper.coherence, paper.recency, paper.theme) == (0.1, 0.7, 0.2, 0.2, 0.3)
    assert (released.path_nodes, released.cluster_size, released.variant) == (10000, 10, "released")
    assert (released.alpha, released.beta, released.coherence) == (0.8, 0.5, 0.1)


def test_the_scale_decides_what_null_leaves_open() -> None:
    demo = load(["system=kare"])
    full = load(["system=kare", "scale=full", "data=mimic4", "data.root=x", "kg.path=y", "model.path=z"])
    given = load(["system=kare", "system.large=40", "system.tokens=7"])
    found = [sizes(config, own(config)) for config in (demo, full, given)]
    assert [(one.small, one.large, one.tokens) for one in found] == [(5, 6, 200), (20, 150, 2500), (5, 40, 7)]


def test_the_papers_experiments() -> None:
    tables = ["data.root=tables", "system.expert=expert@http://127.0.0.1:8000/v1", "scale=full", "model=mistral_7b"]
    config = load(["+experiment=mimic4_kare_mortality", *tables, "kg.path=x"])
    assert (config.task.name, config.task.split, config.task.window_days) == ("kare_mortality", (0.8, 0.1, 0.1), 15)
    warmup = config.trainer.warmup
    assert (warmup.epochs, warmup.batch, warmup.micro_batch, warmup.lr) == (3, 32, 1, 5e-6)
    assert (config.model.path, config.model.finetune) == ("mistralai/Mistral-7B-Instruct-v0.3", "full")
    assert config.trainer.rl.updates == 0 and config.env.history_tokens == 1000


@pytest.mark.parametrize("overrides, sentence", [
    (["system.small=150", "system.large=20"], "must be below"),
    (["system.small=10"], "must be below"),  # the demo's other limit is 6
    (["system.alpha=1"], "alpha=1.0 below 1"),
    (["system.beta=0"], "beta=0.0 above 0"),
    (["retriever=bm25"], "makes no vectors of summaries"),
    (["system.variant=best"], "system.variant"),
])  # fmt: skip
def test_contradictions(overrides: list[str], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        load(["system=kare", *overrides])
