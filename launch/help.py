"""What --help, --help KEY and --version print: read from the schema, whose trailing comments are the keys' meanings."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import ghar
from ghar.config import Config, Named
from ghar.configure import allowed, key_types, leaf_keys, schema_of, section_keys, unknown_key
from ghar.errors import BadInput

WIDTH = 118
USAGE = """\
Write group=choice, key=value and --experiment NAME, as many as you like; the last word on a key counts.
--multirun runs every combination of comma-separated values; --cfg job prints the configuration and stops.
--help KEY tells about one key or group; --version prints GHAR's version.
"""
HYDRA = {
    "hydra-help", "multirun", "cfg", "resolve", "package", "run", "info", "shell-completion", "config-path",
    "config-name", "config-dir",
}  # fmt: skip
Choices = Mapping[str, Sequence[str]]


def wish(arguments: Sequence[str]) -> str | None:
    """What help is asked for: "" for all of it, else a key or group; None where none is."""
    for number, text in enumerate(arguments):
        if text in ("--help", "-h"):
            after = arguments[number + 1 :]
            return next((word for word in after if not word.startswith("-") and "=" not in word), "")
        if text.startswith("--help="):
            return text.removeprefix("--help=")
    return None


def short(arguments: Sequence[str]) -> list[str]:
    """The arguments with --experiment NAME and --quick as Hydra writes them, +experiment=NAME."""
    overrides: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--experiment":
            value = value if equals else next(words, "")
            overrides.append(f"+experiment={value}")
        else:
            overrides.append("+experiment=quick" if word == "--quick" else word)
    return overrides


def version() -> str:
    return f"ghar {ghar.__version__}"


def misplaced(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """Sentences for options with dashes, which only Hydra's own have. names: of all keys and groups."""
    wrong = []
    for number, text in enumerate(arguments):
        name, equals, value = text.removeprefix("--").partition("=")
        if not text.startswith("--") or name in HYDRA:
            continue
        key = name.replace("-", "_") if name.replace("-", "_") in names else name
        if key not in names:
            wrong.append(f"There is no option {text}: write key=value; --help lists all keys.")
            continue
        given = value if equals else next(iter(arguments[number + 1 :]), "VALUE")
        wrong.append(f"{text} is not how keys are set: write {key}={given}.")
    return wrong


def overview(usage: str, choices: Choices, settings: type) -> str:
    """All that a command line can say. usage: of the script; choices: by group."""
    lines = [usage.strip(), "", USAGE, "Groups and their choices (conf/GROUP/CHOICE.yaml):", ""]
    for group, names in choices.items():
        lines += _wrapped(f"  {'+' if group == 'experiment' else ''}{group}=", " | ".join(names))
    lines += ["", "Keys, what they must be, and what they mean:", ""]
    kinds, meanings = key_types(settings), _meanings(settings)
    for key, kind in kinds.items():
        lines += _wrapped(f"  {key}: ", "; ".join(part for part in (allowed(kind), meanings[key]) if part))
    return "\n".join(lines)


def about(name: str, choices: Choices, settings: type, defaults: Callable[[], Mapping[str, Any]]) -> str:
    """One key, section or group. defaults: the composed configuration. BadInput for a name that does not exist."""
    name = name.lstrip("+")
    kinds, meanings = key_types(settings), _meanings(settings)
    lines: list[str] = []
    if name in kinds:
        lines += [f"{name} must be {allowed(kinds[name])}."]
        lines += [meanings[name]] if meanings[name] else []
        lines.append(f"default: {_format_default(_default(name, defaults(), settings))}")
        return "\n".join(lines)
    if name in choices:
        sign = "+" if name == "experiment" else ""
        lines += _wrapped(f"{sign}{name}=", " | ".join(choices[name]))
    if name in section_keys():
        own = [key for key in kinds if key.startswith(f"{name}.")]
        lines += [line for key in own for line in _wrapped(f"  {key}: ", f"{allowed(kinds[key])}; {meanings[key]}")]
    if not lines:
        raise BadInput(unknown_key(name, settings))
    return "\n".join(lines)


def key_rows(settings: type) -> list[tuple[str, str, str]]:
    """(key, what it must be, meaning) of every key of a system."""
    meanings = _meanings(settings)
    return [(key, allowed(kind), meanings[key]) for key, kind in key_types(settings).items()]


def _default(name: str, composed: Mapping[str, Any], settings: type) -> Any:
    """As conf/ has it, or the Settings of a system; None for a key of a section that is null."""
    value: Any = composed
    for part in name.split("."):
        value = value.get(part, MISSING) if isinstance(value, Mapping) else None
    if value is not MISSING:
        return value
    return next((f.default for f in fields(settings) if f.name == name.rpartition(".")[2]), None)


def _format_default(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"[{','.join(map(str, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(head + text, WIDTH, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False)


def _meanings(settings: type) -> dict[str, str]:
    """Full name of a key -> what the schema's comments say of it."""
    meanings: dict[str, str] = {}

    def read(cls: type, prefix: str) -> None:
        own = comments(cls)
        for field, kind in schema_of(cls).items():
            section = settings if kind[0] is Named else kind[1]
            if section is None:
                meanings[prefix + field] = own.get(field, "")
            else:
                read(section, f"{prefix}{field}.")

    read(Config, "")
    return {key: meanings[key] for key in leaf_keys(settings=settings)}


def comments(cls: type) -> dict[str, str]:
    """Field -> the comment on the lines above it and behind it. Empty where the source cannot be read."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return {}
    notes = {
        token.start[0]: (token.string.lstrip("# "), not token.line[: token.start[1]].strip())
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    texts: dict[str, str] = {}
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        above, line = [], item.lineno - 1
        while line in notes and notes[line][1]:
            above.insert(0, notes[line][0])
            line -= 1
        behind = [notes[item.end_lineno][0]] if item.end_lineno in notes else []
        texts[item.target.id] = " ".join([*above, *behind])
    return texts
