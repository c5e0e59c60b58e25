"""Print and save a data set's statistics: python launch/prepare_data.py data=mimic4 data.root=/path/to/mimic-iv

Leaves dataset.json and dataset.txt in run_dir: patients, visits, codes per visit, the labels of every task, what the
reader dropped or repaired, of the configured task (protocol=, system=, task=) the drawn samples by split and, with
data.codes=FOLDER, how codes map to CCS and ATC. With kg.path=FILE also codes.csv: what each code is shown as, and the
node it is linked to for retrieval. Of questions and texts, which are of no patients, the splits alone.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from ghar.config import Config
    from ghar.data.cohort import Cohort
    from ghar.envs.records import Records


def run(config: Config) -> None:
    import json
    import os

    from ghar.data.readers.database import with_tables
    from ghar.disk import make_folder
    from ghar.envs.records import Records

    config = replace(config, data=with_tables(config.data))
    table, whole = _drawn(Records(config)) if Records(config).texts_alone else _statistics(config)
    print(whole)
    folder = Path(config.run_dir)
    make_folder(folder)
    contents = {"dataset.json": json.dumps(table, indent=1), "dataset.txt": whole + "\n"}
    if config.kg.path is not None:
        contents["codes.csv"] = Records(config).linked_codes().write_csv()
    for name, content in contents.items():
        half = folder / f".{name}.tmp"
        half.write_text(content)
        os.replace(half, folder / name)
    print(f"Kept in {folder}: {', '.join(contents)}", file=sys.stderr)


def _statistics(config: Config) -> tuple[dict[str, Any], str]:
    """Count patients, codes, labels and splits, as plain values and for reading."""
    from ghar.data.mapping import map_source
    from ghar.data.statistics import dataset_table, text
    from ghar.envs.records import Records
    from ghar.envs.worlds.source import read_source
    from ghar.errors import BadInput

    cohort = read_source(config.data)
    tasks, refused = _tasks(cohort, config)
    table: dict[str, Any] = dataset_table(cohort, tasks)
    labels, more = _labels(cohort, config)
    table["tasks"] |= labels
    table["credentialed"] = cohort.credentialed
    lines = [text(table), *refused, *more]
    try:
        drawn, split_lines = _drawn(Records(config, cohort))
        table |= drawn
        lines.append(split_lines)
    except BadInput as error:
        lines.append(f"  no split: {error}")
    if config.data.codes is not None:
        report, mapped = map_source(cohort, Path(config.data.codes), config.data.root)
        rules, unmapped = report.by_rule.to_dicts(), report.unmapped.to_dicts()
        table["mapping"] = {"by_rule": rules, "unmapped": unmapped, "keys": dict(report.keys)}
        table["mapped"] = {name: dataset_table(other, {})["codes"] for name, other in mapped.items()}
        lines += ["", "Mapping to CCS and ATC level 3", report.text(), ""]
        for name, codes in table["mapped"].items():
            sizes = ", ".join(f"{row['different']:,} {kind}" for kind, row in codes.items())
            lines.append(f"{name}: {sizes}")
    return table, "\n".join(lines)


def _drawn(records: Records) -> tuple[dict[str, Any], str]:
    """The configured task's samples by split, as plain values and for reading."""
    from ghar.data.statistics import split_table, split_text
    from ghar.envs.system import drawn_samples

    task, splits = drawn_samples(records)
    sizes = split_table(task, splits)
    return {"drawn": {"task": task.name, "splits": sizes}}, split_text(task, sizes)


def _tasks(cohort: Cohort, config: Config) -> tuple[dict[str, Any], list[str]]:
    """GHAR's and KARE's tasks that have samples, and for each of the others the reason why it has none."""
    from ghar.data.tasks.visits import visit_samples
    from ghar.errors import BadInput
    from ghar.extensions import is_module

    tasks, refused = {}, []
    own = [config.task.name] if is_module(config.task.name) else []
    for name in ("los", "read", "dec", "kare_mortality", "kare_readmission", *own):
        try:
            task, samples = visit_samples(cohort, replace(config.task, name=name), config.data.leakage)
            tasks[name] = task, samples
        except BadInput as error:
            refused.append(f"  {error}")
    return tasks, refused


def _labels(cohort: Cohort, config: Config) -> tuple[dict[str, Any], list[str]]:
    """GraphWalker's and EHRSHOT's tasks from their labels, without building what a model is shown."""
    from ghar.data.statistics import label_row
    from ghar.data.tasks.ehrshot import TASKS as EHRSHOT
    from ghar.data.tasks.ehrshot import EhrshotTask, ehrshot_labels
    from ghar.data.tasks.series import TASKS as SERIES
    from ghar.data.tasks.series import Stay, series_labels
    from ghar.errors import BadInput

    leakage, rows, refused = config.data.leakage, {}, []
    stays: dict[Stay, str] = {"visit": "", "icu": " system.stay=icu"}
    for stay, suffix in stays.items():
        try:
            for name, about in SERIES.items():
                rows[f"series_{name}{suffix}"] = label_row(about, series_labels(cohort, name, leakage, stay=stay))
        except BadInput as error:
            refused.append(f"  {error}")
    try:
        rows |= {name: label_row(EHRSHOT[name], *ehrshot_labels(cohort, name)) for name in get_args(EhrshotTask)}
    except BadInput as error:
        refused.append(f"  {error}")
    return rows, refused


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import launch

    launch(run)
