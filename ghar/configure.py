"""From a composed mapping to a checked `Config`: all that is wrong is reported at once, nothing is repaired."""

from __future__ import annotations

import difflib
import json
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

from ghar.config import Config, Named, OrGpus, OrYears, OwnModule, Range
from ghar.contradictions import contradictions
from ghar.errors import BadInput
from ghar.extensions import is_module

Rules = Callable[[Config, Any], Iterator[str]]
QUICK = {"amx_bf16", "avx512_bf16"}  # of model.dtype=auto: flags of x86 processors that multiply in bfloat16


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
    if config.model.dtype == "auto":
        config = replace(config, model=replace(config.model, dtype=quick_dtype()))
    return config


@cache
def _types(cls: type) -> dict[str, Any]:
    """Field name -> annotation of a schema class, resolved."""
    hints = get_type_hints(cls, include_extras=True)
    return {f.name: hints[f.name] for f in fields(cls)}


def _is_section(kind: object) -> TypeGuard[type]:
    return isinstance(kind, type) and is_dataclass(kind)


def _schema(kind: Any) -> type | None:
    """The schema class of a section, also of one that may be null; None for a value."""
    sections = [part for part in (kind, *get_args(kind)) if _is_section(part)]
    return sections[0] if sections else None


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
    kinds: dict[str, Any] = {}
    for name, (kind, schema) in schema_of(cls).items():
        section = settings if kind is Named else schema
        kinds |= key_types(settings, section, f"{prefix}{name}.") if section else {prefix + name: kind}
    return kinds


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
        own, other = word.rpartition(".")[2], name.rpartition(".")[2]
        short = other == "".join(part[:1] for part in own.split("_"))  # lr of learning_rate
        last = 1.0 if short else difflib.SequenceMatcher(None, own, other).ratio()
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
        if isinstance(args[1], OrGpus):
            read, wrong = _plain(bool, value)
            return (value, "") if args[1].holds(value) else (read, wrong and f"{wrong} or GPUs such as 8xh100")
        read, wrong = _value(args[0], value)
        if isinstance(args[1], OwnModule):
            return (value, "") if is_module(value) else (read, wrong and f"{wrong} or a module of your own")
        if isinstance(args[1], OrYears):
            spanned = args[1].holds(value)
            return (str(value), "") if spanned else (read, wrong and f"{wrong} or years such as 2011-2016")
        bound: Range = args[1]
        wanted = f"{_NAMES[args[0]]} {bound}"
        return (read, "") if not wrong and bound.holds(read) else (None, wanted)
    if origin is Literal:
        return _choice(args, value)
    if origin is tuple:
        return _list(args, value)
    if origin is dict:
        return _mapping(args[1], value)
    return _plain(kind, value)


_NAMES = {int: "a whole number", float: "a number", str: "a non-empty text", bool: "true or false"}


def _plain(kind: type, value: Any) -> tuple[Any, str]:
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value), ""
    # `type` and not `isinstance`: true is an int in Python, but no number of patients.
    if kind is not float and type(value) is kind and value != "":
        return value, ""
    return None, _NAMES[kind]


def _choice(choices: tuple[str, ...], value: object) -> tuple[Any, str]:
    if value in choices:
        return value, ""
    near = nearest(str(value), choices) if len(choices) > 1 else None
    return None, " or ".join(choices) + (f" (did you mean {near}?)" if near else "")


def _mapping(kind: Any, value: Any) -> tuple[Any, str]:
    """Names with values of one kind, or of any, as a template's arguments are."""
    wanted = "a mapping of names" + (" to values" if kind is Any else f", each to {_value(kind, _Nothing())[1]}")
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name.isidentifier() for name in value):
        return None, wanted
    read = {name: (item, "") if kind is Any else _value(kind, item) for name, item in value.items()}
    wrong = any(wrong for _, wrong in read.values())
    return (None, wanted) if wrong else ({name: item for name, (item, _) in read.items()}, "")


def _list(args: tuple[Any, ...], value: Any) -> tuple[Any, str]:
    """A list of any length (`args` ends in ...) or of exactly `len(args)` items."""
    any_length = args[-1] is Ellipsis
    if not isinstance(value, list | tuple) or not (any_length or len(value) == len(args)):
        return None, "a list" if any_length else f"a list of {len(args)} values"
    read = [_value(args[0], item) for item in value]
    wrong = next((w for _, w in read if w), "")
    return (None, f"a list whose every item is {wrong}") if wrong else (tuple(r for r, _ in read), "")


def _show(value: object) -> str:
    """A value as it is written in YAML or on the command line."""
    return json.dumps(value, default=str, ensure_ascii=False)


@cache
def quick_dtype() -> str:
    """bfloat16 where a GPU or the processor computes in it, else float32."""
    if Path("/proc/driver/nvidia/version").exists():
        return "bfloat16"
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "float32"
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return "bfloat16" if QUICK & set(flags.split()) else "float32"
