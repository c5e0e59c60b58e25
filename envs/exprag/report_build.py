"""From a cohort and its discharge summaries to the index of reports, and to what each stay may ask with."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.readers.notes import Notes
from ghar.data.visit_codes import KIND_NAMES, visit_rows
from ghar.progress import progress
from ghar.retrieval.reports import FORMAT, KINDS, CodeEntries, ReportIndex, ReportQuery, build_reports
from ghar.seal import sound


def index_reports(cohort: Cohort, notes: Notes, patients: Collection[int] | None, cache: Path) -> ReportIndex:
    """The index of all stays with a summary, or of those of `patients`; kept under `cache`, memory-mapped."""
    folder = cache / f"reports-{_key(cohort, notes, patients)}"
    if not sound(folder):
        with progress(1, "Index the codes of reports") as advance:
            _build(cohort, notes, patients).save(folder)
            advance()
    return ReportIndex.load(folder)


def _build(cohort: Cohort, notes: Notes, patients: Collection[int] | None) -> ReportIndex:
    visits = cohort.visits.select("visit_id", "subject_id").with_row_index("row")
    reports = pl.DataFrame({"visit_id": notes.visit_id, "available": notes.available})
    pool = visits.join(reports, on="visit_id", how="inner", maintain_order="left")
    if patients is not None:
        pool = pool.filter(pl.col("subject_id").is_in(sorted(patients)))
    place = np.full(visits.height, -1, np.int64)
    place[pool["row"].to_numpy()] = np.arange(pool.height)
    rows = visit_rows(cohort) if cohort.stored_rows is None else pl.read_parquet(cohort.stored_rows, glob=False)
    slot, code = rows["slot"].to_numpy(), rows["code"].to_numpy()
    stay, kind = place[slot // len(KIND_NAMES)], slot % len(KIND_NAMES)
    entries = {}
    for name in KINDS:
        own = (stay >= 0) & (kind == KIND_NAMES.index(name))
        used, number = np.unique(code[own], return_inverse=True)
        entries[name] = CodeEntries(stay[own], number, cohort.codes["code"].gather(used).to_list())
    visit_id, subject_id, available = (pool[name].to_numpy() for name in ("visit_id", "subject_id", "available"))
    return build_reports(visit_id, subject_id, available, entries)


def queries_of(cohort: Cohort, stays: Iterable[int], *, strict: bool) -> dict[int, ReportQuery]:
    """What may be known of each stay.

    strict: the codes known before the discharge (so none of its ICD codes), and reports that were there by then. Else
    as the paper has it: all codes of the stay's tables, and reports of any time.
    """
    visit_codes = cohort.shown
    about = {row[0]: row[1:] for row in cohort.visits.select("visit_id", "subject_id", "end").iter_rows()}
    queries = {}
    for stay in stays:
        subject, end = about[stay]
        visit, before = visit_codes.visits[stay], None
        if strict:
            before = pl.Series([end], dtype=pl.Datetime("us")).to_physical().item()
            visit = visit_codes.until(visit, before - 1)
        queries[stay] = ReportQuery(subject, before, (visit.diagnoses, visit.medications, visit.procedures))
    return queries


def _key(cohort: Cohort, notes: Notes, patients: Collection[int] | None) -> str:
    """Changes with the cohort, the summaries' stays and times, and the patients."""
    digest = hashlib.blake2b(digest_size=8)
    about = FORMAT, cohort.key or cohort.name, cohort.visits.height, sorted(patients or []), patients is None
    digest.update(repr(about).encode())
    for column in (notes.visit_id, notes.available):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()
