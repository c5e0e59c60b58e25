"""Rows and chunks of events, made directly: what the event store must show (ehr_rag.txt, Appendix A)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from ghar.data.views.events import event_label, number_text
from ghar.errors import BadInput


def rows_of(events: pl.DataFrame, name_of: Callable[[str], str]) -> list[str]:
    """Rows of any events in the columns of `Cohort.events`; the value is the number, or the text, with its unit."""
    columns = ["time", "code", "numeric_value", "text_value"]
    has_unit = "unit" in events.columns
    names: dict[str, str] = {}
    rows = []
    for time, code, number, text, *unit in events.select(*columns, *(["unit"] if has_unit else [])).iter_rows():
        if code not in names:
            names[code] = event_label(code, name_of(code))
        value = number_text(number) if number is not None else text
        shown = "" if value in (None, "") else f" (value: {' '.join([value, *(u for u in unit if u)])})"
        rows.append(f"[{'static' if time is None else f'{time:%Y-%m-%d %H:%M:%S}'}] {names[code]}{shown}")
    return rows


def chunks(rows: Sequence[str], size: int = 100, overlap: int = 5) -> list[str]:
    """Rows in chunks of `size` that share `overlap` rows with the next (EHR-RAG, Appendix A)."""
    if not 0 <= overlap < size:
        raise BadInput(f"Chunks of {size} rows cannot overlap by {overlap}: choose an overlap below the size.")
    step = size - overlap
    return ["\n".join(rows[i : i + size]) for i in range(0, max(len(rows) - overlap, 1), step)] if rows else []
