"""Prompt templates: one text file per decision, in two sets ("full" for large models, "compact" for small ones).

The first line of a file gives the reply's budget ("max_tokens 64"); the rest is the template, with fields in
braces. Same inputs and output contract as Figs. 12-15 of the GHAR paper, in our own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Template:
    """A prompt with fields in braces, and how many tokens the reply may have."""

    text: str
    max_tokens: int

    def render(self, **fields: object) -> str:
        return self.text.format_map(fields)


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
