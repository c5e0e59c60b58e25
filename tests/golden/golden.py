"""Golden sums: proof that a change of the code's shape changed no number.

    make golden                                    compare with sums.json; exit code 1 where something differs
    make golden ONLY="traces/kare report"          the same, of names that begin so
    make golden-diff OLD=COMMIT ONLY="report"      show what differs from that commit, line by line
    make golden-update                             write sums.json anew (ONLY=...: some); the commit message says why

sums.json holds two kinds of entries. `sums` are hashes of canonical texts (canonical.py): tables, cases, pretraining
tasks, traces by rule-based and trivial policies, sampled token ids, reports. `numbers` went through torch: losses,
advantages, gradient norms, metrics (updates.py). Processors round differently, so numbers are compared within a
tolerance, and no number stands here that a step of Adam has touched: its sign rounding makes tiny gradients large.

A name that differs leaves its text in .golden/new/. Worlds are generated in a fresh folder on every call. Of the worlds
without a graph, GHAR, KARE and the comparators can read nothing; the two with long histories have fewer than 24 cases.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.golden.worlds import Scene

ROOT = Path(__file__).resolve().parents[2]
SUMS = Path(__file__).with_name("sums.json")
KEPT = ROOT / ".golden"
PROCESSES = 2
RELATIVE, ABSOLUTE = 1e-4, 1e-6  # of numbers that went through torch

# The kernels of any processor with AVX2: with others, near ties of EHR-RAG's retrieval come in another order, and what
# GraphWalker's encoder, trained on the spot, chooses.
KERNELS = {
    "OPENBLAS_CORETYPE": "Haswell",
    "MKL_CBWR": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "FAISS_OPT_LEVEL": "avx2",
}


def parts(only: tuple[str, ...]) -> list[tuple[str, Any]]:
    """What is computed on its own, as (kind, scene or system): everything, or what has names that begin with one of
    `only`."""
    from tests.golden import worlds

    scenes = [("scene", scene) for scene in worlds.SCENES if any(wanted(name, only) for name in names_of(scene))]
    reports = [("report", system) for system in worlds.REPORTED if wanted(f"report/{system}", only)]
    updates = [
        ("update", system)
        for system in worlds.AGENTS
        if wanted(f"sampled/{system}", only) or wanted(f"update/{system}", only)
    ]
    return [*scenes, *reports, *updates]


def names_of(scene: Scene) -> list[str]:
    """The beginnings of the names of a scene's texts."""
    kinds = ("cases", "pretraining", "examples", "traces")
    return [f"tables/{scene.world}", *(f"{kind}/{scene.name}" for kind in kinds)]


def wanted(name: str, only: tuple[str, ...]) -> bool:
    """Whether a name, or its beginning, is asked for."""
    return not only or any(name.startswith(start) or start.startswith(name) for start in only)


def computed(part: tuple[str, Any], only: tuple[str, ...], cache: Path) -> list[tuple[str, Any]]:
    """(name, canonical text or numbers) of one part, without what the product prints. cache: where worlds are
    generated."""
    from tests.golden import updates, worlds

    kind, what = part
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        if kind == "scene":
            items = list(worlds.texts_of(what, cache))
        elif kind == "report":
            items = [worlds.report_of(what, cache)]
        else:
            items = list(updates.found(what, cache))
    return [item for item in items if wanted(item[0], only)]


