"""Prompt templates: one text file per decision, in two sets ("full" for large models, "compact" for small ones).

The first line of a file gives the reply's budget ("max_tokens 64"); the rest is the template, with fields in
braces. Same inputs and output contract as Figs. 12-15 of the GHAR paper, in our own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROLES = ("rewrite", "retrieve", "metapaths", "summarise", "answer", "continue", "followup", "predict")
_FOLDER = Path(__file__).parent / "prompts"


@dataclass(frozen=True)
class Template:
    """A prompt with fields in braces, and how many tokens the reply may have."""

    text: str
    max_tokens: int

    def render(self, **fields: object) -> str:
        return self.text.format_map(fields)


@cache
def load_prompts(name: str, roles: tuple[str, ...] = ROLES) -> dict[str, Template]:
    """Templates of the set `name` by role."""
    return {role: _read(_FOLDER / name / f"{role}.txt") for role in roles}


def _read(path: Path) -> Template:
    head, body = path.read_text(encoding="utf-8").split("\n", 1)
    return Template(body.rstrip("\n"), int(head.removeprefix("max_tokens ")))
