"""An engine with the weights of an actor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from ghar.llm.engines import AnyEngine, serving_model
from ghar.llm.hf import HFEngine
from ghar.trainers.rl.actor_critic import ActorCritic


@contextmanager
def serving(engine: AnyEngine, policy: ActorCritic | Any, version: int) -> Iterator[None]:
    """For the duration, `engine` answers with the weights of `policy` (an actor, or a plain model); see
    `ghar.llm.engines.serving_model`."""
    if isinstance(engine, HFEngine):
        # in 16 bits a merged adapter is rounded, and the trainer would score other weights than played
        exact = not isinstance(policy, ActorCritic) or next(policy.parameters()).dtype == torch.float32
        with plain(policy, merge=exact) as model, serving_model(engine, model, version):
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


def plain(policy: ActorCritic | Any, merge: bool) -> AbstractContextManager[Any]:
    """For the duration, the policy as a causal LM, its adapter folded in where `merge`."""
    if not isinstance(policy, ActorCritic):
        return nullcontext(policy)
    return policy.merged() if merge else nullcontext(policy.model)
