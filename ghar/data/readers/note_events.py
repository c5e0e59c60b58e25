"""Notes as events "NOTE/<category>", their text in one line, for systems that read events (data.more=[notes]):
MIMIC-IV-Note's note/radiology and MIMIC-III's noteevents.

A note is known when it was stored, else when it was charted; one with a date alone at the last second of that day.
Discharge summaries, which say how a stay ended, are never among them ("discharge_summary"), nor are MIMIC-III's notes
that the staff marked as errors. A note without an admission belongs to no stay.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ghar.data.readers.columns import open_declared
from ghar.data.readers.deaths import WHOLE_DAY
from ghar.data.readers.events import LazyRows, event
from ghar.data.readers.infusions import unplaced, with_patients
from ghar.data.readers.mimic3_columns import MIMIC3
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.tables import SourceTable, sift_large

SUMMARY = "^discharge summary"


def read_radiology(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> LazyRows:
    """Events of note/radiology: reports (RR) and addenda to them (AR)."""
    table = open_declared(root, MIMIC4, "note/radiology")
    kind = pl.when(pl.col("note_type").str.strip_chars() == "AR").then(pl.lit("Radiology addendum"))
    summary = pl.col("note_type").str.strip_chars() == "DS"
    at, day = pl.col("charttime"), pl.lit(None, pl.Datetime("us"))
    return _notes(table, visits, patients, work, (kind.otherwise(pl.lit("Radiology")), at, day), summary)


def read_noteevents(root: Path, visits: pl.DataFrame, patients: pl.DataFrame, work: Path) -> LazyRows:
    """Events of noteevents, of every category but discharge summaries."""
    table = open_declared(root, MIMIC3, "noteevents")
    kind = pl.col("category").str.strip_chars()
    summary = kind.str.to_lowercase().str.contains(SUMMARY)
    wrong = {"error": pl.col("iserror") == 1}
    about = (pl.coalesce(kind, pl.lit("other")), pl.col("charttime"), pl.col("chartdate").dt.truncate("1d"))
    return _notes(table, visits, patients, work, about, summary, wrong)


def _notes(
    table: SourceTable,
    visits: pl.DataFrame,
    patients: pl.DataFrame,
    work: Path,
    about: tuple[pl.Expr, pl.Expr, pl.Expr],
    summary: pl.Expr,
    wrong: dict[str, pl.Expr] | None = None,
) -> LazyRows:
    """Events of a table of notes. about: category, time, and the day where there is no time."""
    kind, at, day = about
    stored = pl.col("storetime")
    text = pl.col("text").str.replace_all(r"\s+", " ").str.strip_chars()
    rows = with_patients(table, visits, patients)
    drops = {"discharge_summary": summary.fill_null(False), **(wrong or {})}
    drops |= unplaced(pl.coalesce(at, day, stored)) | {"no_text": text.fill_null("") == ""}
    repairs = {"date_alone": at.is_null() & day.is_not_null(), "no_storetime": stored.is_null()}
    recorded = pl.max_horizontal(stored, pl.coalesce(at, day + WHOLE_DAY))
    code = pl.concat_str(pl.lit("NOTE/"), kind)
    result = event(pl.coalesce(at, day, stored), code, recorded, text=text)
    return sift_large(table, rows, drops, repairs, result, work)
