"""How much examples lower the entropy of a patient's text (Eq. 14, GraphWalker), again by plain forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from ghar.config import Config
from ghar.envs.graphwalker.corpus import NEEDS, Examples, ExamplesCorpus, SelectExamples
from ghar.envs.graphwalker.selectors.protocol import Name, Shots
from ghar.envs.graphwalker.series import series_material
from ghar.envs.graphwalker.settings import Settings
from ghar.envs.graphwalker.system import assemble
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import Reader
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm.engines import served
from ghar.llm.models import load_backbone
from ghar.llm.policy import EnginePolicy

pytestmark = pytest.mark.slow

SMALL = (
    "model.hidden=16", "model.layers=1", "model.vocab=1100", "threads=1", "system=graphwalker", "system.k=2",
    "system.k_g=3", "system.encoder=text", "task=series_mortality", "task.max_test=3", "task.max_valid=4",
    "data.patients=120",
)  # fmt: skip
SELECTORS: tuple[Name, ...] = ("random_choice", "semantic_emb", "cone", "graphwalker")


def small(cache: Any, *more: str) -> tuple[Config, Any]:
    config = load([*SMALL, f"data.cache={cache}", *more])
    assert isinstance(config.system, Settings)
    return config, series_material(Records(config), config.system)


def entropy(network: Any, corpus: ExamplesCorpus, sample_id: str, shots: Shots) -> float:
    """Mean -log p of the patient's tokens behind the examples, by one forward pass over the whole prompt."""
    walkers = corpus.walkers
    before = [*walkers.prompt.head, *(i for row in shots for i in walkers.candidates[row].example)]
    asked = walkers.patients[sample_id].asked
    with torch.inference_mode():
        logits = network(torch.tensor([[*before, *asked]])).logits[0].double()
    log_probs = logits.log_softmax(-1)[len(before) - 1 : -1]
    return -float(log_probs[range(len(asked)), list(asked)].mean())


def chosen(corpus: ExamplesCorpus, selector: Name, ids: Sequence[str]) -> list[Examples]:
    found = corpus.retrieve([SelectExamples("", sample_id=one, selector=selector) for one in ids])
    assert all(isinstance(one, Examples) for one in found)
    return [one for one in found if isinstance(one, Examples)]


def test_the_drop_is_that_of_plain_forward_passes(tmp_path: Any) -> None:
    config, material = small(tmp_path, "system.entropy_drop=true")
    network, tokenizer = load_backbone(config, material.texts)

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    with served(config, network, tokenizer) as engine:
        reader = Reader(count, network.config.max_position_embeddings, engine, tokenizer)
        system, policy = assemble(material, config, reader), EnginePolicy(engine, 0)
        corpus = system.corpus
        assert isinstance(corpus, ExamplesCorpus)
        ids = [case.sample_id for case in system.cases.test]
        for selector in SELECTORS:
            for name, found in zip(ids, chosen(corpus, selector, ids), strict=True):
                shots = found.selection.shots
                direct = entropy(network, corpus, name, ()) - entropy(network, corpus, name, shots)
                assert found.entropy_drop == pytest.approx(direct, abs=5e-6), selector
                assert (found.cost.prompts > 0) == (selector in NEEDS)  # measuring is no selector's cost
                if selector == "graphwalker":  # the gains of a walk are parts of it
                    assert found.entropy_drop == pytest.approx(sum(found.selection.gains), abs=5e-6)
        variant = system.variant("semantic_emb")
        episodes = play(stage_of(system, variant, config), system.cases.test, policy, seed=0, title="")
        rows = [system.report.row(e, case, variant) for e, case in zip(episodes, system.cases.test, strict=True)]
        drops = [found.entropy_drop for found in chosen(corpus, "semantic_emb", ids)]
        assert [row["entropy_drop"] for row in rows] == drops and len(set(drops)) == len(ids)
        alone = system.variant("zero_shot")
        [episode] = play(stage_of(system, alone, config), system.cases.test[:1], policy, seed=0, title="")
        assert system.report.row(episode, system.cases.test[0], alone)["entropy_drop"] == 0


def test_it_is_measured_where_it_is_asked_for_and_a_model_reads(tmp_path: Any) -> None:
    for more, columns in (((), False), (("system.entropy_drop=true",), True)):
        config, material = small(tmp_path, *more)
        system = assemble(material, config, Reader())  # rules alone
        variant = system.variant("scripted_semantic_emb")
        policy = system.fixed["majority"]()
        [episode] = play(stage_of(system, variant, config), system.cases.test[:1], policy, seed=0, title="")
        row = system.report.row(episode, system.cases.test[0], variant)
        assert ("entropy_drop" in row) == columns and row.get("entropy_drop") is None


def test_an_engine_without_log_probabilities_is_refused(tmp_path: Any) -> None:
    config, material = small(tmp_path, "system.entropy_drop=true")

    class Silent:
        version = 0

        def generate(self, requests: Any) -> list[Any]:
            return []

    corpus = assemble(material, config, Reader()).corpus
    assert isinstance(corpus, ExamplesCorpus)
    asking = ExamplesCorpus(corpus.walkers, Silent(), 1)  # pyright: ignore[reportArgumentType]
    refused = asking.refused("semantic_emb")
    assert refused is not None and refused.startswith("system.entropy_drop=true needs log-probabilities")
    plain = replace(material, settings=replace(material.settings, entropy_drop=False))
    assert ExamplesCorpus(replace(corpus.walkers, material=plain), None, 1).refused("semantic_emb") is None
    with pytest.raises(BadInput, match="entropy_drop=true needs log-probabilities"):
        asking.beside(EnginePolicy(Silent(), 0), assemble(material, config, Reader()).variant("semantic_emb"), [])  # pyright: ignore[reportArgumentType]
