"""Discharge summaries in MIMIC-IV-Note's files (note/discharge.csv.gz) or MIMIC-III's (NOTEEVENTS.csv.gz), as
memory-mapped texts by stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl

from ghar.data.readers.columns import open_declared
from ghar.data.readers.deaths import WHOLE_DAY
from ghar.data.readers.mimic3_columns import MIMIC3
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.tables import find_table, fingerprint, sift
from ghar.data.sections import HEAD, split_sections
from ghar.errors import BadInput
from ghar.progress import progress
from ghar.provenance import Provenance, signed_mark
from ghar.seal import SEAL, sound
from ghar.storage import Strings, new_folder, read_array, read_meta, read_strings, write_arrays, write_meta

VERSION = "notes-1"  # part of the cache key: raise it when a rule changes
NEVER = 2**63 - 1
LOOKED_AT = 200  # reports looked through for headings before a file without any is refused


@dataclass(frozen=True, eq=False)
class Notes:
    """One report a stay. visit_id: sorted; available: when the report was there (microseconds, the time it was stored,
    else its chart time, else never); texts: in the order of visit_id, on disk or made when asked for
    (`ghar.data.views.reports`). counts: rows by rule, as the readers of tables have them.

    generated: whether these texts were written by the demo world; credentialed: whether they were not, or no one knows.
    """

    visit_id: np.ndarray
    subject_id: np.ndarray
    available: np.ndarray
    texts: Sequence[str]
    counts: Mapping[str, int]
    generated: bool
    credentialed: bool = True

    def __len__(self) -> int:
        return len(self.visit_id)

    def __contains__(self, visit_id: int) -> bool:
        return self.row(visit_id) is not None

    def row(self, visit_id: int) -> int | None:
        """Where the summary of a stay is; None for a stay without one."""
        place = int(np.searchsorted(self.visit_id, visit_id))
        return place if place < len(self) and self.visit_id[place] == visit_id else None

    def text(self, visit_id: int) -> str:
        """The summary of a stay that has one."""
        place = self.row(visit_id)
        if place is None:
            raise KeyError(visit_id)
        return self.texts[place]


def read_notes(root: Path, cache: Path) -> Notes:
    """Read the folder that holds note/discharge.csv.gz or NOTEEVENTS.csv.gz (or csv, parquet), or its copy in `cache`.

    Of a stay with several summaries the last one counts; addenda, notes marked as errors and notes without a stay are
    left out, counted. Raises BadInput for an absent table or column, a cell of the wrong type, and a file in which no
    report has a heading that is known.
    """
    root = Path(root)
    of_mimic4, of_mimic3 = find_table(root, "note/discharge"), find_table(root, "noteevents")
    path = of_mimic4 or of_mimic3
    if path is None:
        raise BadInput(
            f"{root} has no note/discharge.csv.gz: set system.notes to a folder in MIMIC-IV-Note's layout, or to "
            "MIMIC-III's with NOTEEVENTS.csv.gz."
        )
    beside = [root / SEAL] if (root / SEAL).exists() else []
    folder = Path(cache) / f"notes-{fingerprint([path, *beside], VERSION)}"
    if not sound(folder):
        frame, counts = _read_mimic3(root) if of_mimic4 is None else _read(root)
        _check_sections(frame, path)
        _save(frame, counts, signed_mark(root), folder)
    about = read_meta(folder)
    visit_id, subject_id, available = (read_array(folder, name) for name in ("visit_id", "subject_id", "available"))
    texts = read_strings(folder, "texts")
    mark = Provenance.of(about)
    return Notes(visit_id, subject_id, available, texts, about["counts"], mark.generated, mark.credentialed)


def _read(root: Path) -> tuple[pl.DataFrame, dict[str, int]]:
    table = open_declared(root, MIMIC4, "note/discharge")
    drops = {
        "no_stay": pl.col("hadm_id").is_null(),
        "no_summary": pl.col("note_type") != "DS",
        "no_text": pl.col("text").str.strip_chars().fill_null("") == "",
    }
    available = pl.coalesce("storetime", "charttime").to_physical().fill_null(NEVER)
    visit = pl.col("hadm_id").alias("visit_id")
    result = [visit, pl.col("subject_id", "note_seq", "text"), available.alias("available")]
    frame, counts = sift(table, table.rows, drops, {}, result)
    return _last(frame, counts, "discharge")


def _read_mimic3(root: Path) -> tuple[pl.DataFrame, dict[str, int]]:
    """Summaries have a date alone there: they are known at its last second."""
    table = open_declared(root, MIMIC3, "noteevents")
    kind, report = (pl.col(name).str.strip_chars().str.to_lowercase() for name in ("category", "description"))
    drops = {
        "no_summary": (kind != "discharge summary").fill_null(True),
        "no_stay": pl.col("hadm_id").is_null(),
        "addendum": (report == "addendum").fill_null(False),
        "error": (pl.col("iserror") == 1).fill_null(False),
        "no_text": pl.col("text").str.strip_chars().fill_null("") == "",
    }
    dated = pl.col("chartdate").dt.truncate("1d") + WHOLE_DAY
    available = pl.coalesce("storetime", "charttime", dated).to_physical().fill_null(NEVER)
    order = pl.col("chartdate").to_physical().alias("note_seq")
    visit = pl.col("hadm_id").alias("visit_id")
    result = [visit, pl.col("subject_id", "text"), order, available.alias("available")]
    frame, counts = sift(table, table.rows, drops, {}, result)
    return _last(frame, counts, "noteevents")


def _last(frame: pl.DataFrame, counts: dict[str, int], name: str) -> tuple[pl.DataFrame, dict[str, int]]:
    """The last summary of each stay."""
    ordered = frame.sort("visit_id", "note_seq", maintain_order=True)
    last = ordered.unique("visit_id", keep="last", maintain_order=True)
    if frame.height > last.height:
        counts[f"dropped.{name}.earlier_summary"] = frame.height - last.height
    return last, counts


def _check_sections(frame: pl.DataFrame, path: Path) -> None:
    if frame.is_empty():
        raise BadInput(f"{path} holds no discharge summary of a stay: copy the file again.")
    looked = frame["text"].head(LOOKED_AT)
    if all(section.heading == HEAD for text in looked for section in split_sections(text)):
        raise BadInput(
            f"{path}: none of the first {len(looked)} reports has a section such as 'Discharge Diagnosis:', so nothing "
            "can be asked about them: give reports with MIMIC-IV-Note's headings."
        )


def _save(frame: pl.DataFrame, counts: Mapping[str, int], mark: Provenance, folder: Path) -> None:
    with progress(1, "Store discharge summaries") as advance, new_folder(folder, keep=True) as half:
        arrays = {name: frame[name].to_numpy() for name in ("visit_id", "subject_id", "available")}
        write_arrays(half, {**arrays, "texts": Strings.of(frame["text"].to_list())})
        write_meta(half, {"counts": dict(counts), **asdict(mark)})
        advance()
