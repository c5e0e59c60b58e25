"""A cohort on disk: a folder with events, codes and visits as Parquet and cohort.json beside them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort
from ghar.errors import BadInput

FRAMES = ("events", "codes", "visits")


def save_cohort(cohort: Cohort, folder: Path) -> None:
    """Write `cohort` to `folder`, whole or not at all; a folder that another process finished first is kept."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for name in FRAMES:
            getattr(cohort, name).write_parquet(half / f"{name}.parquet", compression="lz4")
        about = {key: getattr(cohort, key) for key in ("name", "generated", "credentialed", "stay")}
        (half / "cohort.json").write_text(json.dumps(about | {"counts": dict(cohort.counts)}, indent=1))
        if not folder.exists():
            os.replace(half, folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def load_cohort(folder: Path, name: str | None = None) -> Cohort:
    """Read what `save_cohort` wrote, under its own name or another; BadInput if the folder is damaged."""
    try:
        frames = {frame: pl.read_parquet(folder / f"{frame}.parquet") for frame in FRAMES}
        cohort = Cohort(table=frames.pop("events"), **frames, **json.loads((folder / "cohort.json").read_text()))
    except (OSError, ValueError, TypeError, pl.exceptions.PolarsError) as error:
        raise BadInput(f"{folder} is not a cohort cache ({error}): delete that folder, it is rebuilt.") from error
    return cohort if name is None else replace(cohort, name=name)
