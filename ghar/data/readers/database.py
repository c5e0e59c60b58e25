"""Tables in a database: those that a source needs are copied to Parquet once, and read as any folder is.

So every reader, its counts and its refusals are the same for a database. The copy lies below data.cache, keyed by the
state of the database, and holds only columns that are read or that nobody decided on (columns.py). data.root is a
DuckDB file (duckdb_base.py) or `postgresql:SERVICE` (postgresql_base.py).

A table "hosp/admissions" is the table `admissions` of whatever schema, letter case aside; of several schemas that have
one the schema counts whose name ends with its folder ("mimiciv_hosp"), else "main" or "public". Views are not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ghar.config import DataConfig
from ghar.data.readers import eicu, mimic3, mimic4
from ghar.data.readers.columns import SourceColumns
from ghar.data.readers.duckdb_base import is_duckdb, opened_duckdb
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.mimic3_columns import MIMIC3
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.omop_columns import OMOP
from ghar.data.readers.postgresql_base import is_postgresql, opened_postgresql
from ghar.errors import BadInput
from ghar.progress import progress

VERSION = "database-1"  # part of the cache key: raise it when a rule changes
ABSENT = ".absent"  # marks a table that the database has not
ENDS = (".parquet", ABSENT)
SOURCES = {"mimic4": MIMIC4, "mimic3": MIMIC3, "eicu": EICU, "omop": OMOP}

Table = tuple[str, str]  # schema, name


class Base(Protocol):
    """An open database. name: for messages; preferred: the schema that counts where several have a table."""

    @property
    def name(self) -> str: ...
    @property
    def preferred(self) -> str: ...
    def key(self, version: str) -> str:
        """Name of a folder for its copy, which changes when the database does."""
        ...

    def tables(self) -> list[Table]: ...
    def columns(self, table: Table) -> list[str]: ...
    def copy(self, table: Table, columns: Sequence[str], to: Path) -> None:
        """Write columns of a table as Parquet."""
        ...


def is_database(root: Path) -> bool:
    """Whether data.root is no folder but a database."""
    return is_postgresql(str(root)) or is_duckdb(root)


def opened(root: Path) -> AbstractContextManager[Base]:
    """The database, for reading alone. BadInput where it cannot be opened."""
    return opened_postgresql(str(root)) if is_postgresql(str(root)) else opened_duckdb(root)


def with_tables(data: DataConfig, *, charts: bool = True) -> DataConfig:
    """The configuration with a folder in the place of a database in data.root; unchanged for anything else.

    charts: whether measurements of charts, and what data.more names, are needed too. BadInput for a source without
    tables, a missing library, and a database that cannot be read.
    """
    if data.root is None or not is_database(Path(data.root)):
        return data
    if data.name not in SOURCES:
        raise BadInput(
            f"data.root={data.root} is a database, which data={data.name} does not read: choose one of "
            f"{', '.join(SOURCES)}, or name a folder."
        )
    names = _tables_read(data, charts)
    return replace(data, root=str(copy_tables(Path(data.root), SOURCES[data.name], names, Path(data.cache))))


def _tables_read(data: DataConfig, charts: bool) -> Sequence[str]:
    if data.name == "omop":
        return list(OMOP.tables)
    tables = {"mimic4": mimic4.tables_read, "mimic3": mimic3.tables_read, "eicu": eicu.tables_read}[data.name]
    return tables(charts, data.more if charts else ())


def copy_tables(root: Path, source: SourceColumns, names: Iterable[str], cache: Path) -> Path:
    """A folder below `cache` with those of the tables `names` that the database has, in Parquet.

    A table that is there already is not copied again; one that two processes copy is copied by both, and is the same.
    """
    with opened(root) as base:
        folder = cache / "databases" / base.key(VERSION)
        wanted = [name for name in dict.fromkeys(names) if not any((folder / f"{name}{end}").exists() for end in ENDS)]
        if wanted:
            _copy_all(base, source, wanted, folder)
    return folder


def _copy_all(base: Base, source: SourceColumns, wanted: Sequence[str], folder: Path) -> None:
    there: dict[str, list[Table]] = {}
    for schema, table in base.tables():
        there.setdefault(table.lower(), []).append((schema, table))
    with progress(len(wanted), f"Copy tables of {base.name}", "tables") as advance:
        for name in wanted:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            tables = there.get(name.rpartition("/")[2], [])
            if tables:
                _copy(base, source, name, _schema_of(base, name, tables), folder)
            else:
                (folder / f"{name}{ABSENT}").touch()
            advance()


def _schema_of(base: Base, name: str, tables: Sequence[Table]) -> Table:
    """Which of several tables of a name is meant."""
    folder = name.rpartition("/")[0]
    for fits in (lambda schema: bool(folder) and schema.endswith(folder), lambda schema: schema == base.preferred):
        if len(own := [pair for pair in tables if fits(pair[0].lower())]) == 1:
            return own[0]
    if len(tables) > 1:
        schemas = ", ".join(schema for schema, _ in tables)
        raise BadInput(
            f"{base.name} has the table {name} in several schemas ({schemas}): keep one, or copy it to "
            f"{base.preferred}."
        )
    return tables[0]


def _copy(base: Base, source: SourceColumns, name: str, table: Table, folder: Path) -> None:
    about = source.tables[name]
    ignored = about.decided - set(about.types)
    kept = [column for column in base.columns(table) if column.lower().strip() not in ignored]
    if not kept:
        raise BadInput(f"{base.name}: the table {'.'.join(table)} has no column that data needs: copy the table again.")
    half = folder / f"{name}.{os.getpid()}.half"
    try:
        base.copy(table, kept, half)
        os.replace(half, folder / f"{name}.parquet")
    finally:
        half.unlink(missing_ok=True)
