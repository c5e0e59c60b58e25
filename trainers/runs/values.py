"""Values as bytes, for what processes of a run exchange over the network: data and no code, unlike pickle.

Whoever can reach the port of a process group could send a pickle that runs anything. Here a message is JSON, in which
{"t": kind, "v": ...} stands for what JSON has no word for: tuples, mappings, paths, NumPy's arrays and numbers,
BadInput, and dataclasses of this package, which are made from their fields alone.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ghar.errors import BadInput

OWN = "ghar."
KINDS = "biuf"  # of NumPy's numbers: bool, int, unsigned, float


def to_bytes(value: object) -> bytes:
    """TypeError for a value that is no data."""
    return json.dumps(_plain(value)).encode()


def from_bytes(data: bytes) -> Any:
    """The inverse of `to_bytes`. ValueError for anything else."""
    try:
        return _value(json.loads(data))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"a message of another process cannot be read ({type(error).__name__})") from error


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_plain(item) for item in value]
    if type(value) is tuple:
        return {"t": "tuple", "v": [_plain(item) for item in value]}
    if isinstance(value, Mapping):
        return {"t": "map", "v": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, Path):
        return {"t": "path", "v": str(value)}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in KINDS:
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        scalar = isinstance(value, np.generic)
        return {"t": "number" if scalar else "array", "v": [value.dtype.str, list(np.shape(value)), data]}
    if isinstance(value, BadInput):
        return {"t": "bad", "v": str(value)}
    if is_dataclass(value) and not isinstance(value, type) and type(value).__module__.startswith(OWN):
        own = {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.init}
        return {"t": "own", "v": [type(value).__module__, type(value).__qualname__, own]}
    raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__} is no data that processes exchange")


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    kind, value = plain["t"], plain["v"]
    if kind == "tuple":
        return tuple(_value(item) for item in value)
    if kind == "map":
        return {_value(key): _value(item) for key, item in value}
    if kind == "path":
        return Path(value)
    if kind in ("array", "number"):
        dtype = np.dtype(value[0])
        if dtype.kind not in KINDS:
            raise ValueError(f"an array of {dtype}")
        array = np.frombuffer(base64.b64decode(value[2]), dtype).reshape(value[1]).copy()
        return array if kind == "array" else array[()]
    if kind == "bad":
        return BadInput(value)
    if kind == "own":
        return _made(*value)
    raise ValueError(f"a value of kind {kind!r:.40}")


def _made(module: str, name: str, own: Mapping[str, Any]) -> Any:
    """A dataclass of this package that has been imported; nothing is imported for a message."""
    cls = getattr(sys.modules.get(module), name, None) if module.startswith(OWN) else None
    if not (isinstance(cls, type) and is_dataclass(cls) and cls.__module__ == module):
        raise ValueError(f"a value of {module}.{name}"[:200])
    return cls(**{field: _value(value) for field, value in own.items()})
