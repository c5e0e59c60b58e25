"""One vLLM on two GPUs: what it reports is what it sampled from, and new weights and adapters reach both."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from ghar.llm import canary
from ghar.llm.vllm_build import VLLMSettings
from ghar.trainers.rl.actor_critic import ActorCritic
from tests.gpu.batches import make_model, make_tokenizer
from tests.gpu.test_engine import BFLOAT16, KV_CACHE_GB, MISMATCH_LIMIT, RANK, Case, check_replies, trainable
from tests.trainers.tiny import for_two

pytest.importorskip("vllm", reason="vLLM is not installed: make test-gpu installs it")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def divided(request: pytest.FixtureRequest, device: str) -> Iterator[Case]:
    """An engine on two GPUs, or in two processes where it is rehearsed without."""
    from ghar.llm.vllm import VLLMEngine

    if device == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip(f"tensor parallelism needs two GPUs, and torch finds {torch.cuda.device_count()} here")
    dtype = request.param
    model = make_model(device, dtype)
    rank = RANK if device == "cpu" or dtype == "bfloat16" else None  # a GPU's LoRA kernels are made for 16 bits
    settings = VLLMSettings(KV_CACHE_GB[device], 256, adapter_rank=rank, sleep=device == "cuda", gpus=2)
    engine = VLLMEngine(model, make_tokenizer(), settings)
    tolerance = {"float32": canary.EXACT, "bfloat16": BFLOAT16}[dtype]
    yield Case(dtype, engine, model, device, tolerance, MISMATCH_LIMIT[dtype])
    engine.close()


def test_whole_weights_reach_both(divided: Case) -> None:
    for version, model in enumerate((divided.model, make_model(divided.device, divided.name, seed=5))):
        divided.engine.sync(model, version)
        check_replies(divided, ActorCritic(copy.deepcopy(model), for_two("full", reference=False)))
    with pytest.raises(canary.WrongWeights):
        divided.engine.check(divided.model)


def test_adapters_reach_both(divided: Case) -> None:
    if not divided.engine.takes_adapters:
        pytest.skip("on a GPU vLLM takes adapters in 16 bits only")
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
