"""The configuration that a run folder keeps, in the keys of today: trained runs of earlier versions stay readable."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ghar.errors import BadInput
from ghar.metrics.runfolder import RunFolder

SHARES = ("past", "reports", "chained", "slopes")  # what data.mix was, beside data.two_steps
# Without effect on a run that is trained: how it was sampled, served or drawn.
DROPPED = {
    "model": ("heads",), "trainer.base": ("lr",), "rllib": ("hidden",), "retriever": ("batch",), "engine": ("device",),
    "trainer.rl": ("lr_warmup", "curriculum"),
}  # fmt: skip
PRINTED = {"ratio": ("reference", "eq16"), "critic_target": ("reward", "eq17")}


def kept_config(run: Path) -> dict[str, Any] | None:
    """The values in RUN/config.yaml under today's keys; None where there is no such file."""
    text = RunFolder(run).config_text()
    return None if text is None else upgraded(yaml.safe_load(text))


def upgraded(values: dict[str, Any]) -> dict[str, Any]:
    """The same values under today's keys, those of today unchanged. BadInput for what has no place any more."""
    made = {name: dict(part) if isinstance(part, Mapping) else part for name, part in values.items()}
    if isinstance(made.get("trainer"), dict):
        made["trainer"] = {n: dict(p) if isinstance(p, Mapping) else p for n, p in made["trainer"].items()}
    _data(made.get("data"))
    _task(made.get("task"))
    _model(made.get("model"))
    _rl(_part(made, "trainer.rl"))
    _deepspeed(made.get("deepspeed"))
    for section, names in DROPPED.items():
        for name in names:
            (_part(made, section) or {}).pop(name, None)
    return made


def _part(values: dict[str, Any], section: str) -> dict[str, Any] | None:
    found: Any = values
    for name in section.split("."):
        found = (found or {}).get(name)
    return found


def _data(data: dict[str, Any] | None) -> None:
    if data is None or "two_steps" not in data:
        return
    from ghar.envs.worlds.severity.sources import MIXES  # numpy and polars

    shares = (data.pop("two_steps"), tuple(data.pop(name) for name in SHARES))
    mix = next((name for name, known in MIXES.items() if known == shares), None)
    if mix is None:
        raise BadInput(f"The run's generated world has shares that data.mix has no name for ({shares}): train again.")
    data["mix"] = mix


def _task(task: dict[str, Any] | None) -> None:
    if task is None:
        return
    since = task.pop("since", None)
    if since is not None and task.get("name") in ("read", "kare_readmission"):
        task["anchor"] = since
    if task.get("answers", ...) is None:
        del task["answers"]


def _model(model: dict[str, Any] | None) -> None:
    if model is not None and model.pop("finetune", None) == "full":
        model["lora_rank"] = None


def _rl(rl: dict[str, Any] | None) -> None:
    if rl is None:
        return
    if rl.pop("kl_in", None) == "reward":
        rl["kl_estimator"] = "reward"
    if any(name in rl for name in PRINTED):
        rl["as_printed"] = [equation for name, (value, equation) in PRINTED.items() if rl.pop(name, None) == value]


def _deepspeed(deepspeed: dict[str, Any] | None) -> None:
    if deepspeed is None or "stage" not in deepspeed:
        return
    stage, offload, auto = (deepspeed.pop(name, None) for name in ("stage", "offload", "auto"))
    named = "none" if stage is None else f"zero{stage}" + ("_offload" if offload else "")
    deepspeed["zero"] = "auto" if auto else named
