"""The engine a configuration asks for, and an engine with the weights of an actor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from ghar.config import Config
from ghar.llm.hf import HFEngine
from ghar.llm.vllm_build import VLLMSettings, check_installed
from trainers.rl.actor_critic import ActorCritic

if TYPE_CHECKING:
    from ghar.llm.vllm import VLLMEngine


AnyEngine: TypeAlias = "HFEngine | VLLMEngine"


def make_engine(config: Config, model: Any, tokenizer: Any) -> AnyEngine:
    """An engine for models like `model`; `serving` gives it weights. BadInput when it cannot run here."""
    engine = config.engine
    if engine.kind == "hf":
        return HFEngine(model, tokenizer, engine.max_batch)
    check_installed(engine.device)
    from ghar.llm.vllm import VLLMEngine

    assert engine.kv_cache_gb is not None  # ghar.configure asks for it
    rank = config.model.lora_rank if sends_adapters(config) else None
    settings = VLLMSettings(engine.device, engine.kv_cache_gb, engine.max_batch, rank, engine.sleep)
    return VLLMEngine(model, tokenizer, settings)


def sends_adapters(config: Config) -> bool:
    """Whether the engine takes an actor's adapter instead of merged weights.

    Adapters are quick to send and cost a GPU little, where vLLM has kernels for them only in 16 bits; on a CPU they
    make sampling 2.7 times slower.
    """
    if config.engine.kind == "hf":
        return False
    if config.engine.sync is None:
        lora, short = config.model.finetune == "lora", config.model.dtype != "float32"
        return lora and short and torch.cuda.is_available()
    return config.engine.sync == "adapter"


@contextmanager
def serving(engine: AnyEngine, policy: ActorCritic | Any, version: int) -> Iterator[None]:
    """For the duration, `engine` answers with the weights of `policy` (an actor, or a plain model).

    version: a number for these weights, another one after every change of them: an engine that holds its own copy takes
    over only what it has not yet. WrongWeights when they did not arrive.
    """
    if isinstance(engine, HFEngine):
        with plain(policy, merge=True) as model:
            engine.sync(model, version)
            yield
        return
    engine.wake()
    if engine.version != version:
        with plain(policy, merge=not engine.takes_adapters) as model:
            engine.sync(model, version)
    try:
        yield
    finally:
        engine.sleep()


@contextmanager
def served(config: Config, model: Any, tokenizer: Any) -> Iterator[AnyEngine]:
    """A new engine that answers with `model`, closed at the end."""
    engine = make_engine(config, model, tokenizer)
    try:
        with serving(engine, model, 0):
            yield engine
    finally:
        engine.close()


def plain(policy: ActorCritic | Any, merge: bool) -> AbstractContextManager[Any]:
    """For the duration, the policy as a causal LM, its adapter folded in where `merge`."""
    if not isinstance(policy, ActorCritic):
        return nullcontext(policy)
    return policy.merged() if merge else nullcontext(policy.model)
