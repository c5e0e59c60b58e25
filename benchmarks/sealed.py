"""A sealed test: worlds that were never generated, opened once, for contrasts registered in the repository before.

benchmarks/registrations/NAME.yaml is the registration: overrides, number of seeds, contrasts and their goals. It is
committed and never changed: another test gets another name. World, base model and training of each seed come from
sha256 of the name and the registration's text, so its author does not choose them.

benchmarks/registrations/NAME.json is the record. It is written before the first world is generated, with the commit at
work, and has the result at the end: commit it then. A test with a result, or with a committed record, is refused. A
killed test goes on at the same commit in the same folder. Training is that of benchmarks/learning.py, with those
controls of RL that a contrast names. Intervals are Student's t over seeds, each with patients of its own.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks.learning import CONTROLS, command_of, over_seeds, rows_by_policy, train
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.runfolder import write_whole
from ghar.yaml_text import parse_yaml

ROOT = Path(__file__).resolve().parents[1]
PLACE = "benchmarks/registrations"
LEAST, MOST = 10**6, 2**31  # of derived seeds: those chosen by hand are smaller
DERIVED = ("seed", "data.world_seed", "trainer.base.seed", "run_dir")  # keys that the job sets


@dataclass(frozen=True)
class Contrast:
    """Accuracy of one policy less another's. goal: what the lower end of the interval must exceed."""

    of: str
    less: str
    goal: float


@dataclass(frozen=True)
class Registration:
    """A sealed test as it was committed. commit: the one that brought its file; worlds: a seed for each run."""

    name: str
    overrides: tuple[str, ...]
    contrasts: tuple[Contrast, ...]
    commit: str
    worlds: tuple[int, ...]


def sealed(words: Sequence[str], folder: Path, timeout: float, root: Path = ROOT) -> dict[str, Any]:
    """Open the sealed test that `words` names, train its seeds, and write record and page fragment.

    BadInput for a working tree with changes, a registration that is not as it was first committed, and a test that has
    been opened before.
    """
    if len(words) != 1:
        raise BadInput(f"sealed takes the name of one test, a file NAME.yaml of {PLACE}, and nothing else.")
    test, runs = registered(words[0], root), (folder / "sealed" / words[0]).resolve()
    record = open_test(test, runs, root)
    places = [runs / f"world{world}" for world in test.worlds]
    named = [name for name in CONTROLS if any(name in (c.of, c.less) for c in test.contrasts)]
    controls = [
        train(world, place, [f"data.world_seed={world}", *test.overrides], timeout, named)
        for world, place in zip(test.worlds, places, strict=True)
    ]
    for world, own in zip(test.worlds, controls, strict=True):
        if absent := [name for name in named if name not in own]:
            raise BadInput(f"{runs / f'world{world}'} counted no trained tokens, so that {absent[0]} was not trained.")
    result = differences(test, places, {name: [own[name] for own in controls] for name in named})
    record = {key: value for key, value in record.items() if key != "folder"} | {"result": result}
    write_whole(runs / "fragment.md", "\n".join(page_lines(test, record)) + "\n")
    write_whole(root / PLACE / f"{test.name}.json", json.dumps(record, indent=1) + "\n")
    print(f"Commit {PLACE}/{test.name}.json; the fragment for docs/results.md is {runs / 'fragment.md'}.")
    return result


def registered(name: str, root: Path) -> Registration:
    """Read a registration. BadInput where it is not as HEAD has it, was changed since its first commit, or is wrong."""
    path = f"{PLACE}/{name}.yaml"
    if _git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
        raise BadInput("This clone is shallow and lacks the history of registrations: run git fetch --unshallow.")
    if not (root / path).is_file():
        raise BadInput(f"{path} is not there: write the registration and commit it first.")
    commits = _git(root, "log", "--format=%H", "HEAD", "--", path).split()
    if not commits:
        raise BadInput(f"{path} is not committed: commit it before the test is opened.")
    if len(commits) > 1:
        raise BadInput(
            f"{path} was changed in {commits[0][:8]}, after it was registered: give the new test a new name."
        )
    text = (root / path).read_text()
    if text != _git(root, "show", f"HEAD:{path}"):
        raise BadInput(f"{path} differs from the committed one: restore it with git checkout {path}.")
    return parsed(name, text, commits[0])


def parsed(name: str, text: str, commit: str) -> Registration:
    """Read the text of a registration. BadInput for what is missing, and for keys that the test derives."""
    try:
        about = parse_yaml(text)
        overrides = tuple(str(word) for word in about["overrides"])
        contrasts = tuple(Contrast(str(c["of"]), str(c["less"]), float(c["goal"])) for c in about["contrasts"])
        worlds = tuple(derived_seed(name, text, seed) for seed in range(int(about["seeds"])))
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{name}.yaml needs overrides (a list), seeds (a number), contrasts (each with of, less, goal): {error!r}."
        ) from None
    if named := [word for word in overrides if word.lstrip("+").partition("=")[0] in DERIVED]:
        raise BadInput(f"{name}.yaml may not set {named[0]}, which the test derives: register another one without it.")
    return Registration(name, overrides, contrasts, commit, worlds)


def derived_seed(name: str, text: str, seed: int) -> int:
    """Derive world, base model and training of a seed from the registration."""
    digest = hashlib.sha256(f"{name} {seed}\n{text}".encode()).digest()
    return LEAST + int.from_bytes(digest[:8], "big") % (MOST - LEAST)


