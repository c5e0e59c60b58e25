"""The page of a room names every variant of it, and every value of system.variant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from ghar.envs.ghar.system import ABLATIONS, FIXED
from ghar.envs.graphwalker.system import TITLES
from ghar.envs.graphwalker.system import variants_of as walker_variants
from ghar.envs.kare.methods import variants_of as kare_variants
from ghar.envs.kare.settings import Settings as KareSettings

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
SELECTORS: Any = tuple(TITLES)
NAMES: dict[str, Iterable[str]] = {
    "ghar": [*ABLATIONS, *(f"{who}fixed_{rounds}" for who in ("", "scripted_") for rounds in FIXED)],
    "graphwalker": [*walker_variants(SELECTORS, series=True)],
    "kare": [*kare_variants(KareSettings(), "", True), *get_args(get_type_hints(KareSettings)["variant"])],
}


def named(room: str) -> set[str]:
    """What stands in backticks on a room's page; `a_1` to `a_3` names what is between, too."""
    text = FENCE.sub("", (ROOT / "envs" / room / "README.md").read_text())
    names = set(re.findall(r"`([^`\n]+)`", text))
    for start, first, last in re.findall(r"`(\w+?)(\d+)` to `\w+?(\d+)`", text):
        names |= {f"{start}{number}" for number in range(int(first), int(last) + 1)}
    return names


@pytest.mark.parametrize("room", NAMES)
def test_a_rooms_page_names_its_variants(room: str) -> None:
    assert sorted(set(NAMES[room]) - named(room)) == []
