"""Prompt templates: one text file per decision, in two sets ("full" for large models, "compact" for small ones).

The first line of a file gives the reply's budget ("max_tokens 64"); the rest is the template, with fields in
braces. Same inputs and output contract as Figs. 12-15 of the GHAR paper, in our own words. What a template puts between
<data> and </data> cannot end there: such marks in a field's own text get other brackets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

DATA = re.compile(r"</?\s*data\s*>", re.IGNORECASE)


@dataclass(frozen=True)
class Template:
    """A prompt with fields in braces, and how many tokens the reply may have."""

    text: str
    max_tokens: int

    def render(self, **fields: object) -> str:
        if DATA.search(self.text):
            fields = {name: _inside(value) for name, value in fields.items()}
        return self.text.format_map(fields)

    def unmarked(self) -> Template:
        """The template without its marks and the lines that speak of them, to measure what they are good for."""
        lines = self.text.split("\n")
        return Template("\n".join(line for line in lines if not DATA.search(line)), self.max_tokens)


def _inside(value: object) -> object:
    """A field's value that neither opens nor closes what a template marks as data."""
    return DATA.sub(lambda mark: f"[{mark[0][1:-1]}]", value) if isinstance(value, str) else value


@cache
def load_prompts(package: str, name: str, roles: tuple[str, ...]) -> dict[str, Template]:
    """Templates of the set `name` by role, from the folder prompts/ of a package ("envs.kare")."""
    found = find_spec(package)
    assert found is not None and found.submodule_search_locations  # a package that asks for its own prompts
    folder = Path(next(iter(found.submodule_search_locations))) / "prompts" / name
    return {role: _read(folder / f"{role}.txt") for role in roles}


def _read(path: Path) -> Template:
    head, body = path.read_text(encoding="utf-8").split("\n", 1)
    return Template(body.rstrip("\n"), int(head.removeprefix("max_tokens ")))
