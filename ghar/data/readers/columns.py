"""Every column of a source has an owner: who reads it, or why it is ignored.

The readers open tables by these declarations (`open_declared`) and have no other list of columns; docs/columns.md is
made of them. A column of a user's own folder that nobody decided on is counted ("undecided.T.columns").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from ghar.data.readers.events import I64
from ghar.data.readers.tables import SourceTable, columns_of, open_table

KEYS = {"subject_id": I64, "hadm_id": I64}  # of MIMIC's tables
# Reasons that several sources share.
KEY = "key of the source"
STAFF = "who wrote or ordered it"
INSURANCE = "insurance, language, religion, marital status: no clinical fact"
REPEATED = "stands in another column or table that is read"
DOSE = "dose, strength and packing: drugs are shown by name"
ORDER = "order, pharmacy or billing: what was given or done stands elsewhere"
END = "end of an order or infusion, which is not known at its start"
OUTCOME = "known only at the end of the stay, or the outcome itself"
NOT_YET = "clinical fact that no reader shows yet"
CHECK = "mark of the software, not of the staff"


@dataclass(frozen=True)
class TableColumns:
    """What is done with each column (lower case) of a table.

    read: column -> type, opened by the reader; a folder without one is refused. optional: the same, where a folder has
    the column. records: read for the text of records alone (ghar/data/findings.py). drug_keys: read for drugs' classes
    alone (ghar/data/mapping.py). groups: read for numbers by group of patients (ghar/data/groups.py). years: read for
    the years of stays alone (ghar/data/tasks/eligible.py). ignored: reason -> columns, with blanks between.
    never_empty: one with a header and no row was cut short and is refused (of patients and stays the readers ask for a
    sound row).
    """

    read: Mapping[str, pl.DataType]
    optional: Mapping[str, pl.DataType] = field(default_factory=dict)
    records: Mapping[str, pl.DataType] = field(default_factory=dict)
    drug_keys: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    years: tuple[str, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)
    never_empty: bool = False

    @property
    def types(self) -> dict[str, pl.DataType]:
        """Type of each column that is read by anyone."""
        others = dict.fromkeys((*self.drug_keys, *self.groups, *self.years), pl.String())
        return {**others, **self.records, **self.optional, **self.read}

    @property
    def decided(self) -> set[str]:
        """All columns with an owner."""
        return {*self.types, *(column for names in self.ignored.values() for column in names.split())}


@dataclass(frozen=True)
class SourceColumns:
    """tables: those that are opened, by name ("hosp/admissions"). unread: reason -> tables never opened, with blanks
    between; the reason holds for all of their columns."""

    title: str
    tables: Mapping[str, TableColumns]
    unread: Mapping[str, str]

    @property
    def unread_tables(self) -> set[str]:
        """Names of the tables that are never opened."""
        return {name for names in self.unread.values() for name in names.split()}

    def undecided(self, name: str, columns: Iterator[str] | Sequence[str]) -> list[str]:
        """Those of a table's columns that have no owner; all of them where the table has none."""
        if name in self.unread_tables:
            return []
        decided = self.tables[name].decided if name in self.tables else set()
        return [column for column in columns if column.lower().strip() not in decided]


def open_declared(root: Path, source: SourceColumns, name: str, columns: Sequence[str] | None = None) -> SourceTable:
    """Open a table with the columns declared for its reader, those of them that are optional where it has them.

    columns: only these, which must be declared, for who reads a part. Raises what `open_table` raises.
    """
    about = source.tables[name]
    there = columns_of(root, name)
    if columns is None:
        wanted = {**about.read, **{name: kind for name, kind in about.optional.items() if name in there}}
    else:
        wanted = {column: about.types[column] for column in columns}
    table = open_table(root, name, wanted)
    return replace(table, undecided=len(there - about.decided), never_empty=about.never_empty)