def quietly(only: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """(name, canonical text or numbers) of everything, or of the names that begin with one of `only`; several parts by
    two processes."""
    todo = parts(only)
    with tempfile.TemporaryDirectory() as folder:
        if len(todo) == 1:
            yield from computed(todo[0], only, Path(folder))
            return
        with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
            for items in pool.map(computed, todo, [only] * len(todo), [Path(folder)] * len(todo)):
                yield from items


def differs(one: Any, other: Any) -> str:
    """Where two trees of numbers differ by more than rounding, "" where they do not."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            return f"keys {', '.join(sorted(one.keys() ^ other.keys()))} stand on one side only"
        return next((f"{key}: {why}" for key in one if (why := differs(one[key], other[key]))), "")
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return f"{len(one)} values are {len(other)} now"
        pairs = enumerate(zip(one, other, strict=True))
        return next((f"value {i}: {why}" for i, pair in pairs if (why := differs(*pair))), "")
    if isinstance(one, float | int) and isinstance(other, float | int):
        close = abs(one - other) <= ABSOLUTE + RELATIVE * max(abs(one), abs(other))
        return "" if close or (one != one and other != other) else f"{one!r} is {other!r} now"
    return "" if one == other else f"{one!r} is {other!r} now"


def compare(only: tuple[str, ...]) -> list[str]:
    """One sentence for each name that differs."""
    from tests.golden.canonical import as_text, sum_of

    shutil.rmtree(KEPT, ignore_errors=True)
    kept = json.loads(SUMS.read_text())
    texts: dict[str, str] = {}
    wrong: dict[str, str] = {}
    for name, value in quietly(only):
        texts[name] = value if isinstance(value, str) else as_text(value)
        if name not in kept["sums"] | kept["numbers"]:
            wrong[name] = "there is no golden sum of that name; run make golden-update"
        elif isinstance(value, str):
            wrong[name] = "" if sum_of(value) == kept["sums"][name] else "the text has another sum"
        else:
            wrong[name] = differs(kept["numbers"][name], value)
    old = {total: name for name, total in kept["sums"].items() if name not in texts}
    for name in (name for name, why in wrong.items() if why and name not in kept["sums"]):
        if (before := old.get(sum_of(texts[name]))) is not None:
            wrong[name] = f"the text is that of {before}, which is gone; only the name is new"
    if not only:
        wrong |= {name: "was not computed" for name in (kept["sums"] | kept["numbers"]).keys() - texts.keys()}
    for name in (name for name, why in wrong.items() if why and name in texts):
        write(KEPT / "new", name, texts[name])
    return [f"{name}: {why}." for name, why in sorted(wrong.items()) if why]


def write(folder: Path, name: str, text: str) -> None:
    """A canonical text as a file."""
    path = folder / f"{name.replace(' ', '_')}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, errors="surrogatepass")


def update(only: tuple[str, ...]) -> int:
    """Write sums.json anew, or the entries whose names begin so; returns how many were computed."""
    from tests.golden.canonical import sum_of

    kept = json.loads(SUMS.read_text()) if only else {"sums": {}, "numbers": {}}
    found = dict(quietly(only))
    sums = kept["sums"] | {name: sum_of(value) for name, value in found.items() if isinstance(value, str)}
    numbers = kept["numbers"] | {name: value for name, value in found.items() if not isinstance(value, str)}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(numbers[name])}" for name in sorted(numbers))
    ordered = json.dumps(dict(sorted(sums.items())), indent=1)
    SUMS.write_text(f'{{\n"sums": {ordered},\n"numbers": {{\n{lines}\n}}\n}}\n')
    return len(found)


def diff(old: str, only: tuple[str, ...]) -> None:
    """Print what differs between the texts of commit `old` and those of the working tree, name by name."""
    shutil.rmtree(KEPT, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "old"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), old], cwd=ROOT, check=True)
        try:
            command = [sys.executable, "-m", "tests.golden.golden", "write", str(KEPT / "old"), *only]
            subprocess.run(command, cwd=tree, check=True, env={**os.environ, "PYTHONPATH": str(tree)})
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    write_all(KEPT / "new", only)
    sides = [{str(path.relative_to(KEPT / side)) for path in (KEPT / side).rglob("*.txt")} for side in ("old", "new")]
    for name in sorted(set.union(*sides)):
        pair = [(KEPT / side / name).read_text().splitlines() if name in names else []
                for side, names in zip(("old", "new"), sides, strict=True)]  # fmt: skip
        for line in difflib.unified_diff(*pair, f"old/{name}", f"new/{name}", lineterm=""):
            print(line)


def write_all(folder: Path, only: tuple[str, ...]) -> None:
    """Write every canonical text below `folder`."""
    from tests.golden.canonical import as_text

    for name, value in quietly(only):
        write(folder, name, value if isinstance(value, str) else as_text(value))


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compare", "update", "write", "diff"))
    parser.add_argument("names", nargs="*", help="for write: folder, then names; for diff: commit, then names")
    told = parser.parse_args()
    for variable, value in {**KERNELS, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}.items():
        os.environ.setdefault(variable, value)  # before NumPy and torch are imported
    start = time.monotonic()
    if told.what == "update":
        count = update(tuple(told.names))
        print(f"{count} golden sums written to {SUMS.relative_to(ROOT)} in {time.monotonic() - start:.0f} s.")
    elif told.what == "write":
        write_all(Path(told.names[0]), tuple(told.names[1:]))
    elif told.what == "diff":
        diff(told.names[0], tuple(told.names[1:]))
    else:
        wrong = compare(tuple(told.names))
        for sentence in wrong:
            print(sentence)
        ended = f"{len(wrong)} golden sums differ" if wrong else "The golden sums are equal"
        print(f"{ended} ({time.monotonic() - start:.0f} s).")
        if wrong:
            print("Their texts are in .golden/new. To see the lines: make golden-diff OLD=COMMIT ONLY=NAME")
        return int(bool(wrong))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
