"""Whether a cell was made as the paper made the numbers that are printed beside it, and if not, in what they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from ghar.config import Config
from ghar.data.tasks.prevalence import beyond_the_paper
from ghar.sections import leaves
from ghar.trainers.runs.resume import plain
from ghar.trainers.study.schema import Cell, Study, StudyRow

CLOSED = "@"  # model@http://host/v1: the model stands before the address
MODEL = "model.path"
FEWEST, MOST = 0.5, 2.0  # of the paper's patients, whose exact draw no paper gives
# sections and keys that say where a cell is played, how fast, and where its files are, and not what it is
PLACES = ("deepspeed.", "engine.", "logger.", "privacy.", "ray.")
PLACE_KEYS = {
    "data.cache", "data.codes", "data.root", "data.vocabulary", "env.in_flight", "eval.bootstrap", "keep_last",
    "kg.path", "model.dtype", "plan", "ray", "resume", "retriever.service", "retriever.workers", "run_dir",
    "system.abstracts", "system.notes", "threads", "trainer.rl.micro_tokens", "trainer.rl.save_every",
    "trainer.warmup.micro_batch",
}  # fmt: skip
# of these sections, but of what is sampled or learned
PLAYED_BY = {"engine.temperature", "engine.importance_cap", "ray.max_staleness"}


def paper_keys(study: Study, cell: Cell, row: StudyRow) -> dict[str, Any]:
    """Key -> the value under which the paper has this row: the study's, its part's, its run's and the row's own."""
    paper = study.paper
    if paper is None:
        return {}
    keys = {"data.name": cell.cohort, **paper.keys}
    for part in paper.where:
        keys |= {**part.keys, **part.closed} if part.holds(cell) else {}
    return {**keys, **cell.run.paper, **row.paper}


def differences(
    study: Study,
    cell: Cell,
    row: StudyRow,
    config: Config,
    samples: pl.DataFrame,
    labels: Sequence[str],
    shipped: Config | None = None,
) -> list[str]:
    """In what a cell differs from the paper, a phrase each; empty where a published number may stand beside it.

    samples: of the cell. The paper's tables must allow its patients, and the share of positives (the second of two
    labels) among its test samples, which those tables are of. shipped: see `key_differences`.
    """
    return [*key_differences(study, cell, row, config, shipped), *_of_samples(study, cell, config, samples, labels)]


def key_differences(
    study: Study, cell: Cell, row: StudyRow, config: Config, shipped: Config | None = None
) -> list[str]:
    """The keys alone, for cells that are composed and not played.

    shipped: the cell without what the command line changed of it. Any key that was changed is a difference, whether
    the paper names it or not; None: nothing was changed.
    """
    here, of_data = leaves(plain(config)), ("protocol.", "data.", "task.")  # all that a model from elsewhere shares
    theirs = paper_keys(study, cell, row)
    differ = {key: ("paper", value) for key, value in theirs.items() if not _same(here.get(key), value)}
    there = here if shipped is None else leaves(plain(shipped))
    differ |= {
        key: ("study", there.get(key))
        for key in sorted(here.keys() | there.keys())
        if here.get(key) != there.get(key) and key not in theirs and not names_a_place(key)
    }
    unopened = ["these are validation samples, the paper's of its test"] if config.task.played == "valid" else []
    return unopened + [
        f"{key} is {_format_value(here.get(key))}, the {whose}'s {_format_value(value)}"
        for key, (whose, value) in differ.items()
        if cell.run.predictions is None or key.startswith(of_data)
    ]


def names_a_place(override: str) -> bool:
    """Whether a key, or an override of the command line, leaves a cell what it is."""
    key = override.partition("=")[0].lstrip("+~")
    return key in PLACE_KEYS or (key.startswith(PLACES) and key not in PLAYED_BY)


def model_of(config: Config) -> str | None:
    """The name of the model, without the address of its server; None where it has none."""
    path = leaves(plain(config)).get(MODEL)
    return None if path is None else str(path).partition(CLOSED)[0]


def published_rows(entry: Mapping[str, Any]) -> dict[str, set[str]]:
    """Row -> columns for which an entry of conf/study/_published.yaml has a number, of any model.

    cells: numbers of the model that the study's paper block names; models: model.path -> numbers of another one.
    """
    rows: dict[str, set[str]] = {}
    for cells in (entry.get("cells") or {}, *(entry.get("models") or {}).values()):
        for row, columns in cells.items():
            rows.setdefault(row, set()).update(columns)
    return rows


def published_number(
    entry: Mapping[str, Any], row: str, column: str, model: str | None, differs: Sequence[str]
) -> tuple[float | None, list[str]]:
    """The number for the model that played a cell, and in what the cell differs from the one behind that number.

    differs: of the cell, from the study's paper block. A number that is withheld may be None. An entry's models_differ
    has, of some models, what the paper does with them and no key here does.
    """
    models, own = entry.get("models") or {}, (entry.get("models_differ") or {}).get(model)
    of_others = [phrase for phrase in differs if not phrase.startswith(f"{MODEL} is ")]
    if model is not None and column in models.get(model, {}).get(row, {}):
        return models[model][row][column], [*of_others, *([own] if own else [])]
    if column in (entry.get("cells") or {}).get(row, {}):
        return entry["cells"][row][column], list(differs)
    theirs = " or ".join(name for name, cells in models.items() if column in cells.get(row, {}))
    return None, [*of_others, f"{MODEL} is {_format_value(model)}, the paper's {theirs}"]


def _of_samples(
    study: Study, cell: Cell, config: Config, samples: pl.DataFrame, labels: Sequence[str]
) -> Iterator[str]:
    theirs = study.paper.patients_of(cell) if study.paper is not None else None
    ours = samples["subject_id"].n_unique()
    if theirs is not None and not FEWEST * theirs <= ours <= MOST * theirs:
        yield f"{ours:,} patients, the paper has {theirs:,}"
    if len(labels) == 2:
        tested = samples.filter(pl.col("split") == "test")["label"]
        positive = [int(label == labels[1]) for label in tested]
        if (far := beyond_the_paper(config.protocol.name, config.task.name, config.data.name, positive)) is not None:
            yield far


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, str) and isinstance(theirs, str):
        return ours.partition(CLOSED)[0] == theirs
    return ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool)


def _format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "not set" if value is None else str(value)
