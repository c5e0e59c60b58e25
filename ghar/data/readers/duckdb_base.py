"""A DuckDB file as a base of tables (ghar/data/readers/database.py), opened for reading alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ghar.data.readers.tables import fingerprint
from ghar.errors import BadInput

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAGIC, PLACE = b"DUCK", 8  # where a DuckDB file says what it is
BASE_TABLES = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"


def is_duckdb(path: Path) -> bool:
    """Whether a file is a DuckDB database, by its first bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(PLACE + len(MAGIC))[PLACE:] == MAGIC


@dataclass(frozen=True)
class DuckDBBase:
    """path: the file; base: its connection."""

    path: Path
    base: DuckDBPyConnection

    @property
    def name(self) -> str:
        """What messages call it."""
        return str(self.path)

    @property
    def preferred(self) -> str:
        """The schema that counts where several have a table."""
        return "main"

    def key(self, version: str) -> str:
        """What changes when the file does, its log of writes included."""
        log = self.path.with_name(f"{self.path.name}.wal")
        return f"{self.path.stem}-{fingerprint([self.path, *([log] if log.exists() else [])], version)}"

    def tables(self) -> list[tuple[str, str]]:
        """Schema and name of each table; views are none."""
        return self.base.execute(BASE_TABLES).fetchall()

    def columns(self, table: tuple[str, str]) -> list[str]:
        """Names of a table's columns."""
        return [row[0] for row in self.base.execute(f"DESCRIBE {whole(table)}").fetchall()]

    def copy(self, table: tuple[str, str], columns: Sequence[str], to: Path) -> None:
        """Write columns of a table as Parquet."""
        import duckdb

        target = str(to).replace("'", "''")
        query = f"COPY (SELECT {', '.join(map(quoted, columns))} FROM {whole(table)}) TO '{target}' (FORMAT parquet)"
        try:
            self.base.execute(query)
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise BadInput(f"{self.path} cannot be read ({first}): copy the file again.") from error


def whole(table: tuple[str, str]) -> str:
    """Schema and name of a table as SQL has them."""
    return ".".join(map(quoted, table))


def quoted(name: str) -> str:
    """A name as SQL has it, whatever letters it has."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def opened_duckdb(path: Path) -> Iterator[DuckDBBase]:
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
        yield DuckDBBase(path, base)
    finally:
        base.close()
