"""Every table and figure of a study: what is missing is played, one cell a job, then all is drawn with intervals.

python launch/study.py study=ghar scale=rules              # fixed rules, minutes: that everything runs
python launch/study.py study=ghar                          # the small model on generated patients
python launch/study.py study=ghar plan=true                # what it would take
python launch/study.py study=ghar scale=full 'cohorts=[mimic3:/data/iii,mimic4:/data/iv]' kg.path=kg.csv
python launch/study.py verify runs/study_ghar_demo         # recompute every number from the predictions alone

study: a file of conf/study, or a YAML file of your own. scale: rules, tiny, demo (default) or full. folder: where it is
kept. seeds=[0,1], tasks=[los], cohorts=[NAME:FOLDER]: in place of the study's own, NAME as in data=NAME, or the name of
a cohort of the study's own.
predictions=[NAME:FOLDER]: rows of models from elsewhere, by files of their predictions (docs/studies.md). on: here,
torchrun or ray, with processes=N. Every other key is every cell's, like data.cache=... or threads=1. A study that was
stopped goes on by the same command, and by one with more seeds, tasks, cohorts or predictions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ghar.trainers.study.jobs import StudyJobs

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ROOT / "conf" / "study"
KEYS = ("study", "scale", "folder", "seeds", "tasks", "cohorts", "predictions", "on", "processes", "plan")


def studies() -> list[str]:
    """Names of the studies that are shipped."""
    return sorted(path.stem for path in STUDIES.glob("*.yaml") if not path.stem.startswith("_"))


def main(arguments: Sequence[str]) -> None:
    """Read the command line, then plan, play or verify. Raises BadInput."""
    if arguments[:1] == ["verify"]:
        check(arguments[1:])
        return
    shop, planned = workshop(arguments)
    from ghar.trainers.study.jobs import check_cells

    check_cells(shop)
    if planned:
        from ghar.trainers.study.plan import plan_study

        plan_study(shop, at_once)
        return
    from ghar.errors import BadInput
    from ghar.trainers.study.run import run_study
    from ghar.trainers.study.schema import cells_of

    for run in shop.study.runs:
        if run.predictions is not None and not Path(run.predictions).is_dir():
            raise BadInput(f"predictions={run.name}:{run.predictions} is no folder: it holds COHORT-TASK.parquet.")
    numbers = run_study(shop, at_once)
    if not any(map(shop.folder.done, cells_of(shop.study))):
        first = cells_of(shop.study)[0]
        raise BadInput(f"No cell of study={shop.study.name} was played. {first.id}: {shop.folder.reason(first)}")
    count = sum("value" in cell for table in numbers.values() for row in table["cells"].values()
                for column in row.values() for cell in column.values())  # fmt: skip
    print(f"{count} numbers in {len(numbers)} tables: {shop.folder.path / 'report.html'}")


def at_once(text: str) -> None:
    """Print a line that a log shows while the study goes on."""
    print(text, flush=True)


def check(paths: Sequence[str]) -> None:
    """Verify folders; BadInput with all that does not agree."""
    from ghar.errors import BadInput
    from ghar.trainers.study.verify import verify

    if not paths:
        raise BadInput("verify what? Write launch/study.py verify FOLDER.")
    for path in paths:
        report = verify(Path(path))
        print(f"{path}: {report.numbers} numbers recomputed from the predictions, the largest difference is "
              f"{report.largest:.1e}; {report.by_sklearn} of them by scikit-learn as well.")  # fmt: skip
        if report.wrong:
            raise BadInput("\n".join(report.wrong[:20]))


def workshop(arguments: Sequence[str]) -> tuple[StudyJobs, bool]:
    """What the command line asks for, and whether it is only to be planned."""
    from ghar.errors import BadInput
    from ghar.launch.entry import load
    from ghar.trainers.study.outside import with_outside
    from ghar.trainers.study.schema import scales_of, study_of

    for text in arguments:
        if "=" not in text:
            raise BadInput(f"{text} is neither key=value nor verify: see --help.")
    given = {text.partition("=")[0]: text.partition("=")[2] for text in arguments if text.partition("=")[0] in KEYS}
    more = tuple(text for text in arguments if text.partition("=")[0] not in KEYS)
    name, values = _study(given.get("study"))
    scales = scales_of(_yaml(STUDIES / "_scales.yaml"))
    scale = scales.get(given.get("scale", "demo"))
    if scale is None:
        raise BadInput(f"There is no scale={given['scale']}. Choices: {', '.join(scales)}.")
    study = study_of(name, values, scale, _changes(given, values))
    on: Any = given.get("on", "here")
    if on not in ("here", "torchrun", "ray"):
        raise BadInput(f"on={on} is no place to run: choose here, torchrun or ray.")
    if given.get("plan", "false") not in ("true", "false"):
        raise BadInput(f"plan={given['plan']}: a study is planned on this machine: write plan=true.")
    processes = given.get("processes", "1")
    if not processes.isdecimal() or not int(processes):
        raise BadInput(f"processes={processes} is no number of processes: write 1 or more.")
    from ghar.trainers.study.folder import StudyFolder
    from ghar.trainers.study.jobs import StudyJobs  # heavy, so only once the command line is known to be good

    folder = StudyFolder(Path(given.get("folder", f"runs/study_{name}_{scale.name}")))
    published = _yaml(STUDIES / "_published.yaml")
    asked = [key for table in study.tables for key in table.published.values()]
    if unknown := [key for key in asked if key not in published]:
        raise BadInput(f"study={name}: conf/study/_published.yaml has no {unknown[0]}.")
    study = with_outside(study, _models(given.get("predictions", "")), published)
    shop = StudyJobs(study, scale, folder, load, more, on, int(processes),
                    published={key: published[key] for key in asked})  # fmt: skip
    _check_choices(shop)
    _check_system_keys(shop)
    return shop, given.get("plan", "false") == "true"


def _check_choices(shop: StudyJobs) -> None:
    """BadInput for a task, cohort, group or key that there is not."""
    from ghar.launch.entry import check_names

    tasks = dict.fromkeys(shop.study.tasks)
    cohorts = dict.fromkeys(text for overrides in shop.study.cohorts.values() for text in overrides)
    check_names([*(f"task={task}" for task in tasks), *cohorts, *shop.more])


def _check_system_keys(shop: StudyJobs) -> None:
    """BadInput for a key of the command line that no system of the study has: one is enough."""
    from ghar.configure import nearest
    from ghar.errors import BadInput
    from ghar.trainers.study.jobs import system_key

    for key in [key for key in map(system_key, shop.more) if key is not None]:
        every = {own for run in shop.study.runs for own in shop.system_keys(run.system)}
        if key not in every:
            near = nearest(key, sorted(every))
            raise BadInput(f"No system of study={shop.study.name} has a key system.{key}"
                           + (f": did you mean system.{near}?" if near else "."))  # fmt: skip


def _study(given: str | None) -> tuple[str, Any]:
    """Name and values of a study. BadInput with the choices for one that does not exist."""
    from ghar.configure import nearest
    from ghar.errors import BadInput

    if given is None:
        raise BadInput(f"study is missing: write study=NAME. Choices: {', '.join(studies())}.")
    path = Path(given) if given.endswith(".yaml") else STUDIES / f"{given}.yaml"
    if not path.is_file() or path.stem.startswith("_"):
        near = nearest(given, studies())
        raise BadInput(f"There is no study={given}. Choices: {', '.join(studies())}."
                       + (f" Did you mean {near}?" if near else ""))  # fmt: skip
    return path.stem, _yaml(path)


def _yaml(path: Path) -> Any:
    import yaml

    from ghar.errors import BadInput
    from ghar.yaml_text import parse_yaml

    try:
        return parse_yaml(path.read_text())
    except yaml.YAMLError as error:
        raise BadInput(f"{path} is no YAML: {' '.join(str(error).split())}") from None


def _changes(given: Mapping[str, str], values: Any) -> dict[str, Any]:
    """Fields of the study that the command line names. values: what the study's file holds."""
    from ghar.errors import BadInput

    changes: dict[str, Any] = {}
    if "seeds" in given:
        seeds = _list(given["seeds"])
        if not seeds or not all(seed.isdecimal() for seed in seeds):
            raise BadInput(f"seeds={given['seeds']} are no seeds: write seeds=[0,1,2].")
        changes["seeds"] = tuple(int(seed) for seed in seeds)
    if "tasks" in given:
        changes["tasks"] = tuple(_list(given["tasks"]))
    if "cohorts" in given:
        cohorts = values.get("cohorts") if isinstance(values, dict) else None
        own = cohorts if isinstance(cohorts, dict) else {}  # anything else is a fault of the file, which study_of names
        changes["cohorts"] = dict((text, tuple(own[text])) if isinstance(own.get(text), list) else _cohort(text)
                                  for text in _list(given["cohorts"]))  # fmt: skip
    return changes


def _cohort(text: str) -> tuple[str, tuple[str, ...]]:
    """NAME:FOLDER, or NAME alone for generated patients."""
    from ghar.errors import BadInput

    name, colon, folder = text.partition(":")
    if not name or (colon and not folder):
        raise BadInput(f"cohorts has {text!r}: write NAME:FOLDER, as mimic4:/data/mimic-iv, or demo.")
    return name, (f"data={name}", *((f"data.root={folder}",) if folder else ()))


def _models(text: str) -> dict[str, str]:
    """Name -> folder of predictions=[NAME:FOLDER,...]."""
    from ghar.errors import BadInput

    models: dict[str, str] = {}
    for item in _list(text):
        name, colon, folder = item.partition(":")
        if not (name and colon and folder):
            raise BadInput(f"predictions has {item!r}: write NAME:FOLDER, where the folder has COHORT-TASK.parquet.")
        models[name] = folder
    return models


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.strip("[]").split(",") if item.strip()]


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(ROOT)
    from ghar.launch.entry import plainly

    plainly(lambda: main(sys.argv[1:]), __doc__ or "")
