"""One vLLM on two GPUs: what it reports is what it sampled from, and new weights and adapters reach both."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from ghar.llm import canary
from ghar.trainers.rl.actor_critic import ActorCritic
from tests.gpu.batches import make_model
from tests.gpu.engines import KINDS, Case, check_replies, model_runners, need_adapters, started, trainable
from tests.trainers.tiny import for_two

pytest.importorskip("vllm", reason="vLLM is not installed: make test-gpu installs it")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", params=KINDS, ids="{0[0]}-V{0[1]}".format)
def divided(request: pytest.FixtureRequest, device: str) -> Iterator[Case]:
    """An engine on two GPUs, or in two processes where it is rehearsed without."""
    if device == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip(f"tensor parallelism needs two GPUs, and torch finds {torch.cuda.device_count()} here")
    with started(request.param, device, gpus=2) as made:
        yield made


def test_both_have_the_model_runner_that_is_asked_for(divided: Case) -> None:
    assert model_runners(divided.engine) == [divided.runner, divided.runner]


def test_whole_weights_reach_both(divided: Case) -> None:
    for version, model in enumerate((divided.model, make_model(divided.device, divided.dtype, seed=5))):
        divided.engine.sync(model, version)
        check_replies(divided, ActorCritic(copy.deepcopy(model), for_two("full", reference=False)))
    with pytest.raises(canary.WrongWeights):
        divided.engine.check(divided.model)


def test_adapters_reach_both(divided: Case) -> None:
    need_adapters(divided)
    divided.engine.sync(divided.model, 0)
    for version in (1, 2):
        actor: Any = trainable(divided, "lora", version)
        divided.engine.sync(actor.model, version)
        check_replies(divided, actor)


def test_both_sleep_and_wake_with_their_weights(divided: Case) -> None:
    if divided.device == "cpu":
        pytest.skip("vLLM cannot sleep on a CPU")
    divided.engine.sync(divided.model, 0)
    divided.engine.sleep()
    divided.engine.wake()
    check_replies(divided, ActorCritic(copy.deepcopy(divided.model), for_two("full", reference=False)))
