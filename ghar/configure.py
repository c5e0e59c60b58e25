"""From a composed mapping to a checked `Config`: all that is wrong is reported at once, nothing is repaired."""

from __future__ import annotations

import difflib
import json
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

from ghar.config import Config, Named, Range
from ghar.errors import BadInput
from ghar.privacy import leaves, secret_in

Rules = Callable[[Config, Any], Iterator[str]]


def build(values: Mapping[str, Any], settings: type, rules: Rules | None = None) -> Config:
    """Check a whole configuration. Raises BadInput with one sentence a line for everything that is wrong.

    settings: the keys of its system, a dataclass; rules: sentences for its values that do not go together.
    """
    errors: list[str] = []
    own = _section(settings, values.get("system") or {}, "system.", errors)
    config = _section(Config, {**values, "system": own}, "", errors)
    if not errors:
        errors = [*contradictions(config), *(rules(config, own) if rules is not None else ())]
    if errors:
        raise BadInput("\n".join(errors))
    return config


@cache
def _types(cls: type) -> dict[str, Any]:
    """Field name -> annotation of a schema class, resolved."""
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: hints[f.name] for f in fields(cls)}


def _is_section(kind: Any) -> TypeGuard[type]:
    return isinstance(kind, type) and is_dataclass(kind)


def _schema(kind: Any) -> type | None:
    """The schema class of a section, also of one that may be null; None for a value."""
    found = [part for part in (kind, *get_args(kind)) if _is_section(part)]
    return found[0] if found else None


def leaf_keys(cls: type = Config, prefix: str = "", settings: type | None = None) -> list[str]:
    """Full names of all keys that hold a value, in the schema's order; those of a system where it is given."""
    names: list[str] = []
    for name, kind in _types(cls).items():
        section = settings if kind is Named else _schema(kind)
        names += leaf_keys(section, f"{prefix}{name}.") if section else [] if kind is Named else [prefix + name]
    return names


def section_keys(cls: type = Config, prefix: str = "") -> list[str]:
    """Full names of all sections."""
    names: list[str] = []
    for name, kind in _types(cls).items():
        if section := _schema(kind):
            names += [prefix + name, *section_keys(section, f"{prefix}{name}.")]
        elif kind is Named:
            names.append(prefix + name)
    return names


def schema_of(cls: type) -> dict[str, tuple[Any, type | None]]:
    """Field name -> its annotation, and the schema class where it is a section."""
    return {name: (kind, _schema(kind)) for name, kind in _types(cls).items()}


def key_types(settings: type, cls: type = Config, prefix: str = "") -> dict[str, Any]:
    """Full name -> annotation of every key, in the schema's order."""
    found: dict[str, Any] = {}
    for name, (kind, schema) in schema_of(cls).items():
        section = settings if kind is Named else schema
        found |= key_types(settings, section, f"{prefix}{name}.") if section else {prefix + name: kind}
    return found


class _Nothing:
    """A value that no annotation takes, and that no name is like."""

    def __str__(self) -> str:
        return ""


def allowed(kind: Any) -> str:
    """What a key must be, in words."""
    args = [a for a in get_args(kind) if a is not type(None)]
    if get_origin(kind) in (Union, types.UnionType):
        return f"{allowed(args[0])}, or null"
    if get_origin(kind) is tuple:
        return f"{_value(kind, _Nothing())[1]}, each {allowed(args[0])}"
    return _value(kind, _Nothing())[1]


NEAR = 0.6  # likeness from which on a name is worth guessing


def nearest(word: str, valid: Sequence[str]) -> str | None:
    """The valid name most like `word`, None where none is near; for dotted names the last part counts as much as the
    whole."""

    def likeness(name: str) -> float:
        whole = difflib.SequenceMatcher(None, word, name).ratio()
        last = difflib.SequenceMatcher(None, word.rpartition(".")[2], name.rpartition(".")[2]).ratio()
        return (whole + last) / 2

    best = max(valid, key=likeness, default=None)
    return best if best is not None and likeness(best) >= NEAR else None


def unknown_key(key: str, settings: type | None = None) -> str:
    """The sentence for a key that does not exist."""
    near = nearest(key, leaf_keys(settings=settings))
    return f"There is no key {key}" + (f": did you mean {near}?" if near else "; --help lists all keys.")


