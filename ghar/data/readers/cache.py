"""A cohort on disk: a folder with the events, in order, as Parquet files of many patients each, and beside them codes,
visits, the codes of each visit, and cohort.json. What is opened from there leaves the events on disk until they are
wanted."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.visit_codes import visit_rows
from ghar.errors import BadInput
from ghar.seal import fault

EVENTS = "events-{:04}.parquet"
ROWS = "visit_rows.parquet"


def store_cohort(build: Callable[[Path], Cohort], folder: Path) -> None:
    """Let `build` write events (EVENTS) and what it likes to a folder for its work, and make them a cohort on disk.

    Whole or not at all; a folder that another process finished first is kept.
    """
    from ghar.storage import new_folder  # what opening a cohort does not need

    with new_folder(folder, keep=True) as half:
        (half / "work").mkdir()
        cohort = build(half / "work")
        visit_rows(cohort).write_parquet(half / ROWS, compression="lz4")
        parts = list((half / "work").glob("events-*.parquet"))
        for path in parts:
            os.replace(path, half / path.name)
        shutil.rmtree(half / "work")
        cohort.codes.write_parquet(half / "codes.parquet", compression="lz4")
        cohort.visits.write_parquet(half / "visits.parquet", compression="lz4")
        about = {key: getattr(cohort, key) for key in ("name", "generated", "credentialed", "stay")}
        about |= {"counts": dict(cohort.counts), "parts": len(parts)}
        (half / "cohort.json").write_text(json.dumps(about, indent=1))


def load_cohort(folder: Path, name: str | None = None) -> Cohort:
    """Open what `store_cohort` wrote, under its own name or another; BadInput if the folder is damaged."""
    if damage := fault(folder):
        raise BadInput(f"{damage}: delete that folder, it is rebuilt.")
    try:
        codes, visits = (pl.read_parquet(folder / f"{frame}.parquet", glob=False) for frame in ("codes", "visits"))
        about = json.loads((folder / "cohort.json").read_text())
        events = scan_events(folder, about.pop("parts"))
        pl.scan_parquet(folder / ROWS, glob=False).collect_schema()
        about |= {"table": events, "codes": codes, "visits": visits, "name": name or about["name"]}
        cohort = Cohort(**about)
        for field, value in (("stored_rows", folder / ROWS), ("key", folder.name)):
            object.__setattr__(cohort, field, value)  # a frozen dataclass has no other way
        return cohort
    except (OSError, ValueError, TypeError, KeyError, pl.exceptions.PolarsError) as error:
        raise BadInput(f"{folder} is not a cohort cache ({error}): delete that folder, it is rebuilt.") from error


def scan_events(folder: Path, parts: int) -> pl.LazyFrame:
    """The events in a folder, in order, unread; every file is opened, so that one cut short is noticed here."""
    files = [folder / EVENTS.format(i) for i in range(parts)]
    for path in files:
        pl.scan_parquet(path, glob=False).collect_schema()
    return pl.scan_parquet(files, glob=False)
