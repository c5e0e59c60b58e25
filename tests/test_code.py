"""How long functions and files are, what has a docstring, how much is typed Any: numbers that a reader feels."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ghar", "envs", "rewards", "trainers", "launch", "benchmarks")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> dict[Path, ast.Module]:
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {path: ast.parse(path.read_text()) for path in files}


def functions() -> Iterator[tuple[str, Function]]:
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def lines(node: Function) -> int:
    """From `def` to the last line, the docstring left out."""
    body = node.body
    first = body[0].value if isinstance(body[0], ast.Expr) else None
    docstring = isinstance(first, ast.Constant) and isinstance(first.value, str)
    words = (body[0].end_lineno or 0) - body[0].lineno + 1 if docstring else 0
    return (node.end_lineno or 0) - node.lineno + 1 - words


@pytest.mark.slow
def test_functions_fit_a_screen() -> None:
    found = sorted((lines(node), name) for name, node in functions())
    assert found[int(len(found) * 0.95)][0] <= 30, f"the longest: {found[-5:]}"


def test_files_are_short() -> None:
    long = {str(path.relative_to(ROOT)): n for path in modules() if (n := len(path.read_text().splitlines())) > 600}
    assert not long, f"look again above 600 lines: {long}"


PARTICIPLES = {"found", "known", "shown", "told", "said"}


def test_names_are_no_participles_without_a_noun() -> None:
    """Of variables, parameters and functions; attributes and keys of files keep the names that they have."""
    named: list[str] = []
    for path, tree in modules().items():
        fields = {id(line.target) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for line in node.body
                  if isinstance(line, ast.AnnAssign)}  # fmt: skip
        methods = {id(one) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for one in node.body}
        for node in ast.walk(tree):
            name = ""
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
                name = node.id
            elif isinstance(node, ast.arg):
                name = node.arg
            elif isinstance(node, Function) and id(node) not in methods:
                name = node.name
            if name.strip("_").lower() in PARTICIPLES:
                named.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} {name}")
    assert not named, f"name the thing: {named}"


def test_public_things_have_docstrings() -> None:
    """Modules, classes and functions at the top of a module, and methods of public classes, that have more than a
    line of body: what stands there in one line says itself."""
    named: list[tuple[str, bool]] = []
    for path, tree in modules().items():
        place = str(path.relative_to(ROOT))
        if path.name != "__init__.py" or tree.body:
            named.append((place, ast.get_docstring(tree) is not None))
        for node in tree.body:
            if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
                named.append((f"{place} {node.name}", ast.get_docstring(node) is not None))
    missing = [name for name, has in named if not has]
    assert len(missing) <= 0.05 * len(named), f"{len(missing)} of {len(named)} without: {missing[:20]}"


def test_few_annotations_are_any() -> None:
    """Of parameters, results and fields: those that are Any and nothing else. dict[str, Any], JSON's own type, and
    the like say something."""
    notes = [note for tree in modules().values() for note in annotations(tree)]
    bare = [note for note in notes if isinstance(note, ast.Name) and note.id == "Any"]
    assert len(bare) <= 0.03 * len(notes), f"{len(bare)} of {len(notes)}"


def annotations(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            yield node.annotation
        elif isinstance(node, Function):
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
            yield from (argument.annotation for argument in every if argument is not None and argument.annotation)
            if node.returns is not None:
                yield node.returns


@pytest.mark.slow
def test_what_is_replaced_is_a_field() -> None:
    """Each keyword of `replace(...)` is a field of some class: pyright asks for none, and a test that is skipped here
    would find out elsewhere."""
    trees = modules() | {path: ast.parse(path.read_text()) for path in sorted((ROOT / "tests").rglob("*.py"))}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    fields = {
        line.target.id
        for _, node in nodes
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    unknown = [
        f"{path.relative_to(ROOT)}:{node.lineno} {given.arg}"
        for path, node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "replace"
        for given in node.keywords
        if given.arg is not None and given.arg not in fields
    ]
    assert not unknown


@pytest.mark.slow
def test_what_tests_alone_use_stands_in_the_tests() -> None:
    """Each function and class at the top of a module is used by a module, or named in a text or on a page."""
    used: set[tuple[str, str]] = set()
    for path, tree in modules().items():
        used |= set(uses(module_of(path), tree))
    strings = [text for tree in modules().values() for text in short_texts(tree)]
    places = [ROOT / "setup.cfg", *ROOT.glob("*.md"), *(ROOT / "conf").rglob("*.yaml")]
    pages = [*places, *(path for folder in ("docs", "envs") for path in (ROOT / folder).rglob("*.md"))]
    named = set(re.findall(r"\w+", " ".join([*strings, *(path.read_text() for path in pages)])))
    dead = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, tree in modules().items()
        for node in tree.body
        if isinstance(node, ast.ClassDef | Function)
        and not node.name.startswith("__")
        and node.name not in named
        and (module_of(path), node.name) not in used
    ]
    assert not dead


def module_of(path: Path) -> str:
    """The name that a file is imported under."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] in ("ghar", "benchmarks") else ("ghar", *parts)).removesuffix(".__init__")


def uses(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(module, name) of what one module imports, takes from a module that it imports, or reads of its own."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            known |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            yield known[node.value.id], node.attr
    for place in tree.body:
        own = place.name if isinstance(place, ast.ClassDef | Function) else None  # which may call itself
        names = {node.id for node in ast.walk(place) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        yield from ((module, name) for name in names - {own})


def short_texts(tree: ast.Module) -> Iterator[str]:
    """Texts that may name a thing to be found by its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 60:
            yield node.value


FILES = {"read_csv", "scan_csv", "read_parquet", "scan_parquet", "read_parquet_schema", "scan_lines"}


def test_paths_are_no_patterns() -> None:
    """Folders of users have names such as "data [2026]", which polars would take for a pattern."""
    without: list[str] = []
    for path, tree in modules().items():
        if path.parts[len(ROOT.parts)] == "benchmarks":
            continue
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for node in calls:
            if not isinstance(node.func, ast.Attribute) or node.func.attr not in FILES:
                continue
            in_memory = isinstance(node.args[0], ast.Name) and node.args[0].id == "lines"
            if not in_memory and not any(word.arg == "glob" for word in node.keywords):
                without.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not without, f"add glob=False: {without}"
