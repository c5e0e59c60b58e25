"""What an update of multi-agent PPO is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ghar.config import Config
from ghar.trainers.rl import losses
from ghar.trainers.rl.estimators import Estimator

# mean |trainer's - engine's log-prob| in nats: rounding stays far below, weights one update behind do not (in bfloat16
# rounding alone was measured at 0.002 to 0.011)
MISMATCH_LIMIT = {"float32": 1e-3, "bfloat16": 0.1}
VALUE_CLIP = 5.0  # how far one update may move a value, in units of reward


@dataclass(frozen=True)
class MappoConfig:
    """Settings of an update, named as in conf/trainer (`ghar.config.RlConfig`).

    epochs: passes over the batch; minibatches: optimiser steps a pass; micro_tokens: padded tokens a forward pass,
    which changes memory and not results; clip: ε of Eq. 16; value_clip: the same for values, in units of reward;
    gamma, lam, credit, per_agent: see `ghar.trainers.rl.credit`; kl, entropy, value_coef: weights of the loss terms;
    ratio="reference" and critic_target="reward": Eqs. 16 and 17 as printed; max_grad_norm: of the global norm.
    importance_cap: C of `losses.truncated_importance`, None where engine and trainer compute the same numbers;
    mismatch_limit: mean |trainer's - engine's log-prob| in nats above which an update stops the run, None: never.
    aggregate: what counts alike in every loss term and diagnostic, see `losses.token_weights`. Of replies and episodes
    only tokens count that were chosen among several, but for the value loss. Episodes are as long as they are in the
    batch, whatever part of them a minibatch drew. kl_estimator: see `losses.reference_kl`; "reward"
    charges the term to what a turn earns (`ghar.trainers.rl.targets.kl_in_reward`), with no loss of its own.
    critic: "head" on the policy's trunk, trained with it; "own": `ghar.trainers.rl.critic`.
    estimator: "gae" (`rl.credit`), or one of `rl.estimators`, which need no critic: there is then no
    value loss, and value_clip, gamma, lam, credit, per_agent, critic_target and value_coef mean nothing.
    """

    epochs: int
    minibatches: int
    micro_tokens: int
    clip: float
    value_clip: float
    gamma: float
    lam: float
    credit: Literal["token", "turn", "bilevel"]
    per_agent: bool
    kl: float
    ratio: Literal["behaviour", "reference"]
    critic_target: Literal["returns", "reward"]
    value_coef: float
    entropy: float
    max_grad_norm: float
    importance_cap: float | None
    mismatch_limit: float | None
    aggregate: losses.Aggregate = "token"
    kl_estimator: losses.Kl | Literal["reward"] = "k3"
    estimator: Literal["gae"] | Estimator = "gae"
    critic: Literal["head", "own"] = "head"

    @property
    def needs_reference(self) -> bool:
        """Whether an update reads the reference policy (with full fine-tuning: whether to keep a copy of it)."""
        return self.kl > 0 or self.ratio == "reference"

    @property
    def has_kl_loss(self) -> bool:
        """Whether the term to the reference is part of the loss."""
        return self.needs_reference and self.kl_estimator != "reward"

    @property
    def has_critic(self) -> bool:
        """Whether advantages rest on values, which are then trained."""
        return self.estimator == "gae"

    @property
    def trains_heads(self) -> bool:
        """Whether the values are those of heads on the policy's trunk, whose loss is part of the policy's."""
        return self.has_critic and self.critic == "head"


def has_critic(config: Config) -> bool:
    """Whether a critic of its own is trained."""
    trainer = config.trainer
    return trainer.method != "rft" and trainer.rl.estimator == "gae" and config.model.critic == "own"


def learning_rate(config: Config) -> float:
    """Peak learning rate of the policy."""
    return config.trainer.rft.lr if config.trainer.method == "rft" else config.trainer.rl.lr


def needs_reference(config: Config) -> bool:
    """Whether training compares the policy with the one after SFT."""
    return config.trainer.method != "rft" and (config.trainer.rl.kl > 0 or "eq16" in config.trainer.rl.as_printed)


def trained_share(config: Config) -> float:
    """Of the episodes of an update, those that are trained on at most."""
    trainer = config.trainer
    return min(1.0, trainer.rft.keep / trainer.rl.attempts) if trainer.method == "rft" else 1.0


def settings_of(config: Config) -> MappoConfig:
    """An update as a configuration wants it."""
    rl = config.trainer.rl
    return MappoConfig(
        epochs=rl.epochs,
        minibatches=rl.minibatches,
        micro_tokens=rl.micro_tokens,
        clip=rl.clip,
        value_clip=VALUE_CLIP,
        gamma=rl.gamma,
        lam=rl.lam,
        credit=rl.credit,
        per_agent=rl.per_agent,
        kl=rl.kl,
        ratio="reference" if "eq16" in rl.as_printed else "behaviour",
        critic_target="reward" if "eq17" in rl.as_printed else "returns",
        value_coef=rl.value_coef,
        entropy=rl.entropy,
        max_grad_norm=rl.max_grad_norm,
        importance_cap=config.engine.importance_cap,
        mismatch_limit=MISMATCH_LIMIT[config.model.dtype],
        aggregate=rl.aggregate,
        estimator=rl.estimator,
        kl_estimator=rl.kl_estimator,
        critic="own" if has_critic(config) else "head",
    )