def _section(cls: type, values: Any, prefix: str, errors: list[str]) -> Any:
    """Read `values` into schema class `cls`; None, and sentences in `errors`, when something is wrong."""
    if not isinstance(values, Mapping):
        keys = ", ".join(_types(cls))
        errors.append(f"{prefix.rstrip('.')} is {_show(values)} but must be a section with keys {keys}.")
        return None
    before, read = len(errors), {}
    own = cls if prefix == "system." else None
    errors += [unknown_key(prefix + str(name), own) for name in values if name not in _types(cls)]
    defaults = {f.name for f in fields(cls) if f.default is not MISSING}
    for name, kind in _types(cls).items():
        key = prefix + name
        if kind is Named:
            read[name] = values.get(name)  # read already, as the class that it is
        elif name not in values and name in defaults:
            continue
        elif name not in values:
            errors.append(f"{key} is missing: set {key}=... or do not remove it.")
        elif section := _schema(kind):
            absent = values[name] is None and not _is_section(kind)  # a section of another policy
            read[name] = None if absent else _section(section, values[name], key + ".", errors)
        else:
            read[name], wrong = _value(kind, values[name])
            errors += [f"{key} is {_show(values[name])} but must be {wrong}."] if wrong else []
    return None if len(errors) > before else cls(**read)


