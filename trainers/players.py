"""Who plays the episodes of a training loop: this process, or others (trainers/ray/pool.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from envs.case import Case
from ghar.episode import Episode
from ghar.llm.engines import AnyEngine, make_engine
from ghar.llm.policy import EnginePolicy
from trainers.engines import serving
from trainers.play import play
from trainers.rl.actor_critic import ActorCritic
from trainers.rl.learner import Learner
from trainers.study import Study


@dataclass(frozen=True)
class Order:
    """Episodes to play, one a case. seed: all their randomness; temperature: 0 takes the most probable token."""

    cases: Sequence[Case]
    seed: int
    temperature: float
    title: str


class Players(Protocol):
    """ahead: how many batches may be on their way while an earlier one is trained on."""

    ahead: int

    def begin(self, order: Order, learner: Learner, version: int) -> Callable[[], list[Episode]]:
        """Have `order` played by the weights that `learner` has now, which are number `version`.

        Returns what waits for the episodes, in the order of the cases. Every training process must call it at the same
        places, since gathering sharded weights takes them all.
        """
        ...

    def close(self) -> None:
        """Give memory and processes back."""
        ...


Hire = Callable[[Study, ActorCritic, Any], Players]  # of a study, its actor and its tokenizer


class Here:
    """This process plays, at once."""

    ahead = 0

    def __init__(self, study: Study, engine: AnyEngine) -> None:
        self.study, self.engine = study, engine

    def begin(self, order: Order, learner: Learner, version: int) -> Callable[[], list[Episode]]:
        """See `Players`."""
        with learner.whole(), serving(self.engine, learner.actor, version):
            policy = EnginePolicy(self.engine, order.temperature)
            episodes = play(self.study, order.cases, policy, seed=order.seed, title=order.title)
        return lambda: episodes

    def close(self) -> None:
        """See `Players`."""
        self.engine.close()


def here(study: Study, actor: ActorCritic, tokenizer: Any) -> Players:
    """The default: an engine in this process."""
    return Here(study, make_engine(study.config, actor.model, tokenizer))
