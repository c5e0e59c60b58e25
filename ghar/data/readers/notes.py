"""Discharge summaries in MIMIC-IV-Note's files (note/discharge.csv.gz), as memory-mapped texts by stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl

from ghar.data.readers.columns import open_declared
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
    """Read the folder that holds note/discharge.csv.gz (or csv, parquet), or its copy under `cache`.

    Of a stay with several summaries the last one counts; addenda (note_type AD) and notes without a stay are left out,
    counted. Raises BadInput for an absent table or column, a cell of the wrong type, and a file in which no report has
    a heading that is known.
    """
    root = Path(root)
    path = find_table(root, "note/discharge")
    if path is None:
        raise BadInput(f"{root} has no note/discharge.csv.gz: set system.notes to a folder in MIMIC-IV-Note's layout.")
    beside = [root / SEAL] if (root / SEAL).exists() else []
    folder = Path(cache) / f"notes-{fingerprint([path, *beside], VERSION)}"
    if not sound(folder):
        frame, counts = _read(root)
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
    last = frame.sort("visit_id", "note_seq").unique("visit_id", keep="last", maintain_order=True)
    if frame.height > last.height:
        counts["dropped.discharge.earlier_summary"] = frame.height - last.height
    return last, counts


def _check_sections(frame: pl.DataFrame, path: Path) -> None:
    if frame.is_empty():
        raise BadInput(f"{path} holds no discharge summary (note_type DS) of a stay: copy the file again.")
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
