"""The scorer with a real, tiny model, against direct evaluations; and engines that cannot do what is asked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from ghar.data.cohort import Task
from ghar.envs.graphwalker.prefix import PlainScorer
from ghar.envs.graphwalker.selectors import cone, graphwalker
from ghar.envs.graphwalker.selectors.prompt import Prompt
from ghar.envs.graphwalker.selectors.protocol import (
    Entropy,
    Generate,
    HiddenStates,
    InfluenceGradients,
    Labels,
    Perplexity,
)
from ghar.envs.graphwalker.selectors.scorer import EngineScorer, drive
from ghar.episode import Completion
from ghar.errors import BadInput
from ghar.llm.hf import HFEngine
from tests.envs.graphwalker.selectors.walks import make_world
from tests.trainers.tiny import tiny_model, tiny_tokenizer

TASK = Task("t", "Will it happen?", ("no", "yes"))
HEAD, ANSWERS = (2, 3, 4), ((5,), (6, 7))


@pytest.fixture(scope="module")
def scorer() -> EngineScorer:
    engine, (pool, _) = HFEngine(tiny_model(), tiny_tokenizer(), 8), make_world(0)
    return EngineScorer(engine, Prompt(TASK, engine.tokenizer, HEAD, ANSWERS, 40), pool.patients)


def logprobs(scorer: EngineScorer, context: list[int], target: tuple[int, ...]) -> list[float]:
    [found] = scorer.engine.score([(context, target)])
    return list(found)


def test_entropy_perplexity_and_labels_are_what_they_say(scorer: EngineScorer) -> None:
    pool, [query, *_] = make_world(0)
    sets = ((), (4,), (4, 7), (7, 4))
    entropy, labels, surprise = scorer.answer(
        [Entropy(query.patient, sets), Labels(query.patient, sets), Perplexity((1, 2))]
    )
    for i, shots in enumerate(sets):
        before = [*HEAD, *(token for row in shots for token in pool.patients[row].example)]
        assert entropy[i] == pytest.approx(-np.mean(logprobs(scorer, before, query.patient.asked)), abs=1e-4)
        sums = [sum(logprobs(scorer, [*before, *query.patient.asked], answer)) for answer in ANSWERS]
        np.testing.assert_allclose(labels[i], log_softmax(sums), atol=1e-4)
    assert surprise[0] == pytest.approx(-np.mean(logprobs(scorer, list(HEAD), pool.patients[1].example)), abs=1e-4)


def test_entropy_is_the_difference_of_joint_entropies(scorer: EngineScorer) -> None:
    """Eq. 8, GraphWalker: H(x | S) = H(x, S) - H(S), as sums over tokens."""
    pool, [query, *_] = make_world(0)
    [[mean]] = scorer.answer([Entropy(query.patient, ((4, 7),))])
    shown = (*pool.patients[4].example, *pool.patients[7].example)
    both = -sum(logprobs(scorer, list(HEAD), (*shown, *query.patient.asked)))
    alone = -sum(logprobs(scorer, list(HEAD), shown))
    assert mean * len(query.patient.asked) == pytest.approx(both - alone, abs=1e-3)


@pytest.mark.slow
def test_walks_with_shared_beginnings_are_those_from_scratch_and_cheaper(scorer: EngineScorer) -> None:
    pool, queries = make_world(0)
    plain = EngineScorer(scorer.engine, scorer.prompt, pool.patients)
    plain.scores = PlainScorer(scorer.engine)
    shared = EngineScorer(scorer.engine, scorer.prompt, pool.patients)
    starts = [partial(graphwalker.select, pool, None, query) for query in queries]
    found = [drive(starts, way, n) for way, n in ((plain, 1), (shared, 1), (shared, 6))]
    for one, two, three in zip(*found, strict=True):
        assert one.shots == two.shots == three.shots
        assert one.gains == pytest.approx(two.gains, abs=1e-4) and two.gains == pytest.approx(three.gains, abs=1e-5)
    assert shared.scores is not None and shared.scores.tally.tokens < shared.scores.tally.scratch
    assert plain.scores.tally.tokens == plain.scores.tally.scratch


def test_slopes_are_directional_derivatives(scorer: EngineScorer) -> None:
    pool, [query, *_] = make_world(0)
    anchor, shots = (4, 7), (4, 7, 11)
    [(value, change)] = scorer.answer([InfluenceGradients(query.patient, anchor, shots)])
    pieces = [HEAD, *(pool.patients[row].example for row in anchor), query.patient.asked]
    answer = ANSWERS[query.patient.label]
    before = [token for piece in pieces for token in piece]
    assert value == pytest.approx(sum(logprobs(scorer, before, answer)), abs=1e-4)
    assert change[0, 0] == pytest.approx(0, abs=1e-5) and change[1, 1] == pytest.approx(0, abs=1e-5)
    model, step = scorer.engine.model, 1e-3  # type: ignore[attr-defined]
    embed = model.get_input_embeddings()
    with torch.no_grad():
        x = embed(torch.tensor([[*before, *answer]]))
        there = embed(torch.tensor(pool.patients[11].example))
        moved = x.clone()
        moved[0, 3:9] += step * (there - x[0, 3:9])
        logp = model(inputs_embeds=moved).logits[0, :-1].log_softmax(-1)
        near = sum(float(logp[len(before) - 1 + i, token]) for i, token in enumerate(answer))
    assert change[0, 2] == pytest.approx((near - value) / step, rel=0.05, abs=2e-2)


def test_states_are_the_models_own(scorer: EngineScorer) -> None:
    pool, _ = make_world(0)
    [(h, asked, norm)] = scorer.answer([HiddenStates(pool.patients[:3])])
    model = scorer.engine.model  # type: ignore[attr-defined]
    out = model(torch.tensor([[*HEAD, *pool.patients[1].asked]]), output_hidden_states=True)
    expected = out.hidden_states[-1][0, -1].detach()
    np.testing.assert_allclose(h[1], expected, atol=1e-5)
    attention = model.model.layers[-1].self_attn
    q = (attention.q_proj.weight @ expected).view(4, -1)  # four query heads share two key heads
    k = attention.k_proj.weight.view(2, -1, 32)
    direct = torch.stack([k[head // 2].T @ q[head] for head in range(4)]).sum(0)
    np.testing.assert_allclose(asked[1], direct.detach(), atol=1e-4)
    assert norm[1] == pytest.approx(float((attention.v_proj.weight @ expected).norm()), abs=1e-4)


class Mute:
    """An engine that speaks and gives no log-probabilities, as a service behind an interface for text."""

    version = 0

    def generate(self, requests):
        return [Completion("4") for _ in requests]


def test_an_engine_without_logprobs_is_told_of_the_black_box_variant() -> None:
    pool, queries = make_world(0)
    scorer = EngineScorer(Mute(), Prompt(TASK, None, HEAD, ANSWERS, 40), pool.patients)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"system\.utility=self_rated"):
        drive([partial(graphwalker.select, pool, None, queries[0])], scorer, 1)
    with pytest.raises(BadInput, match="no log-probabilities"):
        drive([partial(cone.select, pool, None, queries[0])], scorer, 1)
    with pytest.raises(BadInput, match="engine=hf"):
        scorer.answer([HiddenStates(pool.patients[:1])])
    rated = replace(pool, selector=replace(pool.selector, utility="self_rated"))
    [found] = drive([partial(graphwalker.select, rated, None, queries[0])], scorer, 1)
    assert found.gains == (4.0, 4.0, 4.0) and scorer.answer([Generate(("?",), 4)]) == [["4"]]
