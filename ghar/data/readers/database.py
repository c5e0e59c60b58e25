"""Tables in a DuckDB file: those that a source needs are copied to Parquet once, and read as any folder is.

So every reader, its counts and its refusals are the same for a database. The copy lies below data.cache, keyed by the
file's name, size and time, and holds only columns that are read or that nobody decided on (columns.py). The database
is opened for reading alone.

A table "hosp/admissions" is the table `admissions` of whatever schema, letter case aside; of several schemas that have
one the schema counts whose name ends with its folder ("mimiciv_hosp"), else "main". Views are not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ghar.config import DataConfig
from ghar.data.readers import eicu, mimic3, mimic4
from ghar.data.readers.columns import SourceColumns
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.mimic3_columns import MIMIC3
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.omop_columns import OMOP
from ghar.data.readers.tables import fingerprint
from ghar.errors import BadInput
from ghar.progress import progress

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

VERSION = "database-1"  # part of the cache key: raise it when a rule changes
MAGIC, PLACE = b"DUCK", 8  # where a DuckDB file says what it is
ABSENT = ".absent"  # marks a table that the database has not
ENDS = (".parquet", ABSENT)
SOURCES = {"mimic4": MIMIC4, "mimic3": MIMIC3, "eicu": EICU, "omop": OMOP}
BASE_TABLES = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"


def is_database(path: Path) -> bool:
    """Whether a file is a DuckDB database, by its first bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(PLACE + len(MAGIC))[PLACE:] == MAGIC


def with_tables(data: DataConfig, *, charts: bool = True) -> DataConfig:
    """The configuration with a folder in the place of a DuckDB file in data.root; unchanged for anything else.

    charts: whether measurements of charts, and what data.more names, are needed too. BadInput for a source without
    tables, a missing library, and a file that cannot be read.
    """
    if data.root is None or not is_database(Path(data.root)):
        return data
    if data.name not in SOURCES:
        raise BadInput(
            f"data.root={data.root} is a DuckDB database, which data={data.name} does not read: choose one of "
            f"{', '.join(SOURCES)}, or name a folder."
        )
    names = _tables_read(data, charts)
    return replace(data, root=str(copy_tables(Path(data.root), SOURCES[data.name], names, Path(data.cache))))


def _tables_read(data: DataConfig, charts: bool) -> Sequence[str]:
    if data.name == "omop":
        return list(OMOP.tables)
    tables = {"mimic4": mimic4.tables_read, "mimic3": mimic3.tables_read, "eicu": eicu.tables_read}[data.name]
    return tables(charts, data.more if charts else ())


def copy_tables(path: Path, source: SourceColumns, names: Iterable[str], cache: Path) -> Path:
    """A folder below `cache` with those of the tables `names` that the database has, in Parquet.

    A table that is there already is not copied again; one that two processes copy is copied by both, and is the same.
    """
    log = path.with_name(f"{path.name}.wal")
    folder = cache / "databases" / f"{path.stem}-{fingerprint([path, *([log] if log.exists() else [])], VERSION)}"
    wanted = [name for name in dict.fromkeys(names) if not any((folder / f"{name}{end}").exists() for end in ENDS)]
    if not wanted:
        return folder
    with _opened(path) as base, progress(len(wanted), f"Copy tables of {path.name}") as advance:
        there: dict[str, list[tuple[str, str]]] = {}
        for schema, table in base.execute(BASE_TABLES).fetchall():
            there.setdefault(table.lower(), []).append((schema, table))
        for name in wanted:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            found = there.get(name.rpartition("/")[2], [])
            if found:
                _copy(base, path, source, name, _schema_of(path, name, found), folder)
            else:
                (folder / f"{name}{ABSENT}").touch()
            advance()
    return folder


def _schema_of(path: Path, name: str, found: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Which of several tables of a name is meant."""
    folder = name.rpartition("/")[0]
    for fits in (lambda schema: bool(folder) and schema.endswith(folder), lambda schema: schema == "main"):
        if len(own := [pair for pair in found if fits(pair[0].lower())]) == 1:
            return own[0]
    if len(found) > 1:
        schemas = ", ".join(schema for schema, _ in found)
        raise BadInput(f"{path} has the table {name} in several schemas ({schemas}): keep one, or copy it to main.")
    return found[0]


def _copy(
    base: DuckDBPyConnection, path: Path, source: SourceColumns, name: str, table: tuple[str, str], folder: Path
) -> None:
    whole = ".".join(map(_quoted, table))
    columns = [row[0] for row in base.execute(f"DESCRIBE {whole}").fetchall()]
    about = source.tables[name]
    ignored = about.decided - set(about.types)
    kept = [column for column in columns if column.lower().strip() not in ignored]
    if not kept:
        raise BadInput(f"{path}: the table {'.'.join(table)} has no column that data needs: copy the table again.")
    half = folder / f"{name}.{os.getpid()}.half"
    to = str(half).replace("'", "''")
    _run(base, path, f"COPY (SELECT {', '.join(map(_quoted, kept))} FROM {whole}) TO '{to}' (FORMAT parquet)")
    os.replace(half, folder / f"{name}.parquet")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _run(base: DuckDBPyConnection, path: Path, query: str) -> None:
    import duckdb

    try:
        base.execute(query)
    except duckdb.Error as error:
        raise BadInput(f"{path} cannot be read ({str(error).splitlines()[0]}): copy the file again.") from error


@contextmanager
def _opened(path: Path) -> Iterator[DuckDBPyConnection]:
    """The database, read-only; DuckDB would fetch extensions from its own server, unasked."""
    try:
        import duckdb
    except ModuleNotFoundError:
        raise BadInput(
            f"data.root={path} is a DuckDB database, for which duckdb is not installed: pip install 'ghar[duckdb]'."
        ) from None
    try:
        base = duckdb.connect(str(path), read_only=True, config={"autoinstall_known_extensions": "false"})
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise BadInput(
            f"{path} cannot be opened ({first}): close whatever writes to it, or copy the file again."
        ) from error
    try:
        yield base
    finally:
        base.close()
