"""The configuration that a run folder keeps, in the keys of today: trained runs of earlier versions stay readable."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from ghar.errors import BadInput
from ghar.metrics.runfolder import RunFolder
from ghar.yaml_text import parse_yaml

SHARES = ("past", "reports", "chained", "slopes")  # what data.mix was, beside data.two_steps
# section -> key -> what it is today. Without effect on a run that is trained; one that is not goes on with these alone.
DROPPED: dict[str, dict[str, Any]] = {
    "model": {"heads": 2}, "trainer.base": {"lr": 4e-3}, "rllib": {"hidden": 64}, "retriever": {"batch": 64},
    "engine": {"device": None}, "trainer.rl": {"lr_warmup": 0, "curriculum": 0},
}  # fmt: skip
LABEL_EPOCHS = 8  # of EXPRAG runs from before the key, which have no label-only SFT
LENGTH = 3  # what system.length is wherever system.normalise cancels it, since another value is refused
PRINTED = {"ratio": ("reference", "eq16"), "critic_target": ("reward", "eq17")}


def kept_config(run: Path) -> dict[str, Any] | None:
    """The values in RUN/config.yaml under today's keys; None where there is no such file."""
    text = RunFolder(run).config_text()
    try:
        return None if text is None else upgraded(parse_yaml(text))
    except (AttributeError, KeyError, TypeError, yaml.YAMLError) as error:
        raise BadInput(f"{run / 'config.yaml'} is damaged ({' '.join(str(error).split())}): put it right.") from error


def upgraded(values: dict[str, Any], going_on: bool = False) -> dict[str, Any]:
    """The same values under today's keys, those of today unchanged. BadInput for what has no place any more.

    going_on: whether the run is to be trained further, for which a key that is gone stays where it had another value
    than it has today.
    """
    made = deepcopy(values)
    _data(made.get("data"))
    _task(made.get("task"))
    _model(made.get("model"))
    _rl(_part(made, "trainer.rl"))
    _deepspeed(made.get("deepspeed"))
    _engine(made.get("engine"), made.get("ray"))
    _env(made.get("env"))
    _system(made.get("system"))
    for section, dropped in DROPPED.items():
        part = _part(made, section) or {}
        for name, today in dropped.items():
            if name in part and (not going_on or part[name] == today):
                del part[name]
    return made


def _part(values: dict[str, Any], section: str) -> dict[str, Any] | None:
    part: Any = values
    for name in section.split("."):
        part = (part or {}).get(name)
    return part


def _data(data: dict[str, Any] | None) -> None:
    if data is None or "two_steps" not in data:
        return
    from ghar.envs.worlds.severity.sources import MIXES  # numpy and polars

    shares = (data.pop("two_steps"), tuple(data.pop(name) for name in SHARES))
    mix = next((name for name, mix_shares in MIXES.items() if mix_shares == shares), None)
    if mix is None:
        raise BadInput(f"The run's generated world has shares that data.mix has no name for ({shares}): train again.")
    data["mix"] = mix


def _task(task: dict[str, Any] | None) -> None:
    if task is None:
        return
    since = task.pop("since", None)
    if since is not None and task.get("name") in ("read", "kare_readmission"):
        task["anchor"] = since
    if task.pop("answers", None) is not None:
        raise BadInput(
            'The run names its answers by task.answers, which is gone: write them as "labels" into NAME.json beside '
            "the label file, and take the key out of the run's config.yaml."
        )


def _engine(engine: dict[str, Any] | None, ray: dict[str, Any] | None) -> None:
    each = (ray or {}).pop("gpu", False)  # of Ray's processes
    if engine is not None:
        engine.setdefault("gpus", 1 if each else None)


def _env(env: dict[str, Any] | None) -> None:
    if env is not None:
        env.setdefault("reply_tokens", None)


def _model(model: dict[str, Any] | None) -> None:
    if model is None:
        return
    if model.pop("finetune", None) == "full":
        model["lora_rank"] = None
    model.pop("kind", None)  # "demo" wherever model.path is null, as contradictions between the two were refused


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


def _system(system: dict[str, Any] | None) -> None:
    if system is None:
        return
    if "length" in system and system.get("normalise") != "none":
        system["length"] = LENGTH
    if system.get("name") == "exprag":
        system.setdefault("label_epochs", LABEL_EPOCHS)
