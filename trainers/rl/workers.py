"""Who plays the episodes of a training loop: this process, or others (trainers/ray/pool.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ghar.envs.play import PlayContext, play
from ghar.episode import Episode
from ghar.llm.engines import AnyEngine, make_engine
from ghar.llm.policy import EnginePolicy
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.learner import Learner
from ghar.trainers.rl.serving import serving


@dataclass(frozen=True)
class RolloutRequest:
    """Episodes to play, one a case. seed: all their randomness; temperature: 0 takes the most probable token;
    attempts: which one of its case each is, () for the first of all."""

    cases: Sequence[Any]
    seed: int
    temperature: float
    title: str
    attempts: tuple[int, ...] = ()


class Workers(Protocol):
    """ahead: how many batches may be on their way while an earlier one is trained on."""

    ahead: int

    def begin(self, order: RolloutRequest, learner: Learner, version: int) -> Callable[[], list[Episode]]:
        """Have `order` played by the weights that `learner` has now, which are number `version`.

        Returns what waits for the episodes, in the order of the cases. Every training process must call it at the same
        places, since gathering sharded weights takes them all.
        """
        ...

    def close(self) -> None:
        """Give memory and processes back."""
        ...


MakeWorkers = Callable[[PlayContext, bool, ActorCritic, Any], Workers]  # stage, credentialed, actor, tokenizer


class LocalWorkers:
    """This process plays, at once."""

    ahead = 0

    def __init__(self, stage: PlayContext, engine: AnyEngine) -> None:
        self.stage, self.engine = stage, engine

    def begin(self, order: RolloutRequest, learner: Learner, version: int) -> Callable[[], list[Episode]]:
        """See `Workers`."""
        with learner.whole(), serving(self.engine, learner.module, version):
            policy = EnginePolicy(self.engine, order.temperature, self.stage.config.env.decisions)
            own = {"seed": order.seed, "title": order.title, "attempts": order.attempts}
            episodes = play(self.stage, order.cases, policy, **own)
        return lambda: episodes

    def close(self) -> None:
        """See `Workers`."""
        self.engine.close()


def local(stage: PlayContext, credentialed: bool, actor: ActorCritic, tokenizer: Any) -> Workers:
    """The default: an engine in this process."""
    return LocalWorkers(stage, make_engine(stage.config, actor.model, tokenizer))
