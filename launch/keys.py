"""Print docs/keys.md: every key of every system, what it must be and what it means: python launch/keys.py"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOMS = ("ghar", "kare", "graphwalker", "ehr_rag", "exprag", "baselines")


def page() -> str:
    """The page, read from the dataclasses."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    from ghar.envs.system import settings_of
    from ghar.launch.help import key_rows

    yield "# All keys"
    yield ""
    yield "Made by `python launch/keys.py` from [ghar/config.py](../ghar/config.py) and the rooms' `Settings`, to which"
    yield "a test holds it. How keys are set, and how to see a default: [configuration.md](configuration.md)."
    shared = [row for row in key_rows(settings_of("ghar")) if not _own(row)]
    yield from _table("Shared by all systems", shared)
    for room in ROOMS:
        rows = [row for row in key_rows(settings_of(room)) if _own(row)]
        yield from _table(f"system={room}", rows)


def _own(row: tuple[str, str, str]) -> bool:
    return row[0].startswith("system.")


def _table(title: str, rows: list[tuple[str, str, str]]) -> Iterator[str]:
    yield from ("", f"## {title}", "", "| key | must be | meaning |", "|---|---|---|")
    for row in rows:
        key, *rest = (cell.replace("|", "\\|") for cell in row)
        yield f"| `{key}` | " + " | ".join(rest) + " |"


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and no launcher hides a library of its name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    print(page(), end="")
