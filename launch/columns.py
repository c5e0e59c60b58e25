"""Print docs/columns.md: what is read of each table of a source, and why the rest is not: python launch/columns.py"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghar.data.readers.columns import SourceColumns, TableColumns

FILES = {"MIMIC-III": "mimic3", "MIMIC-IV": "mimic4", "eICU": "eicu", "OMOP CDM": "omop"}


def page() -> str:
    """The page, read from the declarations by which the readers open tables."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    from ghar.data.readers.eicu_columns import EICU
    from ghar.data.readers.mimic3_columns import MIMIC3
    from ghar.data.readers.mimic4_columns import MIMIC4
    from ghar.data.readers.omop_columns import OMOP

    yield "# Columns that are read, and columns that are not"
    yield ""
    yield "Made by `python launch/columns.py` from the declarations by which the readers open tables"
    yield "([columns.py](../ghar/data/readers/columns.py)). A test over the open demos fails for a column without an"
    yield "owner; a column of your own folder that has none is counted when it is read (`undecided.TABLE.columns`)."
    yield "A table marked as never empty is refused where it has no row; another one is counted (`empty.TABLE`)."
    for source in (MIMIC3, MIMIC4, EICU, OMOP):
        yield from _source(source)


def _source(source: SourceColumns) -> Iterator[str]:
    read = sum(len(table.types) for table in source.tables.values())
    total = sum(len(table.decided) for table in source.tables.values())
    file = f"{FILES[source.title]}_columns.py"
    yield from ("", f"## {source.title}", "")
    yield f"{read} of {total} columns of {len(source.tables)} tables are read ([{file}](../ghar/data/readers/{file}))."
    yield from ("", "| table | read | ignored |", "|---|---|---|")
    for name, table in source.tables.items():
        title = f"{name} (never empty)" if table.never_empty else name
        yield f"| {title} | {_read(table)} | {_ignored(table)} |"
    yield from ("", "| tables never opened | reason |", "|---|---|")
    for reason, names in source.unread.items():
        yield f"| {', '.join(names.split())} | {reason} |"


def _read(table: TableColumns) -> str:
    parts = [_names([*table.read, *table.optional])]
    parts += [f"for the text of records: {_names([*table.records])}"] if table.records else []
    parts += [f"for drugs' classes: {_names(table.drug_keys)}"] if table.drug_keys else []
    parts += [f"for numbers by group: {_names(table.groups)}"] if table.groups else []
    parts += [f"for years of stays: {_names(table.years)}"] if table.years else []
    return "; ".join(parts)


def _ignored(table: TableColumns) -> str:
    return "; ".join(f"{reason}: {_names(names.split())}" for reason, names in table.ignored.items())


def _names(columns: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{column}`" for column in columns)


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and no launcher hides a library of its name.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    print(page(), end="")