def _value(kind: Any, value: Any) -> tuple[Any, str]:
    """Read one value: (it, "") or (None, what it must be)."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = next(a for a in args if a is not type(None))
        if value is None:
            return None, ""
        read, wrong = _value(inner, value)
        return read, wrong and f"{wrong}, or null"
    if origin is Annotated:
        read, wrong = _value(args[0], value)
        bound: Range = args[1]
        wanted = f"{_NAMES[args[0]]} {bound}"
        return (read, "") if not wrong and bound.holds(read) else (None, wanted)
    if origin is Literal:
        return _choice(args, value)
    if origin is tuple:
        return _list(args, value)
    return _plain(kind, value)


_NAMES = {int: "a whole number", float: "a number", str: "a non-empty text", bool: "true or false"}


def _plain(kind: type, value: Any) -> tuple[Any, str]:
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value), ""
    # `type` and not `isinstance`: true is an int in Python, but no number of patients.
    if kind is not float and type(value) is kind and value != "":
        return value, ""
    return None, _NAMES[kind]


def _choice(choices: tuple[str, ...], value: Any) -> tuple[Any, str]:
    if value in choices:
        return value, ""
    near = nearest(str(value), choices) if len(choices) > 1 else None
    return None, " or ".join(choices) + (f" (did you mean {near}?)" if near else "")


def _list(args: tuple[Any, ...], value: Any) -> tuple[Any, str]:
    """A list of any length (`args` ends in ...) or of exactly `len(args)` items."""
    any_length = args[-1] is Ellipsis
    if not isinstance(value, list | tuple) or not (any_length or len(value) == len(args)):
        return None, "a list" if any_length else f"a list of {len(args)} values"
    read = [_value(args[0], item) for item in value]
    wrong = next((w for _, w in read if w), "")
    return (None, f"a list whose every item is {wrong}") if wrong else (tuple(r for r, _ in read), "")


def _show(value: Any) -> str:
    """A value as it is written in YAML or on the command line."""
    return json.dumps(value, default=str, ensure_ascii=False)


def contradictions(c: Config) -> Iterator[str]:
    """Sentences for values that are allowed one by one but not together."""
    yield from _data_contradictions(c)
    yield from _model_contradictions(c)
    yield from _engine_contradictions(c)
    yield from _deepspeed_contradictions(c)
    yield from _secrets(c)
    if c.trainer.rl.minibatches > c.trainer.rl.episodes:
        yield (
            f"trainer.rl.minibatches={c.trainer.rl.minibatches} is more than trainer.rl.episodes="
            f"{c.trainer.rl.episodes}: every minibatch needs an episode, so lower the first or raise the second."
        )
    rl = c.trainer.rl
    if rl.estimator in ("grpo", "rloo", "turn_group") and rl.attempts < 2:
        yield f"trainer.rl.estimator={rl.estimator} compares a patient's attempts: set trainer.rl.attempts above 1."
    if rl.dynamic and rl.attempts < 2:
        yield "trainer.rl.dynamic=true compares a patient's attempts: set trainer.rl.attempts above 1."
    if rl.kl_target is not None and rl.kl == 0:
        yield "trainer.rl.kl_target steers the weight trainer.rl.kl, which is 0: set it above 0, or kl_target=null."
    if rl.attempts > rl.episodes:
        yield f"trainer.rl.attempts={rl.attempts} is more than trainer.rl.episodes={rl.episodes}: lower the first."
    named = c.eval.variants
    if named is not None and (not named or len(set(named)) < len(named)):
        yield "eval.variants must name at least one variant and each only once: correct the list."


def _has_critic(c: Config) -> bool:
    rl = c.trainer.rl
    return c.model.critic == "own" and rl.estimator == "gae" and rl.updates > 0


def _secrets(c: Config) -> Iterator[str]:
    """Keys that hold a secret, which no file of a run may keep; the secret itself is not repeated."""
    for key in dict.fromkeys(k for k, value in leaves(asdict(c)) if isinstance(value, str) and secret_in(value)):
        yield (
            f"{key} holds a password, a key or parameters, and config.yaml and other files would keep it: write the "
            "address without them, and put the key into the environment variable GHAR_API_KEY."
        )


def _deepspeed_contradictions(c: Config) -> Iterator[str]:
    deepspeed = c.deepspeed
    if deepspeed.auto and (deepspeed.stage is not None or deepspeed.offload):
        yield "deepspeed.auto=true chooses stage and offload itself: leave deepspeed.stage and deepspeed.offload out."
    if deepspeed.offload and (deepspeed.stage or 0) < 2:
        yield "deepspeed.offload=true needs ZeRO 2 or 3: choose deepspeed=zero2_offload or zero3_offload."
    if deepspeed.stage == 3 and c.model.finetune == "lora" and _has_critic(c):
        yield (
            "model.critic=own with LoRA reads the base's weights, of which deepspeed.stage=3 leaves a process only a "
            "share: choose deepspeed=zero2 or set model.critic=head."
        )


def _data_contradictions(c: Config) -> Iterator[str]:
    if c.data.name.startswith("demo") and c.data.root is not None:
        yield (
            f"data={c.data.name} generates its patients, so it cannot read data.root={c.data.root}: "
            "choose data=mimic4 (or an experiment) or set data.root=null."
        )
    if c.data.name.startswith("demo_long") and c.task.name != "given":
        yield f"data={c.data.name} asks one question, its own: choose task=given, not task={c.task.name}."
    if (c.task.name == "medqa") != (c.data.name == "medqa"):
        yield f"task={c.task.name} is not asked of data={c.data.name}: task=medqa and data=medqa go together."
    elif c.data.name == "medqa" and c.data.root is None:
        yield "task=medqa reads questions: set data.root to a file of MedQA (jsonl or jsonl.gz)."
    own = {"labels": c.task.labels, "question": c.task.question, "answers": c.task.answers, "bins": c.task.bins}
    if c.task.name == "labels" and c.task.labels is None:
        yield "task=labels needs a file: set task.labels to a MEDS label file (parquet), or a folder of them."
    elif c.task.name != "labels" and (given := [f"task.{name}" for name, value in own.items() if value is not None]):
        yield f"task={c.task.name} has labels of its own and does not read {', '.join(given)}: choose task=labels."
    if c.task.bins is not None and (not c.task.bins or list(c.task.bins) != sorted(set(c.task.bins))):
        yield f"task.bins={list(c.task.bins)} must be rising numbers: correct them."
    yield from _protocol_contradictions(c)
    if c.task.draw == "kare" and c.task.name not in PROTOCOLS["kare"]:
        yield f"task.draw=kare is KARE's of its own two tasks, not of {c.task.name}: choose all or last."
    if c.scale.name == "full" and c.data.root is None:
        yield "scale=full trains on real tables: set data.root to their folder, or choose scale=demo."
    if min(c.task.split) <= 0 or abs(sum(c.task.split) - 1) > 1e-6:
        yield f"task.split={list(c.task.split)} must hold three shares above 0 that add up to 1: correct them."
    if c.task.legacy_order and c.data.leakage == "strict":
        yield "task.legacy_order=true shows visits of the future: set it back, or choose data.leakage=paper."


PROTOCOLS: Mapping[str, tuple[str, ...]] = {  # paper -> the tasks it has; strict is ours and has them all
    "ghar": ("los", "read", "dec"),
    "kare": ("kare_mortality", "kare_readmission"),
    "graphwalker": ("series_mortality", "series_readmission", "series_los", "series_dec"),
    "ehrshot": ("guo_los", "guo_readmission", "new_acutemi", "lab_anemia"),
    "exprag": ("dischargeqa_diagnosis", "dischargeqa_medication", "dischargeqa_instruction"),
}


def _protocol_contradictions(c: Config) -> Iterator[str]:
    name, tasks = c.protocol.name, PROTOCOLS.get(c.protocol.name)
    if tasks is not None and c.task.name not in tasks:
        yield f"protocol={name} has no task={c.task.name}: choose task={', '.join(tasks)}."
    if name in ("ghar", "kare") and c.data.root is not None and c.data.name != "demo" and c.data.codes is None:
        yield f"protocol={name} maps codes as its paper does: set data.codes to a folder of code tables (docs/data.md)."
    if c.task.name.startswith(("series_", "dischargeqa_")) and (c.task.complete or c.task.split_of == "cohort"):
        yield f"task={c.task.name} reads neither task.complete nor task.split_of=cohort: leave them out."


def _engine_contradictions(c: Config) -> Iterator[str]:
    engine = c.engine
    unread = {"device": engine.device, "kv_cache_gb": engine.kv_cache_gb, "memory": engine.memory, "sync": engine.sync}
    given = [f"engine.{name}={value}" for name, value in unread.items() if value is not None]
    given += ["engine.sleep=true"] if engine.sleep else []
    if engine.kind != "vllm" and given:
        yield f"engine={engine.kind} does not read {', '.join(given)}: choose engine=vllm."
    if engine.kind == "vllm" and (engine.kv_cache_gb is None) == (engine.memory is None):
        yield "engine.kind=vllm needs engine.kv_cache_gb or engine.memory: set one of them, and the other to null."
    if engine.memory is not None and engine.device == "cpu":
        yield "engine.memory is a share of a GPU, and engine.device=cpu has none: set engine.kv_cache_gb instead."
    if engine.kind == "api" and c.model.kind != "pretrained":
        yield "engine=api asks the server that model.path names: choose model=pretrained and set model.path."
    if engine.sync == "adapter" and c.model.finetune == "full":
        yield "engine.sync=adapter, but model.finetune=full has none: set engine.sync=weights or model.finetune=lora."
    if engine.sleep and engine.device == "cpu":
        yield "engine.sleep=true gives GPU memory back and vLLM cannot do that on a CPU: set engine.sleep=false."


def _model_contradictions(c: Config) -> Iterator[str]:
    if c.env.history_tokens >= c.model.max_length:
        yield (
            f"env.history_tokens={c.env.history_tokens} leaves no room in model.max_length={c.model.max_length}, which "
            "holds the rest of a prompt and its reply too: lower the first or raise the second."
        )
    shape = {"hidden": c.model.hidden, "layers": c.model.layers, "heads": c.model.heads, "vocab": c.model.vocab}
    if c.model.kind == "demo":
        missing = [f"model.{name}" for name, size in shape.items() if size is None]
        if missing:
            yield f"model.kind=demo needs a shape to build: set {', '.join(missing)} or choose model=pretrained."
        elif c.model.hidden and c.model.heads and c.model.hidden % (2 * c.model.heads):
            # Rotary embeddings turn pairs of dimensions, so a head needs an even number of them.
            wanted = f"a multiple of twice model.heads={c.model.heads}"
            yield f"model.hidden={c.model.hidden} must be {wanted}: change one of them."
        if c.model.path is not None:
            yield f"model.kind=demo does not read model.path={c.model.path}: choose model=pretrained or set it to null."
        return
    if c.model.path is None:
        yield "model.kind=pretrained needs model.path: set it to a folder or a hub name."
    if given := [f"model.{name}" for name, size in shape.items() if size is not None]:
        yield f"model.kind=pretrained has its own shape: set {', '.join(given)} to null, or choose model=pretrained."
    if c.trainer.base.steps:
        yield (
            f"trainer.base.steps={c.trainer.base.steps} trains the demo model from nothing and would spoil "
            "a pretrained one: set trainer.base.steps=0."
        )
