"""From a composed mapping to a checked `Config`: all that is wrong is reported at once, nothing is repaired."""

from __future__ import annotations

import difflib
import json
import math
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

from ghar.config import Config, Range
from ghar.errors import BadInput


def build(values: Mapping[str, Any]) -> Config:
    """Check a whole configuration. Raises BadInput with one sentence a line for everything that is wrong."""
    errors: list[str] = []
    config = _section(Config, values, "", errors)
    if not errors:
        errors = list(contradictions(config))
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


def leaf_keys(cls: type = Config, prefix: str = "") -> list[str]:
    """Full names of all keys that hold a value, in the schema's order."""
    names: list[str] = []
    for name, kind in _types(cls).items():
        section = _schema(kind)
        names += leaf_keys(section, f"{prefix}{name}.") if section else [prefix + name]
    return names


def section_keys(cls: type = Config, prefix: str = "") -> list[str]:
    """Full names of all sections."""
    names: list[str] = []
    for name, kind in _types(cls).items():
        if section := _schema(kind):
            names += [prefix + name, *section_keys(section, f"{prefix}{name}.")]
    return names


def nearest(word: str, valid: list[str]) -> str:
    """The valid name most like `word`; for dotted names the last part counts as much as the whole."""

    def likeness(name: str) -> float:
        whole = difflib.SequenceMatcher(None, word, name).ratio()
        last = difflib.SequenceMatcher(None, word.rpartition(".")[2], name.rpartition(".")[2]).ratio()
        return whole + last

    return max(valid, key=likeness)


def unknown_key(key: str) -> str:
    """The sentence for a key that does not exist."""
    return f"There is no key {key}: did you mean {nearest(key, leaf_keys())}?"


def _section(cls: type, values: Any, prefix: str, errors: list[str]) -> Any:
    """Read `values` into schema class `cls`; None, and sentences in `errors`, when something is wrong."""
    if not isinstance(values, Mapping):
        keys = ", ".join(_types(cls))
        errors.append(f"{prefix.rstrip('.')} is {_show(values)} but must be a section with keys {keys}.")
        return None
    errors += [unknown_key(prefix + str(name)) for name in values if name not in _types(cls)]
    before, read = len(errors), {}
    for name, kind in _types(cls).items():
        key = prefix + name
        if name not in values:
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
    hint = f" (did you mean {nearest(str(value), list(choices))}?)" if len(choices) > 1 else ""
    return None, " or ".join(choices) + hint


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
    yield from _navigation_contradictions(c)
    yield from _deepspeed_contradictions(c)
    yield from _exprag_contradictions(c)
    yield from _selector_contradictions(c)
    yield from _ehr_rag_contradictions(c)
    yield from _kare_contradictions(c)
    if c.trainer.rl.minibatches > c.trainer.rl.episodes:
        yield (
            f"trainer.rl.minibatches={c.trainer.rl.minibatches} is more than trainer.rl.episodes="
            f"{c.trainer.rl.episodes}: every minibatch needs an episode, so lower the first or raise the second."
        )
    if not c.eval.policies or len(set(c.eval.policies)) < len(c.eval.policies):
        yield "eval.policies must name at least one policy and each only once: correct the list."


def _deepspeed_contradictions(c: Config) -> Iterator[str]:
    deepspeed = c.deepspeed
    if deepspeed is not None and c.policy.name not in ("ghar", "kare"):
        yield f"policy={c.policy.name} does not train with DeepSpeed: leave deepspeed=... out, or choose policy=ghar."
    if deepspeed is not None and deepspeed.offload and (deepspeed.stage or 0) < 2:
        yield "deepspeed.offload=true needs ZeRO 2 or 3: choose deepspeed=zero2_offload or zero3_offload."


def _navigation_contradictions(c: Config) -> Iterator[str]:
    if "rllib" in c.eval.policies and c.eval.navigation is None:
        yield "eval.policies names rllib: set eval.navigation to a checkpoint of launch/train_rllib.py, or drop rllib."


def _selector_contradictions(c: Config) -> Iterator[str]:
    asked = c.task.name == "medqa" or c.task.name.startswith("series_")
    if asked != (c.policy.name == "graphwalker"):
        own = f"another task than {c.task.name}" if asked else "medqa or one of the tasks series_..."
        yield f"policy={c.policy.name} does not read task={c.task.name}: choose {own}, or another policy."
    if c.selector is None:
        if c.policy.name == "graphwalker":
            yield "policy.name=graphwalker needs its section selector: choose policy=graphwalker."
        return
    own = c.selector
    if own.name != "graphwalker" and (own.utility, own.variant) != ("entropy", "paper"):
        yield f"selector.utility and selector.variant are GraphWalker's: selector.name={own.name} reads neither."
    about_series = own.name == "time_series" or own.variant in ("no_ehr_emb", "show_encoder")
    if c.task.name == "medqa" and (about_series or (own.encoder, own.inference) != ("text", "direct")):
        yield (
            "task=medqa has words and no measurements: set selector.encoder=text, and leave out "
            "selector.name=time_series, selector.inference=react and the variants about EHR encoders."
        )


