"""A real model under the settings of the demo's small one: a sentence before any time is spent on it."""

from __future__ import annotations

from ghar.config import Config
from ghar.trainers.memory import shape_of

LEAST = 10_000_000  # weights of a real model; those that the demo builds have under a million


def scale_notice(config: Config, training: bool = True) -> str | None:
    """A sentence where a real model gets the settings of scale=demo, None elsewhere.

    training: False for an evaluation, which reads no key of trainer. A model that the demo has trained is none of
    these, nor is one as small.
    """
    model, env, warmup = config.model, config.env, config.trainer.warmup
    if config.scale.name != "demo" or model.kind != "pretrained":
        return None
    shape = shape_of(config)
    if shape is not None and shape.weights < LEAST:
        return None
    keys: dict[str, object] = {"env.prompts": env.prompts, "env.history_tokens": env.history_tokens}
    if training:
        keys |= {"trainer.warmup.teacher": warmup.teacher, "trainer.warmup.lr": warmup.lr}
    given = ", ".join(f"{key}={value}" for key, value in keys.items())
    return (
        f"scale=demo is made for the demo's small model, and model.path={model.path} gets its settings ({given}): for "
        "a real model add scale=laptop, or scale=full for GPUs."
    )


def print_scale(config: Config, training: bool = True) -> None:
    """Print `scale_notice` where there is one."""
    if notice := scale_notice(config, training):
        print(notice, flush=True)
