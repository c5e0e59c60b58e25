"""Which weights a run trains: the policy of the warm-up, and further stages of its evaluated variants."""

from __future__ import annotations

from typing import Any

from ghar.config import Config
from ghar.envs.system import System, Variant

POLICY_STAGES = ("sft", "trained")  # `Variant.who` of the policy after the warm-up, and of what RL made of it


def evaluated_variants(system: System[Any], config: Config) -> list[Variant]:
    """List the variants that the run's evaluation plays. BadInput for a name that the system does not have."""
    return [system.variant(name) for name in config.eval.variants or system.listed]


def further_stages(system: System[Any], config: Config) -> list[str]:
    """List the stages of `Training.stages` that evaluated variants ask for."""
    asked = {variant.who for variant in evaluated_variants(system, config)}
    return [name for name in system.training.stages if name in asked]


def may_skip_warm_up(config: Config) -> bool:
    """Return whether a run may leave the warm-up out, as far as the configuration tells before its system is built."""
    if config.trainer.method == "plain" or config.eval.variants is None:
        return False
    return not config.trainer.rl.updates


def needs_warm_up(system: System[Any], config: Config) -> bool:
    """Return whether a run uses the policy of the warm-up: in RL, or for an evaluated variant.

    True too where the run trains no further stage: the policy is then all that it makes, for an export or a fork.
    """
    asked = {variant.who for variant in evaluated_variants(system, config)}
    return bool(config.trainer.rl.updates or asked.intersection(POLICY_STAGES) or not further_stages(system, config))
