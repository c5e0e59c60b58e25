"""A real model under the settings of the demo's small one: a sentence before any time is spent on it."""

from __future__ import annotations

from ghar.config import Config
from ghar.trainers.memory import shape_of

LEAST = 10_000_000  # weights of a real model; those that the demo builds have under a million
DEMO = {"env.prompts": "compact", "env.history_tokens": 48}  # of conf/scale/demo.yaml: what harms a real model
DEMO_TRAINING = {"trainer.warmup.teacher": "scripted", "trainer.warmup.lr": 1.0e-3}


def scale_notice(config: Config, training: bool = True) -> str | None:
    """A sentence where a real model gets settings of scale=demo, None elsewhere.

    training: False for an evaluation, which reads no key of trainer. A model that the demo has trained is none of
    these, nor is one as small.
    """
    model, env, warmup = config.model, config.env, config.trainer.warmup
    if config.scale.name != "demo" or model.kind != "pretrained":
        return None
    values: dict[str, object] = {"env.prompts": env.prompts, "env.history_tokens": env.history_tokens}
    values |= {"trainer.warmup.teacher": warmup.teacher, "trainer.warmup.lr": warmup.lr}
    demo = DEMO | DEMO_TRAINING if training else DEMO
    left = [f"{key}={value}" for key, value in demo.items() if values[key] == value]
    if not left:
        return None
    shape = shape_of(config)
    if shape is not None and shape.weights < LEAST:
        return None
    full = "" if config.data.root is None else ", or scale=full for GPUs"  # which refuses generated patients
    return (
        f"scale=demo is made for the demo's small model, and model.path={model.path} gets its settings "
        f"({', '.join(left)}): for a real model add scale=laptop{full}."
    )


def print_scale(config: Config, training: bool = True) -> None:
    """Print `scale_notice` where there is one."""
    if notice := scale_notice(config, training):
        print(notice, flush=True)
