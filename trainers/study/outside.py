"""Models from elsewhere as rows of a study: their answers to its test samples, a file a cell, of any number of labels.

A file is <folder>/COHORT-TASK-seedN.parquet, or COHORT-TASK.parquet for all seeds; .csv does as well. Columns:
sample_id; prediction, one of the task's labels, empty for none; probability_LABEL for each label, or none of them. The
samples to train on, and their splits, are in the study's folder, samples/KEY.parquet. Of clinical texts the columns are
sample_id and summary, empty for none. Of DischargeQA a prediction is a set of letters, as A or AC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import polars as pl

from ghar.data.tasks.summary_files import WRITTEN, SummarisedText
from ghar.envs.summaries import LIKENESS, likeness
from ghar.errors import BadInput
from ghar.metrics.scores import set_scores
from ghar.trainers.study.predictions import sha256
from ghar.trainers.study.schema import Cell, Study, StudyRow, StudyRun, StudyTable

VARIANT = "predictions"  # the one that such a row plays
ENDS = (".parquet", ".csv")
COLUMN = "probability_"
LETTERS = ascii_uppercase + ascii_lowercase  # of options
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # of a file, too


def with_outside(study: Study, models: Mapping[str, str], published: Mapping[str, Any]) -> Study:
    """`study` with a run and a row for each model, name -> folder of its files.

    The rows stand in the study's first table, in those of all rows, and where a row of that name is published.
    BadInput for a name that is taken.
    """
    taken = {row.name for row in study.rows} | {run.name for run in study.runs}
    for name in models:
        if name in taken or not NAME.fullmatch(name):
            raise BadInput(f"predictions={name}:...: choose another name, of letters, digits and - or _, not one of "
                           f"{', '.join(sorted(taken))}.")  # fmt: skip
    system = study.run(study.row(study.main).run).system  # whose samples they are, where a task is a system's own
    runs = [StudyRun(name, system, train=False, predictions=folder) for name, folder in models.items()]
    rows = [StudyRow(name, name, name, VARIANT) for name in models]
    tables = [_with_rows(table, number == 0, models, published) for number, table in enumerate(study.tables)]
    return replace(study, runs=(*study.runs, *runs), rows=(*study.rows, *rows), tables=tuple(tables))


def _with_rows(table: StudyTable, first: bool, models: Mapping[str, str], published: Mapping[str, Any]) -> StudyTable:
    beside = {row for key in table.published.values() for row in published[key].get("cells") or ()}
    more = [name for name in models if first or name in beside]
    return replace(table, rows=(*table.rows, *more)) if table.rows else table


def file_of(cell: Cell) -> Path:
    """The file of a cell's predictions. BadInput, naming it, where there is none."""
    folder = Path(cell.run.predictions or "")
    names = [f"{cell.cohort}-{cell.task}-seed{cell.seed}", f"{cell.cohort}-{cell.task}"]
    candidates = [folder / f"{name}{end}" for name in names for end in ENDS]
    there = next((path for path in candidates if path.is_file()), None)
    if there is None:
        raise BadInput(f"there is no {candidates[0].name} in {folder}, nor {candidates[2].name} for all seeds")
    return there


def changed(cell: Cell, about: Mapping[str, Any]) -> bool:
    """Whether the file that a finished cell was read from is another one now. about: its done.json."""
    try:
        return cell.run.predictions is not None and sha256(file_of(cell)) != about.get("source")
    except BadInput:
        return False  # what was read stays


def read_outside(path: Path, labels: Sequence[str], samples: pl.DataFrame) -> pl.DataFrame:
    """Predictions by sample id, with the patient and the label that the study has for each.

    labels: of the task, in the order of the probabilities that are returned. BadInput for columns that are missing,
    an answer that is no label, and probabilities that are not of all labels or do not add up to 1.
    """
    frame = _table(path)
    wanted = [f"{COLUMN}{label}" for label in labels]
    has = [name for name in wanted if name in frame.columns]
    if "sample_id" not in frame.columns or not ("prediction" in frame.columns or has):
        raise BadInput(f"{path} needs columns sample_id and prediction; it has {', '.join(frame.columns)}.")
    if has and len(has) < len(wanted):
        missing = next(name for name in wanted if name not in has)
        raise BadInput(f"{path} has no column {missing}: give the probability of every label, or of none.")
    frame = frame.with_columns(pl.col("sample_id").cast(pl.String))
    for name in has:
        _check_numbers(path, frame, name)
    frame = frame.with_columns(*(_number(name) for name in has))
    shares = pl.concat_list(has) if has else pl.lit(None, pl.List(pl.Float64))
    frame = frame.with_columns(probabilities=pl.when(pl.all_horizontal(pl.col(has).is_not_null())).then(shares)
                               if has else shares)  # fmt: skip
    if "prediction" not in frame.columns:
        place = pl.col("probabilities").list.arg_max()
        frame = frame.with_columns(prediction=place.replace_strict(dict(enumerate(labels)), return_dtype=pl.String))
    frame = frame.with_columns(pl.col("prediction").cast(pl.String).replace("", None))
    _check(path, frame, labels)
    test = samples.select("sample_id", "subject_id", "label")
    frame = frame.select("sample_id", "prediction", "probabilities").join(test, on="sample_id", how="left")
    return frame.with_columns(correct=(pl.col("prediction") == pl.col("label")).fill_null(False))


