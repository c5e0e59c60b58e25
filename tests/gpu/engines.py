"""Engines of vLLM for the tests here, on each of its two model runners, and what every reply of one must satisfy."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from ghar.llm import canary
from ghar.llm.engine import Request
from ghar.llm.vllm_build import VLLMSettings
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.settings import MISMATCH_LIMIT
from tests.gpu.batches import SIZES, make_model, make_tokenizer
from tests.trainers.tiny import for_two, make_row, perturb

CHOICES = ("yes", "no", "nothing known yet", "nothing known at all")
KV_CACHE_GB = {"cuda": 8.0, "cpu": 0.25}
RANK = 8
BFLOAT16 = 0.1  # nats, of a single token
RUNNER = "VLLM_USE_V2_MODEL_RUNNER"  # unset, vLLM takes the second where Triton is
KINDS = list(product(("float32", "bfloat16"), (1, 2)))  # dtype, model runner


@dataclass(frozen=True)
class Case:
    """An engine and the model whose weights it is given."""

    dtype: str
    runner: int
    engine: Any
    model: Any
    device: str
    tolerance: float  # of a single token, in nats
    mean: float  # of the mean over tokens

    @property
    def title(self) -> str:
        """Name of its row among the measured numbers."""
        return f"vllm {self.dtype}, model runner V{self.runner}"


@contextmanager
def started(kind: tuple[str, int], device: str, gpus: int = 1) -> Iterator[Case]:
    """Start an engine on the named model runner, and close it at the end."""
    from vllm.triton_utils import HAS_TRITON  # pyright: ignore[reportMissingImports]

    from ghar.llm.vllm import VLLMEngine

    dtype, runner = kind
    if runner == 2 and not HAS_TRITON:
        pytest.skip("vLLM's second model runner needs Triton, which is not here")
    model = make_model(device, dtype)
    rank = RANK if device == "cpu" or dtype == "bfloat16" else None  # a GPU's LoRA kernels are made for 16 bits
    settings = VLLMSettings(KV_CACHE_GB[device], 256, adapter_rank=rank, sleep=device == "cuda", gpus=gpus)
    tolerance = {"float32": canary.EXACT, "bfloat16": BFLOAT16}[dtype]
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(RUNNER, str(runner - 1))
        engine = VLLMEngine(model, make_tokenizer(), settings)
    try:
        yield Case(dtype, runner, engine, model, device, tolerance, MISMATCH_LIMIT[dtype])
    finally:
        engine.close()


def model_runners(engine: Any) -> list[int]:
    """Ask each worker of an engine which of vLLM's model runners it has."""
    return engine._engine.collective_rpc(lambda worker: 2 if worker.use_v2_model_runner else 1)


def need_adapters(case: Case) -> None:
    """Skip the test where the engine takes whole weights alone."""
    if not case.engine.takes_adapters:
        pytest.skip("on a GPU vLLM takes adapters in 16 bits only")


def requests(device: str) -> list[Request]:
    """Free text and choices of several tokens, each with a seed of its own."""
    size = SIZES[device]
    prompts = [f"conditions: gout; asthma | drugs: warfarin {i} | " * 4 + "decide:" for i in range(size.replies)]
    return [Request(p, size.reply, CHOICES if i % 4 == 0 else (), seed=i) for i, p in enumerate(prompts)]


def apart(actor: ActorCritic, replies: list[Any]) -> tuple[float, float]:
    """Mean and largest |trainer's log-prob - behaviour log-prob| over all sampled tokens, in nats."""
    rows = [make_row(r.prompt_ids + r.token_ids, len(r.prompt_ids), 0, r.choice_ids) for r in replies]
    own = actor.evaluate(rows, 8192).logp.tolist()
    told = [p for r in replies for p in r.logprobs]
    differences = [abs(a - b) for a, b in zip(own, told, strict=True)]
    return sum(differences) / len(differences), max(differences)


def check_replies(case: Case, actor: ActorCritic) -> tuple[float, float]:
    mean, largest = apart(actor, case.engine.generate(requests(case.device)))
    assert mean <= case.mean and largest <= case.tolerance
    return mean, largest


def trainable(case: Case, finetune: Any, seed: int) -> ActorCritic:
    """A trainer's actor with other weights than `case.model`."""
    made = ActorCritic(copy.deepcopy(case.model), for_two(finetune, rank=RANK, reference=False))
    return perturb_on(made, seed)


def perturb_on(actor: ActorCritic, seed: int) -> ActorCritic:
    """`perturb` draws on the CPU."""
    device: Any = actor.device
    return perturb(actor.to("cpu"), seed).to(device)
