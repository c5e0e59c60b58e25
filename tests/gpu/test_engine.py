"""vLLM on the GPU: what it reports is what it sampled from, new weights arrive, and sleep gives memory back."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ghar.device import GIB
from ghar.llm import canary
from ghar.llm.engine import Request
from ghar.llm.vllm_build import VLLMSettings, free_memory
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.serving import serving
from ghar.trainers.rl.settings import MISMATCH_LIMIT
from tests.gpu.batches import GB, SIZES, make_model, make_tokenizer
from tests.trainers.tiny import for_two, make_row, perturb

pytest.importorskip("vllm", reason="vLLM is not installed: make test-gpu installs it")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1200)]

CHOICES = ("yes", "no", "nothing known yet", "nothing known at all")
KV_CACHE_GB = {"cuda": 8.0, "cpu": 0.25}
RANK = 8
BFLOAT16 = 0.1  # nats, of a single token


@dataclass(frozen=True)
class Case:
    """An engine and the model whose weights it is given."""

    name: str
    engine: Any
    model: Any
    device: str
    tolerance: float  # of a single token, in nats
    mean: float  # of the mean over tokens


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def case(request: pytest.FixtureRequest, device: str) -> Iterator[Case]:
    from ghar.llm.vllm import VLLMEngine

    dtype = request.param
    model = make_model(device, dtype)
    rank = RANK if device == "cpu" or dtype == "bfloat16" else None  # a GPU's LoRA kernels are made for 16 bits
    settings = VLLMSettings(KV_CACHE_GB[device], 256, adapter_rank=rank, sleep=device == "cuda")
    engine = VLLMEngine(model, make_tokenizer(), settings)
    tolerance = {"float32": canary.EXACT, "bfloat16": BFLOAT16}[dtype]
    yield Case(dtype, engine, model, device, tolerance, MISMATCH_LIMIT[dtype])
    engine.close()


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


def test_it_reports_what_it_sampled_from(case: Case, measured: Any) -> None:
    case.engine.sync(case.model, 0)
    actor = ActorCritic(copy.deepcopy(case.model), for_two("full", reference=False))
    mean, largest = check_replies(case, actor)
    start = time.perf_counter()
    replies = case.engine.generate(requests(case.device))
    tokens = sum(len(reply.token_ids) for reply in replies)
    numbers = {"tokens_per_second": tokens / (time.perf_counter() - start), "mean_nats": mean, "max_nats": largest}
    if case.device == "cuda":
        numbers["gpu_memory_left_gb"] = free_memory("cuda") / GB
    measured(f"vllm {case.name}", **numbers)


def test_a_reply_depends_on_its_request_alone(case: Case) -> None:
    """In float32; bfloat16 kernels round differently in batches of other sizes, so that rare draws may flip."""
    case.engine.sync(case.model, 0)
    some = requests(case.device)[:6]
    together = case.engine.generate(some)
    alone = [case.engine.generate([request])[0] for request in some]
    same = sum(a.token_ids == b.token_ids for a, b in zip(together, alone, strict=True))
    assert same == len(some) if case.name == "float32" else same >= len(some) // 2


def test_whole_weights_arrive(case: Case, measured: Any) -> None:
    other = make_model(case.device, case.name, seed=5)
    case.engine.generate(requests(case.device))  # fills the prefix cache with what must not be used afterwards
    start = time.perf_counter()
    case.engine.sync(other, 1)
    measured(f"vllm {case.name}", weight_sync_seconds=time.perf_counter() - start)
    check_replies(case, ActorCritic(copy.deepcopy(other), for_two("full", reference=False)))
    with pytest.raises(canary.WrongWeights):
        case.engine.check(case.model)


def need_adapters(case: Case) -> None:
    if not case.engine.takes_adapters:
        pytest.skip("on a GPU vLLM takes adapters in 16 bits only")


def test_adapters_are_exchanged(case: Case, measured: Any) -> None:
    need_adapters(case)
    case.engine.sync(case.model, 0)
    for version in (1, 2):
        actor = trainable(case, "lora", version)
        start = time.perf_counter()
        case.engine.sync(actor.model, version)
        measured(f"vllm {case.name}", adapter_sync_seconds=time.perf_counter() - start)
        check_replies(case, actor)
    with pytest.raises(canary.WrongWeights):
        case.engine.check(case.model)


def test_a_stale_adapter_is_caught(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    from ghar.llm import weight_update

    need_adapters(case)
    wrong, right = trainable(case, "lora", 3), weight_update.save_adapter
    monkeypatch.setattr(weight_update, "save_adapter", lambda model, folder: right(wrong.model, folder))
    with pytest.raises(canary.WrongWeights):
        case.engine.sync(trainable(case, "lora", 4).model, 1)


def test_sleep_gives_memory_back_and_wake_the_weights(case: Case, measured: Any) -> None:
    if case.device == "cpu":
        pytest.skip("vLLM cannot sleep on a CPU")
    actor = trainable(case, "full", 6)
    with serving(case.engine, actor, 3):
        before, held = case.engine.generate(requests("cuda")), free_memory("cuda")
    given = free_memory("cuda") - held
    measured(f"vllm {case.name}", sleep_gives_back_gb=given / GB)
    assert given >= 0.9 * KV_CACHE_GB["cuda"] * GIB
    with serving(case.engine, actor, 3):  # no new weights: it has kept them
        assert case.engine.check(actor.model) <= case.tolerance
        again = case.engine.generate(requests("cuda"))
        assert apart(actor, again)[1] <= case.tolerance and len(again) == len(before)
    perturb_on(actor, 7)
    with serving(case.engine, actor, 4):  # asleep until now, and new ones arrive
        check_replies(case, actor)
