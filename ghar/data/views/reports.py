"""A text for every stay, to show to a system that reads the reports of other patients: `stay_reports`.

Where a source has no discharge summary of a stay, a plain record of its codes in words stands for it, marked as such
and under headings that `ghar.data.sections` knows, so that it can be cut and searched like a summary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort, Visit
from ghar.data.readers.notes import NEVER, Notes
from ghar.storage import TextList

PLAIN = "Record of the stay (no discharge summary in this source)"


def stay_reports(cohort: Cohort, notes: Notes | None = None, name_of: Callable[[str], str] | None = None) -> Notes:
    """One report for each stay of the cohort: its summary in `notes`, else a plain record of it.

    To be passed wherever `Notes` are; a text is made only when it is asked for. A plain record is there when the stay
    is over and the last of its codes was known, never where one of these times is unknown. name_of: text of a code, by
    default its description. counts: those of `notes`, and how many plain records there are ("plain_records").
    """
    visits = cohort.visits.select("visit_id", "subject_id", "start", "end", "died").sort("visit_id")
    stays = visits["visit_id"].to_numpy()
    row_of = {} if notes is None else {stay: row for row, stay in enumerate(notes.visit_id.tolist())}
    note_rows = np.array([row_of.get(stay, -1) for stay in stays.tolist()], dtype=np.int64)
    available = _compute_availability(cohort, stays)
    if notes is not None:
        available = np.where(note_rows >= 0, notes.available[note_rows] if len(notes) else NEVER, available)
    texts = _StayTexts(cohort, visits, notes, note_rows, name_of or cohort.names().__getitem__)
    counts = {**(notes.counts if notes is not None else {}), "plain_records": int((note_rows < 0).sum())}
    credentialed = cohort.credentialed or (notes is not None and notes.credentialed)
    subjects, generated = visits["subject_id"].to_numpy(), _generated(cohort, notes)
    return Notes(stays, subjects, available, texts, counts, generated, credentialed)


def plain_record(visit: Visit, days: int | None, died: bool, name_of: Callable[[str], str]) -> str:
    """What the codes of a stay say, in words. days: whole days it lasted, None where no one knows."""
    length = {None: "not known", 0: "less than one day", 1: "1 day"}.get(days, f"{days} days")
    parts = [f"{PLAIN}\nLength of stay: {length}.{' The patient died in this stay.' if died else ''}"]
    for heading, opening, codes in (
        ("Major Surgical or Invasive Procedure", "", visit.procedures),
        ("Brief Hospital Course", "Medications given: ", visit.medications),
        ("Discharge Diagnosis", "", visit.diagnoses),
    ):
        if codes:
            # several codes may share a name
            parts.append(f"{heading}:\n{opening}{'; '.join(dict.fromkeys(map(name_of, codes)))}.")
    return "\n\n".join(parts if len(parts) > 1 else [*parts, "Nothing else is recorded."])


@dataclass(frozen=True, eq=False)
class _StayTexts(TextList):
    """The reports of `visits`, made on demand. note_rows: their rows in `notes`, -1 for a plain record."""

    cohort: Cohort
    visits: pl.DataFrame
    notes: Notes | None
    note_rows: np.ndarray
    name_of: Callable[[str], str]

    def __len__(self) -> int:
        return self.visits.height

    def text(self, index: int) -> str:
        row = int(self.note_rows[index])
        if self.notes is not None and row >= 0:
            return self.notes.texts[row]
        visit_id, _, start, end, died = self.visits.row(index)
        days = None if end is None else (end - start).days
        return plain_record(self.cohort.shown.visits[visit_id], days, died, self.name_of)


def _compute_availability(cohort: Cohort, stays: np.ndarray) -> np.ndarray:
    """int64 [n], when everything about each of `stays` was known (microseconds)."""
    visit_codes = cohort.shown
    ends = cohort.visits.select("visit_id", pl.col("end").to_physical().fill_null(NEVER))
    begins = np.fromiter((visit_codes.begins[stay] for stay in ends["visit_id"]), np.int64, ends.height)
    coded = np.diff(begins, append=len(visit_codes.recorded)) > 0
    available = ends["end"].to_numpy().copy()
    if coded.any():
        latest = np.maximum.reduceat(visit_codes.recorded.to_numpy(), begins[coded])  # until where the next one begins
        available[coded] = np.maximum(available[coded], latest)
    order = np.argsort(ends["visit_id"].to_numpy())
    return available[order[np.searchsorted(ends["visit_id"].to_numpy(), stays, sorter=order)]]


def _generated(cohort: Cohort, notes: Notes | None) -> bool:
    return cohort.generated if notes is None else notes.generated