def _exprag_contradictions(c: Config) -> Iterator[str]:
    asked = c.task.name.startswith("dischargeqa_")
    if asked != (c.policy.name == "exprag"):
        own = "one of the tasks dischargeqa_..." if c.policy.name == "exprag" else f"another task than {c.task.name}"
        yield f"policy={c.policy.name} does not answer task={c.task.name}: choose {own}, or another policy."
    if c.exprag is None:
        if c.policy.name == "exprag":
            yield "policy.name=exprag needs its section exprag: choose policy=exprag."
        return
    if c.exprag.rows[0] > c.exprag.rows[1]:
        yield f"exprag.rows={list(c.exprag.rows)} must hold the fewest rows first, then the most: exchange them."
    if not c.exprag.policies or len(set(c.exprag.policies)) < len(c.exprag.policies):
        yield "exprag.policies must name at least one policy and each only once: correct the list."
    learned = {"direct", "exprag"}.intersection(c.exprag.policies)
    if c.exprag.retriever == "flare" and "scripted" in c.exprag.policies:
        yield "exprag.retriever=flare asks how sure a model is, and policy scripted is none: drop it, or take another."
    if c.exprag.judged and not learned:
        yield "exprag.judged needs a language model as judge: name direct or exprag in exprag.policies."
    if c.retriever.kind == "bm25" and (c.exprag.ranker == "text" or c.exprag.retriever != "bm25"):
        yield "retriever=bm25 makes no vectors for exprag: choose retriever=tfidf, e5 or another model's name."


def _ehr_rag_contradictions(c: Config) -> Iterator[str]:
    asked = c.task.name in ("guo_los", "guo_readmission", "new_acutemi", "lab_anemia")
    if asked != (c.policy.name == "ehr_rag"):
        other = f"another task than {c.task.name}" if asked else "one of EHRSHOT's tasks (guo_los, ...)"
        yield f"policy={c.policy.name} does not predict task={c.task.name}: choose {other}, or another policy."
    own = c.ehr_rag
    if own is None:
        if c.policy.name == "ehr_rag":
            yield "policy.name=ehr_rag needs its section ehr_rag: choose policy=ehr_rag."
        return
    yield from _named_once("ehr_rag.methods", own.methods)
    if own.chunking[1] >= own.chunking[0]:
        yield f"ehr_rag.chunking={list(own.chunking)} repeats whole chunks: choose an overlap below the size."
    if ("embeddings" in own.methods) != (own.embeddings is not None):
        yield "ehr_rag.embeddings is the file of method embeddings: set both, or leave both out."
    if c.retriever.kind in ("tfidf", "bm25"):
        yield f"retriever={c.retriever.kind} makes no vectors of chunks: choose retriever=hashing, e5 or another."


def _kare_contradictions(c: Config) -> Iterator[str]:
    if c.engine.kind == "api" and c.policy.name != "kare":
        yield f"policy={c.policy.name} does not ask a server: choose engine=hf or engine=vllm."
    own = c.kare
    if own is None:
        if c.policy.name == "kare":
            yield "policy.name=kare needs its section kare: choose policy=kare."
        return
    yield from _named_once("kare.methods", own.methods)
    if own.communities[2] >= own.communities[3]:
        yield f"kare.communities={list(own.communities)} must hold Z_s below Z_c at its end: correct them."
    if own.weights[0] == 1 or own.weights[1] == 0:
        yield f"kare.weights={list(own.weights)} needs alpha below 1 and beta above 0 (Eq. 3): correct them."
    if c.engine.kind == "api" and c.model.kind != "pretrained":
        yield "engine=api asks the server that model.path names: choose model=pretrained and set model.path."
    if c.retriever.kind in ("tfidf", "bm25"):
        yield f"retriever={c.retriever.kind} makes no vectors of summaries: choose retriever=hashing, e5 or another."


def _named_once(key: str, names: Sequence[str]) -> Iterator[str]:
    if not names or len(set(names)) < len(names):
        yield f"{key} must name at least one method and each only once: correct the list."


def _data_contradictions(c: Config) -> Iterator[str]:
    if c.data.name == "demo" and c.data.root is not None:
        yield (
            f"data=demo generates its patients, so it cannot read data.root={c.data.root}: "
            "choose data=mimic4 (or an experiment) or set data.root=null."
        )
    if (c.task.name == "medqa") != (c.data.name == "medqa"):
        yield f"task={c.task.name} is not asked of data.name={c.data.name}: leave data.name as the task has it."
    elif c.data.name == "medqa" and c.data.root is None:
        yield "task=medqa reads questions: set data.root to a file of MedQA (jsonl or jsonl.gz)."
    if c.scale.name == "full" and c.data.root is None:
        yield "scale=full trains on real tables: set data.root to their folder, or choose scale=demo."
    if min(c.task.split) <= 0 or abs(sum(c.task.split) - 1) > 1e-6:
        yield f"task.split={list(c.task.split)} must hold three shares above 0 that add up to 1: correct them."
    if c.task.legacy_order and c.data.leakage == "strict":
        yield "task.legacy_order=true shows visits of the future: set it back, or choose data.leakage=paper."
    if c.task.name.startswith("kare") and c.data.root is None and c.policy.name != "kare":
        yield f"task={c.task.name} is not told in the demo world: set data.root to real tables, or choose task=read."


def _engine_contradictions(c: Config) -> Iterator[str]:
    engine = c.engine
    unread = {"device": engine.device, "kv_cache_gb": engine.kv_cache_gb, "sync": engine.sync}
    given = [f"engine.{name}={value}" for name, value in unread.items() if value is not None]
    given += ["engine.sleep=true"] if engine.sleep else []
    if engine.kind != "vllm" and given:
        yield f"engine={engine.kind} does not read {', '.join(given)}: choose engine=vllm."
    if engine.kind == "vllm" and engine.kv_cache_gb is None:
        yield "engine.kind=vllm needs engine.kv_cache_gb: set it, or choose engine=vllm, which does."
    if engine.sync == "adapter" and c.model.finetune == "full":
        yield "engine.sync=adapter, but model.finetune=full has none: set engine.sync=weights or model.finetune=lora."
    if engine.sleep and engine.device == "cpu":
        yield "engine.sleep=true gives GPU memory back and vLLM cannot do that on a CPU: set engine.sleep=false."


def _model_contradictions(c: Config) -> Iterator[str]:
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
