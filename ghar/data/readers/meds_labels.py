"""What may come beside a MEDS folder's data: labels of tasks, and a split of the patients."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ghar.config import DataConfig
from ghar.data.readers.meds_files import TIME, scan, schema_of
from ghar.errors import BadInput

LABELS = {
    "boolean_value": pl.Boolean(),
    "integer_value": pl.Int64(),
    "float_value": pl.Float32(),
    "categorical_value": pl.String(),
}


def beside_data(data: DataConfig, name: str) -> Path | None:
    """labels/NAME.parquet, or the folder labels/NAME, of a MEDS folder; None where neither is, and for other data."""
    if data.name != "meds" or data.root is None:
        return None
    folder = Path(data.root) / "labels"
    return next((path for path in (folder / f"{name}.parquet", folder / name) if path.exists()), None)


def read_labels(path: Path) -> pl.DataFrame:
    """Labels of a task (a Parquet file, or a folder of them): subject_id, prediction_time and the values they have.

    Value columns (boolean_value, integer_value, float_value, categorical_value) without any value are left out; data
    up to and including prediction_time may be used. Sorted by subject and time. Raises BadInput for an absent or
    unsuitable column, a missing subject or time, a row without any value, and no row at all.
    """
    path = Path(path)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise BadInput(f"There is no label file {path}: name a MEDS label Parquet file, or a folder of them.")
    keys = {"subject_id": pl.Int64(), "prediction_time": TIME}
    for file in files:
        _check_values(file)
    parts = [scan(file, keys, LABELS).collect() for file in files]
    labels = pl.concat(parts).sort("subject_id", "prediction_time", maintain_order=True)
    if labels.is_empty():
        raise BadInput(f"{path} has no rows, so there is no label: see what wrote it.")
    bad = labels.filter(
        pl.any_horizontal(pl.col(list(keys)).is_null()) | pl.all_horizontal(pl.col(list(LABELS)).is_null())
    )
    if bad.height:
        raise BadInput(f"{path} has {bad.height} rows without subject, time or value: correct the label file.")
    return labels.drop(name for name in LABELS if labels[name].null_count() == labels.height)


def _check_values(file: Path) -> None:
    """Refuse a file without any of MEDS's value columns."""
    columns = schema_of(file)
    if not any(name in columns for name in LABELS):
        raise BadInput(
            f"{file} has no column of labels (it has {', '.join(columns)}): name that column {', '.join(LABELS)}, by "
            "its type."
        )


def once_each(labels: pl.DataFrame, path: Path) -> pl.DataFrame:
    """The labels without rows that repeat another. BadInput for different labels of one patient at one time: a
    prediction can be right for one of them alone.

    labels: subject_id, prediction_time, label. path: of the file, for the sentence.
    """
    once = labels.unique(maintain_order=True)
    keys = ["subject_id", "prediction_time"]
    twice = once.filter(pl.struct(keys).is_duplicated())
    if twice.height:
        subject, at = twice.select(keys).row(0)
        count = twice.select(keys).n_unique()
        raise BadInput(
            f"{path} has different labels of one patient at one time, {count} times (patient {subject} at {at}): leave "
            "one of them."
        )
    return once


def read_subject_splits(root: Path) -> dict[int, str]:
    """The split of each subject ("train", "tuning", "held_out", ...) that comes with the folder; BadInput if none."""
    path = Path(root) / "metadata" / "subject_splits.parquet"
    if not path.exists():
        raise BadInput(f"{path} does not exist: this data set comes without a split, so make one by patient.")
    frame = scan(path, {"subject_id": pl.Int64(), "split": pl.String()}, {}).collect()
    if frame["subject_id"].is_duplicated().any() or frame.null_count().sum_horizontal().item():
        raise BadInput(f"{path} names a subject twice, or without a split: correct that file.")
    return dict(frame.rows())
