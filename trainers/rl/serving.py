"""An engine with the weights of an actor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ghar.llm import canary
from ghar.llm.engines import AnyEngine, serving_model
from ghar.trainers.rl.actor_critic import ActorCritic

if TYPE_CHECKING:
    from ghar.llm.hf import HFEngine


@contextmanager
def serving(engine: AnyEngine, policy: ActorCritic | Any, version: int) -> Iterator[None]:
    """For the duration, `engine` answers with the weights of `policy` (an actor, or a plain model), its adapter folded
    in unless the engine takes adapters; see `ghar.llm.engines.serving_model`.

    Every engine is judged once for each `version`. WrongWeights when it is further from the actor in float32 than
    rounding explains.
    """
    from ghar.llm.hf import HFEngine  # transformers

    is_new = engine.version != version
    if isinstance(engine, HFEngine):
        expected = _expected(engine, policy) if is_new and _has_adapter(policy) else None
        with plain(policy, merge=True) as model, serving_model(engine, model, version):
            if expected is not None:
                engine.judge(expected)
            yield
        return
    engine.wake()
    if is_new:
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


def _has_adapter(policy: ActorCritic | Any) -> bool:
    return isinstance(policy, ActorCritic) and policy.cfg.finetune == "lora"


def _expected(engine: HFEngine, policy: ActorCritic) -> canary.TrainerScores:
    """What the actor says about the canary's text with its adapter beside the base."""
    about = policy.model.config.get_text_config()
    ids = canary.prompt(engine.tokenizer, about.vocab_size, about.max_position_embeddings)
    return canary.expect(policy.model, ids)
