"""Prompt templates: one text file per decision, in two sets ("full" for large models, "compact" for small ones).

The first line of a file gives the reply's budget ("max_tokens 64"); the rest is the template, with fields in
braces. Same inputs and output contract as Figs. 12-15 of the GHAR paper, in our own words. What a template puts between
<data> and </data> cannot end there: such marks in a field's own text get other brackets. In a template without marks a
line of a field that begins as one of the template's own lines does ("answer:", "# Patient") gets a mark of quotation.
A section, which is a line that ends with a colon and a field of its own below it, is left out where the field is empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ghar.sanitize import readable

DATA = re.compile(r"<\s{0,9}/?\s{0,9}data(?:[\s/][^<>]{0,200})?>", re.IGNORECASE)  # as loosely as a model reads it
FIELD = re.compile(r"\{(\w+)\}")
SECTION = re.compile(r"(?:^# .*\n)?^[^\n{}]*:\n(?:<data>\n)?\{(\w+)\}(?:\n</data>)?$\n{0,2}", re.MULTILINE)
QUOTED = "> "  # before a line of a field that would begin another part of the prompt


@dataclass(frozen=True)
class Template:
    """A prompt with fields in braces, and how many tokens the reply may have."""

    text: str
    max_tokens: int

    def render(self, **fields: object) -> str:
        text = self.text
        if empty := frozenset(name for name, value in fields.items() if value == ""):
            text = _without_sections(text, empty)
        if DATA.search(self.text):
            fields = {name: _inside(value) for name, value in fields.items()}
        elif (heads := _heads(self.text)) is not None:
            begins = _at_begin(self.text)
            fields = {name: quoted(value, heads, name in begins) for name, value in fields.items()}
        return text.format_map(fields)

    def unmarked(self) -> Template:
        """The template without its marks and the lines that speak of them, to measure what they are good for."""
        lines = self.text.split("\n")
        return Template("\n".join(line for line in lines if not DATA.search(line)), self.max_tokens)


@cache
def _without_sections(template: str, empty: frozenset[str]) -> str:
    """A template without the sections of fields that are empty."""

    def left_out(match: re.Match[str]) -> str:
        if match[1] not in empty:
            return match[0]
        # the blank line below a section goes with it, unless it ends a paragraph that goes on above
        alone = match.start() == 0 or template[: match.start()].endswith("\n\n")
        return "" if alone or not match[0].endswith("\n\n") else "\n"

    return SECTION.sub(left_out, template).rstrip("\n")


def _inside(value: object) -> object:
    """A field's value that neither opens nor closes what a template marks as data."""
    if not isinstance(value, str):
        return value
    return DATA.sub(lambda mark: f"[{mark[0][1:-1]}]", readable(value))  # a mark may hide behind what is not seen


def quoted(value: object, heads: re.Pattern[str], at_begin: bool = True) -> object:
    """A text none of whose lines begins as `heads` (`heads_of`) do: such lines are marked as quotations.

    at_begin: whether its first line begins a line of the prompt. Other values come back as they are.
    """
    if not isinstance(value, str) or heads.search(value) is None:
        return value
    first, end, rest = (value.partition("\n") if not at_begin else ("", "", value))
    return first + end + heads.sub(lambda match: f"{QUOTED}{match[0]}", rest)


def heads_of(*heads: str) -> re.Pattern[str]:
    """Finds lines that begin with one of `heads`, whatever the case of their letters and the blanks around them."""
    words = sorted({" ".join(head.split()) for head in heads}, key=lambda head: (-len(head), head))
    pattern = "|".join(r"[ \t]+".join(map(re.escape, head.split())) + (r"\b" * head[-1].isalnum()) for head in words)
    return re.compile(rf"(?:^|(?<=\r))[ \t]*(?:{pattern})", re.IGNORECASE | re.MULTILINE)


@cache
def _heads(template: str) -> re.Pattern[str] | None:
    """What lines of a template begin with that order it: before a field, before a colon at the end, a heading."""
    heads = []
    for line in template.split("\n"):
        before, field, _ = line.partition("{")
        if before.strip() and (field or before.startswith("# ") or before.rstrip().endswith((":", "?"))):
            heads.append(before)
    return heads_of(*heads) if heads else None


@cache
def _at_begin(template: str) -> frozenset[str]:
    """Fields that stand at the beginning of a line."""
    return frozenset(match[1] for line in template.split("\n") if (match := FIELD.match(line)))


@cache
def load_prompts(package: str, name: str, roles: tuple[str, ...]) -> dict[str, Template]:
    """Templates of the set `name` by role, from the folder prompts/ of a package ("ghar.envs.kare")."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations  # a package that asks for its own prompts
    folder = Path(next(iter(spec.submodule_search_locations))) / "prompts" / name
    return {role: _read(folder / f"{role}.txt") for role in roles}


def _read(path: Path) -> Template:
    head, body = path.read_text(encoding="utf-8").split("\n", 1)
    return Template(body.rstrip("\n"), int(head.removeprefix("max_tokens ")))