def read_summaries(path: Path, texts: Mapping[str, SummarisedText], samples: pl.DataFrame) -> pl.DataFrame:
    """Summaries by sample id, each as near to the reference as it is; the words themselves are not kept.

    texts: those of the test, by sample id. BadInput for columns that are missing.
    """
    frame = _table(path)
    if not {"sample_id", "summary"} <= set(frame.columns):
        raise BadInput(f"{path} needs columns sample_id and summary; it has {', '.join(frame.columns)}.")
    given = frame.select(pl.col("sample_id", "summary").cast(pl.String)).fill_null("").rows()
    rows = [
        {"sample_id": name, "prediction": WRITTEN if text.strip() else None}
        | (likeness(text.strip(), texts[name]) if name in texts else {})  # `check` refuses texts of other splits
        for name, text in given
    ]
    own = pl.DataFrame(rows, {"sample_id": pl.String, "prediction": pl.String, **dict.fromkeys(LIKENESS, pl.Float64)})
    own = own.join(samples.select("sample_id", "subject_id", "label"), on="sample_id", how="left")
    correct = (pl.col("prediction") == pl.col("label")).fill_null(False)
    return own.with_columns(correct=correct, probabilities=pl.lit(None, pl.List(pl.Float64)))


def read_sets(path: Path, options: Mapping[str, int], samples: pl.DataFrame) -> pl.DataFrame:
    """Sets of options by sample id, as letters in whatever order ("AC", "c, a"), each with its F1.

    options: how many each question has, by sample id. BadInput for columns that are missing and for a prediction that
    is no set of its question's letters.
    """
    frame = _table(path)
    if not {"sample_id", "prediction"} <= set(frame.columns):
        raise BadInput(f"{path} needs columns sample_id and prediction; it has {', '.join(frame.columns)}.")
    given = frame.select(pl.col("sample_id", "prediction").cast(pl.String)).rows()
    sets = [_in_order(path, name, chosen or "", options.get(name, len(LETTERS))) for name, chosen in given]
    own = frame.select(pl.col("sample_id").cast(pl.String), prediction=pl.Series(sets, dtype=pl.String))
    own = own.join(samples.select("sample_id", "subject_id", "label"), on="sample_id", how="left")
    scores = [
        None if label is None else set_scores(_bits(label), _bits(chosen or ""))["f1"]  # `check` refuses other samples
        for chosen, label in own.select("prediction", "label").rows()
    ]
    correct = (pl.col("prediction") == pl.col("label")).fill_null(False)
    silent = pl.lit(None, pl.List(pl.Float64))
    return own.with_columns(correct=correct, probabilities=silent, options_f1=pl.Series(scores, dtype=pl.Float64))


def _in_order(path: Path, sample_id: str, prediction: str, options: int) -> str | None:
    """The letters of a set as samples have them; None for an empty one. Small ones are options where there are many."""
    chosen = re.sub(r"[\s,]", "", prediction)
    chosen = chosen.upper() if options <= len(ascii_uppercase) else chosen
    if not set(chosen) <= set(LETTERS[:options]) or len(set(chosen)) < len(chosen):
        what = f"sample {sample_id} has the prediction {prediction!r:.40}"
        raise BadInput(f"{path}: {what}, which is no set of its {options} options: write their letters, as AC.")
    return "".join(sorted(chosen)) or None


def _bits(chosen: str) -> int:
    return sum(1 << LETTERS.index(letter) for letter in chosen)


def _table(path: Path) -> pl.DataFrame:
    try:
        if path.suffix == ".csv":
            return pl.read_csv(path, infer_schema=False, glob=False)
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BadInput(f"{path} cannot be read ({' '.join(str(error).split())[:120]}): write it again.") from None


def _number(name: str) -> pl.Expr:
    return pl.col(name).cast(pl.Float64, strict=False)


def _check_numbers(path: Path, frame: pl.DataFrame, name: str) -> None:
    """BadInput for a text that is no number; nothing at all is a missing probability."""
    if frame.schema[name] == pl.String:
        wrong = frame.filter((pl.col(name).str.strip_chars() != "") & frame.select(_number(name))[name].is_null())
        if wrong.height:
            what = f"{name} of sample {wrong['sample_id'][0]} is {wrong[name][0]!r:.40}"
            raise BadInput(f"{path}: {what}, which is no number: write it with a decimal point, or leave it empty.")


def _check(path: Path, frame: pl.DataFrame, labels: Sequence[str]) -> None:
    strange = frame.filter(pl.col("prediction").is_not_null() & ~pl.col("prediction").is_in(list(labels)))
    if strange.height:
        row = strange.row(0, named=True)
        what = f"sample {row['sample_id']} has the prediction {row['prediction']!r:.40}"
        raise BadInput(f"{path}: {what}, which is none of {', '.join(labels)}.")
    rows = frame.filter(pl.col("probabilities").is_not_null())
    total, least = pl.col("probabilities").list.sum(), pl.col("probabilities").list.min()
    if (nan := rows.filter(total.is_nan())).height:
        raise BadInput(f"{path}: a probability of sample {nan['sample_id'][0]} is not a number: correct it.")
    wrong = rows.filter(((total - 1).abs() > 1e-3) | (least < 0))
    if wrong.height:
        raise BadInput(f"{path}: the probabilities of sample {wrong['sample_id'][0]} do not add up to 1: correct them.")