def open_test(test: Registration, runs: Path, root: Path) -> dict[str, Any]:
    """Write the record of the opening, or read that of a test to go on with. BadInput where it may not be opened."""
    path = f"{PLACE}/{test.name}.json"
    if changed := [line for line in _git(root, "status", "--porcelain").splitlines() if line[3:] != path]:
        raise BadInput(f"The working tree has changes ({changed[0][3:]}): commit them before a sealed test is opened.")
    if _git(root, "log", "--all", "--format=%H", "--", path):
        raise BadInput(f"{path} is committed: this test has been opened, and a test is opened once.")
    head, target = _git(root, "rev-parse", "HEAD").strip(), root / path
    if target.is_file():
        return _opened(json.loads(target.read_text()), head, runs, path)
    if runs.exists():
        raise BadInput(f"{runs} has runs of this test, but its record {path} is gone: restore the record.")
    if used := _git(root, "grep", "-lwE", "|".join(map(str, test.worlds)), fails=True).split():
        raise BadInput(f"{used[0]} names a derived world seed, so that world is no secret: register another test.")
    check_played(test, runs)
    record = {
        "registered": test.commit, "commit": head, "opened": datetime.now(UTC).isoformat(timespec="seconds"),
        "worlds": list(test.worlds), "folder": str(runs),
    }  # fmt: skip
    write_whole(target, json.dumps(record, indent=1) + "\n")
    return record


def check_played(test: Registration, runs: Path) -> None:
    """Refuse, before hours of training, patients that are not generated and contrasts of what is not played."""
    file, config = f"{PLACE}/{test.name}.yaml", load(command_of(test.worlds[0], runs, test.overrides)[2:])
    if config.data.root is not None:
        raise BadInput(f"{file} sets data.root, whose patients are no world: register another test without it.")
    played = config.eval.variants or ()
    for name in (name for c in test.contrasts for name in (c.of, c.less) if name not in played):
        if name not in CONTROLS:
            raise BadInput(f"{file} has a contrast of {name}: register another test that lists it in eval.variants.")
        if not config.trainer.rl.updates:
            raise BadInput(f"{file} has a contrast of {name}, and no update: register another with trainer.rl.updates.")


def _opened(record: dict[str, Any], head: str, runs: Path, path: str) -> dict[str, Any]:
    if "result" in record:
        raise BadInput(f"{path} has the result: this test has been opened, and a test is opened once.")
    if (record["commit"], record["folder"]) != (head, str(runs)):
        raise BadInput(
            f"This test was opened at {record['commit'][:8]} in {record['folder']}: "
            "check that commit out and give that --folder to go on."
        )
    return record


def differences(test: Registration, runs: Sequence[Path], controls: Mapping[str, Sequence[Path]]) -> dict[str, Any]:
    """Compute each registered contrast: mean, t-interval over seeds, each seed's difference."""
    rows = rows_by_policy(runs, controls)
    contrasts = {}
    for c in test.contrasts:
        apart = [over_seeds([a], "correct", [b])["mean"] for a, b in zip(rows[c.of], rows[c.less], strict=True)]
        contrasts[f"{c.of} - {c.less}"] = over_seeds(rows[c.of], "correct", rows[c.less]) | {"each": apart}
    return contrasts


def reading(number: Mapping[str, Any], contrast: Contrast) -> str:
    """State what the interval shows and nothing more, and whether the goal is reached."""
    ahead = f"{contrast.of} is ahead" if number["low"] > 0 else f"{contrast.of} is behind"
    verdict = ahead if number["low"] > 0 or number["high"] < 0 else "no difference shows"
    return f"{verdict}; goal above {contrast.goal:g}: {'reached' if number['low'] > contrast.goal else '**missed**'}"


def page_lines(test: Registration, record: Mapping[str, Any]) -> Iterator[str]:
    """Write the section of a page: command, commits, worlds, and a row for each registered contrast."""
    several = f", not corrected for {len(test.contrasts)} contrasts" if len(test.contrasts) > 1 else ""
    yield f"## Sealed test {test.name}\n"
    when = f"{record['commit'][:8]}, {record['opened'][:10]}"
    yield f"```sh\npython benchmarks/run.py sealed {test.name}   # {when}\n```\n"
    file = f"[{test.name}.yaml](../{PLACE}/{test.name}.yaml)"
    yield f"Registered at {test.commit[:8]} ({file}), opened once at the commit above."
    yield f"{len(test.worlds)} seeds, each with a generated world and a base model of its own; seeds of the worlds:"
    yield f"{', '.join(map(str, test.worlds))}. Intervals: 95%, Student's t over seeds{several}.\n"
    yield "| contrast | difference in accuracy | by seed | reading |\n|---|---|---|---|"
    for c in test.contrasts:
        one = record["result"][f"{c.of} - {c.less}"]
        interval = f"{one['mean']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]"
        each = ", ".join(f"{value:+.3f}" for value in one["each"])
        yield f"| {c.of} less {c.less} | {interval} | {each} | {reading(one, c)} |"


def _git(root: Path, *words: str, fails: bool = False) -> str:
    """Run git in the checkout. fails: without a match it gives nothing, as grep does."""
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    if done.returncode and not (fails and done.returncode == 1):
        raise BadInput(f"A sealed test needs a git checkout of this repository: {done.stderr.strip()}")
    return done.stdout
