"""Ownership, computed from imports: a room holds what it alone uses, and the core names no system."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ghar", "envs", "rewards", "trainers", "launch")
ROOMS = ("ghar", "kare", "graphwalker", "ehr_rag", "exprag", "baselines", "comparators", "worlds")
NAMES = ("id", "attr", "name", "arg", "module")  # of nodes of a syntax tree
SYSTEMS = re.compile(r"(kare|graph_?walker|ehr_?rag|exprag)", re.IGNORECASE)  # "ghar" is the package's own name


@cache
def trees() -> dict[str, ast.Module]:
    """The modules of the product by dotted name."""
    found = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name if path.is_relative_to(ROOT / "ghar") else f"ghar.{name}"] = ast.parse(path.read_text())
    return found


def imports(tree: ast.Module) -> Iterator[str]:
    """Modules of the product that one imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield from (one for one in (name, name.rpartition(".")[0]) if one in trees())


def room_of(name: str) -> str | None:
    """The room that a module stands in, None for what rooms share."""
    parts = name.split(".")
    return parts[2] if parts[1:2] == ["envs"] and len(parts) > 2 and parts[2] in ROOMS else None


def is_shared(name: str) -> bool:
    """Whether rooms could use a module that stands in none of them: of ghar/ itself, envs/ and rewards/."""
    return room_of(name) is None and name.split(".")[1:2] not in (["trainers"], ["launch"])


def of_core(name: str) -> bool:
    """Whether a module belongs to ghar/ itself, and not to a folder that ghar/ has a link to."""
    return name.split(".")[1:2] not in [[package] for package in PACKAGES]


@cache
def owners() -> dict[str, frozenset[str]]:
    """For each shared module the rooms that use it, through other such modules too; "shared" stands for trainers and
    launchers."""
    users: dict[str, set[str]] = {name: set() for name in trees()}
    for name, tree in trees().items():
        for used in imports(tree):
            if used != name:
                users[used].add(name)
    found: dict[str, set[str]] = {name: set() for name in trees() if is_shared(name)}
    changed = True
    while changed:
        changed = False
        for name, own in found.items():
            for user in users[name]:
                more = found[user] if user in found else {room_of(user) or "shared"}
                changed |= not more <= own
                own |= more
    return {name: frozenset(own) for name, own in found.items()}


def test_what_one_room_alone_uses_stands_in_it() -> None:
    alone = {name: set(own) for name, own in owners().items() if len(own) == 1 and own != {"shared"}}
    assert not alone, f"{len(alone)}: {alone}"


def test_everything_in_the_core_is_used() -> None:
    packages = {name for name, tree in trees().items() if all(isinstance(node, ast.Expr) for node in tree.body)}
    unused = [name for name, own in owners().items() if of_core(name) and not own and name not in packages]
    assert not unused, unused


def test_the_core_names_no_system() -> None:
    """In names of modules, classes, functions and variables; tasks, protocols and docstrings name the papers."""
    named = []
    for name, tree in trees().items():
        if of_core(name):
            words = [name, *(getattr(node, key, None) for node in ast.walk(tree) for key in NAMES)]
            named += [(name, word) for word in words if isinstance(word, str) and SYSTEMS.search(word)]
    assert not named, f"{len(named)}: {named}"
