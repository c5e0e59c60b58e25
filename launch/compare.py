"""Put several systems to one task of one cohort, on one split and one test set, and report them side by side.

python launch/compare.py systems=[ghar,kare,graphwalker,ehr_rag,exprag] task=read
python launch/compare.py systems=[ghar,kare] task=read runs=[runs/a,runs/b] variants=[ghar_rl,scripted]

systems: names as in system=NAME. runs: folders of trained runs; a system without one is played by its rules and by an
untrained model. variants: those that are played; without it each system chooses.
predictions=[NAME:FILE.parquet]: other models' predictions of the same samples, in meds-evaluation's schema. Every other
key is every system's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghar.config import Config
    from ghar.trainers.evaluation.predictions import ExternalModel

LISTS = ("systems", "runs", "variants", "predictions")


def main(arguments: Sequence[str]) -> None:
    """Read the command line and compare. Raises BadInput."""
    from ghar.errors import BadInput
    from ghar.inputs import missing
    from ghar.launch.entry import check_system, load

    lists = {name: _list(arguments, name) for name in LISTS}
    shared = [text for text in arguments if text.partition("=")[0] not in LISTS]
    if not lists["systems"]:
        raise BadInput("systems is missing: write systems=[ghar,kare], as many as you like.")
    if not any(text.startswith("task=") for text in shared):
        raise BadInput("task is missing: write task=read, or another task that the systems can all be put to.")
    entries: list[tuple[str, Config | None, str]] = []
    for name in lists["systems"]:
        check_system(name)
        try:
            config = load([f"system={name}", *shared])
            absent = " ".join(missing(config, training=False))
            entries.append((name, None if absent else config, absent))
        except BadInput as error:
            entries.append((name, None, " ".join(str(error).split())))
    if all(config is None for _, config, _ in entries):
        raise BadInput("\n".join(dict.fromkeys(reason for _, _, reason in entries)))
    if unread := [run for run in lists["runs"] if not (Path(run) / "config.yaml").is_file()]:
        raise BadInput(f"{unread[0]} holds no config.yaml: name the folder of a run.")
    from ghar.trainers.evaluation.compare import (  # heavy, so only once the command line is known to be good
        ComparedSystem,
        compare,
    )

    others = [_outside(text, lists["systems"]) for text in lists["predictions"]]
    systems, runs = [ComparedSystem(*entry) for entry in entries], [Path(run) for run in lists["runs"]]
    compare(systems, runs, lists["variants"], _folder(shared), others)


def _list(arguments: Sequence[str], name: str) -> list[str]:
    """The items of NAME=[a,b]; NAME=a is a list of one. BadInput for an item that stands there twice."""
    from ghar.errors import BadInput

    given = next((text.partition("=")[2] for text in reversed(arguments) if text.startswith(f"{name}=")), "")
    items = [item.strip() for item in given.strip("[]").split(",") if item.strip()]
    if twice := [item for item in dict.fromkeys(items) if items.count(item) > 1]:
        raise BadInput(f"{name}=[{','.join(items)}] names {twice[0]} twice: leave one out.")
    return items


def _outside(text: str, systems: Sequence[str]) -> ExternalModel:
    """A model from outside. BadInput for anything but NAME:FILE, and for the name of a system."""
    from ghar.errors import BadInput
    from ghar.trainers.evaluation.predictions import ExternalModel

    name, colon, file = text.partition(":")
    if not (name and colon and file) or name in systems or not name.replace("_", "").replace("-", "").isalnum():
        raise BadInput(f"predictions has {text!r}: write NAME:FILE.parquet, with a name of letters that no system has.")
    return ExternalModel(name, Path(file))


def _folder(shared: Sequence[str]) -> Path | None:
    given = next((text.partition("=")[2] for text in reversed(shared) if text.startswith("run_dir=")), None)
    return None if given is None else Path(given)


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import plainly

    plainly(lambda: main(sys.argv[1:]), __doc__ or "")
