"""From a cell's run folder to its predictions: one Parquet file a row of tables, all that any number is made from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ghar.data.groups import KINDS
from ghar.envs.summaries import LIKENESS
from ghar.errors import BadInput
from ghar.metrics.rows import calls_of, tokens_of
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.study.samples import whole_parquet
from ghar.trainers.study.translate import Translation

SCHEMA: Mapping[str, Any] = {
    "sample_id": pl.String, "subject_id": pl.String, "label": pl.String, "prediction": pl.String,
    "as_replied": pl.String, "probabilities": pl.List(pl.Float64), "threshold": pl.Float64, "correct": pl.Boolean,
    "reward": pl.Float64, "retrieved": pl.Boolean, "needs": pl.Boolean, "look_ups": pl.Int64, "rounds": pl.Float64,
    "calls": pl.Float64, "tokens": pl.Float64, "retrievals": pl.Float64, "seconds": pl.Float64,
    "options_f1": pl.Float64, **dict.fromkeys(LIKENESS, pl.Float64), "entropy_drop": pl.Float64,
}  # fmt: skip


def harvest(
    run: Path,
    variant: str,
    samples: pl.DataFrame,
    target: Path,
    translation: Translation | None = None,
    needed: Mapping[str, int] | None = None,
) -> pl.DataFrame:
    """Write `target` from the episodes of a variant, with the groups of each sample, and return it.

    needed: look-ups that a sample's visit needs, of a generated world.

    BadInput where the episodes are not exactly those of the test samples: of other patients or another split, some
    missing (a half-written cell), some twice.
    """
    rows = list(RunFolder(run).episodes(variant))
    frame = pl.DataFrame([_row(row, translation) for row in rows], schema=SCHEMA, orient="row")
    return keep(frame, samples, target, f"{run.name}, {variant}", needed)


def keep(
    frame: pl.DataFrame, samples: pl.DataFrame, target: Path, where: str, needed: Mapping[str, int] | None = None
) -> pl.DataFrame:
    """Write `target` from predictions in columns of `SCHEMA`, with the groups of each sample. BadInput as `check`;
    where: whose they are; needed: as in `harvest`."""
    check(frame, samples, where)
    if needed:
        frame = frame.with_columns(look_ups=pl.col("sample_id").replace_strict(needed, return_dtype=pl.Int64))
    groups = samples.select("sample_id", *KINDS)
    frame = frame.join(groups, on="sample_id", how="left", maintain_order="left")
    whole_parquet(frame, target)
    return frame


def check(frame: pl.DataFrame, samples: pl.DataFrame, where: str) -> None:
    """BadInput unless the predictions are of the test samples, each once, of the same patients and labels."""
    if frame["sample_id"].is_duplicated().any():
        twice = frame.filter(pl.col("sample_id").is_duplicated())["sample_id"][0]
        raise BadInput(f"{where}: sample {twice} has two predictions: keep one of each.")
    test = samples.filter(pl.col("split") == "test")
    strange = frame.join(test, on="sample_id", how="anti")
    if strange.height:
        others = strange.join(samples, on="sample_id", how="semi")
        first = (others if others.height else strange)["sample_id"][0]
        of = "training or validation samples" if others.height else "samples that this cohort and split have not"
        raise BadInput(
            f"{where}: {strange.height} predictions are of {of}, {first} the first: leave them out, or play the cell "
            "on this split."
        )
    if test.height > frame.height:
        missing = test.join(frame, on="sample_id", how="anti")["sample_id"]
        raise BadInput(
            f"{where}: {len(missing)} of {test.height} test samples have no prediction, {missing[0]} the first: add "
            "it, or play the cell again."
        )
    both = frame.join(test, on="sample_id", suffix="_here")
    for column, what in (("subject_id", "patients"), ("label", "labels")):
        if wrong := both.filter(pl.col(column) != pl.col(f"{column}_here")).height:
            raise BadInput(f"{where}: {wrong} samples have other {what} than this cohort: play the cell on this one.")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _row(row: Mapping[str, Any], translation: Translation | None) -> Sequence[Any]:
    answer, reply = row["prediction"], row["prediction"]
    if translation is not None and answer is None and row["turns"]:
        answer = translation(row["turns"][-1]["reply"])
    needs, likeness = row["needs_retrieval"], row.get("likeness") or {}
    return (
        row["sample_id"], str(row["subject_id"]), row["label"], answer, reply, row["label_probabilities"],
        row.get("threshold"), answer == row["label"] if answer != reply else bool(row["correct"]), float(row["reward"]),
        bool(row["retrieved"]), None if needs is None else bool(needs), row.get("look_ups"), float(row["iterations"]),
        float(calls_of(row)), float(tokens_of(row)), float(row["retrievals"]),
        float(row["seconds"]), (row.get("scores") or {}).get("f1"), *(likeness.get(name) for name in LIKENESS),
        row.get("entropy_drop"),
    )  # fmt: skip
