"""An engine with the weights of an actor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ghar.llm.engines import AnyEngine, serving_model
from ghar.llm.hf import HFEngine
from trainers.rl.actor_critic import ActorCritic


@contextmanager
def serving(engine: AnyEngine, policy: ActorCritic | Any, version: int) -> Iterator[None]:
    """For the duration, `engine` answers with the weights of `policy` (an actor, or a plain model); see
    `ghar.llm.engines.serving_model`."""
    if isinstance(engine, HFEngine):
        with plain(policy, merge=True) as model, serving_model(engine, model, version):
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
