"""vLLM on the GPU: what it reports is what it sampled from, new weights arrive, and sleep gives memory back."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ghar.device import GIB
from ghar.llm import canary
from ghar.llm.vllm_build import free_memory
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.serving import serving
from tests.gpu.batches import GB, make_model
from tests.gpu.engines import (
    KINDS,
    KV_CACHE_GB,
    Case,
    apart,
    check_replies,
    model_runners,
    need_adapters,
    perturb_on,
    requests,
    started,
    trainable,
)
from tests.trainers.tiny import for_two

pytest.importorskip("vllm", reason="vLLM is not installed: make test-gpu installs it")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1200)]

@pytest.fixture(scope="module", params=KINDS, ids="{0[0]}-V{0[1]}".format)
def case(request: pytest.FixtureRequest, device: str) -> Iterator[Case]:
    with started(request.param, device) as made:
        yield made


def test_the_model_runner_is_the_one_that_is_asked_for(case: Case) -> None:
    assert model_runners(case.engine) == [case.runner]


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
    measured(case.title, **numbers)


def test_a_reply_depends_on_its_request_alone(case: Case) -> None:
    """In float32; bfloat16 kernels round differently in batches of other sizes, so that rare draws may flip."""
    case.engine.sync(case.model, 0)
    some = requests(case.device)[:6]
    together = case.engine.generate(some)
    alone = [case.engine.generate([request])[0] for request in some]
    same = sum(a.token_ids == b.token_ids for a, b in zip(together, alone, strict=True))
    assert same == len(some) if case.dtype == "float32" else same >= len(some) // 2


def test_whole_weights_arrive(case: Case, measured: Any) -> None:
    other = make_model(case.device, case.dtype, seed=5)
    case.engine.generate(requests(case.device))  # fills the prefix cache with what must not be used afterwards
    start = time.perf_counter()
    case.engine.sync(other, 1)
    measured(case.title, weight_sync_seconds=time.perf_counter() - start)
    check_replies(case, ActorCritic(copy.deepcopy(other), for_two("full", reference=False)))
    with pytest.raises(canary.WrongWeights):
        case.engine.check(case.model)


def test_adapters_are_exchanged(case: Case, measured: Any) -> None:
    need_adapters(case)
    case.engine.sync(case.model, 0)
    for version in (1, 2):
        actor = trainable(case, "lora", version)
        start = time.perf_counter()
        case.engine.sync(actor.model, version)
        measured(case.title, adapter_sync_seconds=time.perf_counter() - start)
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
    measured(case.title, sleep_gives_back_gb=given / GB)
    assert given >= 0.9 * KV_CACHE_GB["cuda"] * GIB
    with serving(case.engine, actor, 3):  # no new weights: it has kept them
        assert case.engine.check(actor.model) <= case.tolerance
        again = case.engine.generate(requests("cuda"))
        assert apart(actor, again)[1] <= case.tolerance and len(again) == len(before)
    perturb_on(actor, 7)
    with serving(case.engine, actor, 4):  # asleep until now, and new ones arrive
        check_replies(case, actor)
