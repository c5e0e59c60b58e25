"""How a benchmark tells its result: a line a number, and a JSON file that is there whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ghar.metrics.runfolder import write_whole

INTERVAL = {"mean", "low", "high"}


def tell(name: str, folder: Path, result: Mapping[str, Any]) -> None:
    """Print every number of `result` under its path of keys, and keep all of it in folder/<name>.json.

    Lists, which hold single runs, are in the file alone.
    """
    write_whole(folder / f"{name}.json", json.dumps(result, indent=1) + "\n")
    lines = list(_lines(result, ""))
    width = max((len(key) for key, _ in lines), default=0)
    for key, value in lines:
        print(f"{key:{width}}  {value}", flush=True)


def _lines(result: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name, value in result.items():
        key = f"{path}{name}"
        if isinstance(value, Mapping) and INTERVAL <= value.keys():
            yield key, f"{_number(value['mean'])} [{_number(value['low'])}, {_number(value['high'])}]"
        elif isinstance(value, Mapping):
            yield from _lines(value, f"{key}: ")
        elif not isinstance(value, list | tuple):
            yield key, _number(value)


def _number(value: Any) -> str:
    if isinstance(value, float):  # three places say nothing about 1e-6
        return f"{value:,.3f}" if value == 0 or abs(value) >= 0.01 else f"{value:.2g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
