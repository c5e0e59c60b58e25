"""A PostgreSQL database as a base of tables (ghar/data/readers/database.py), by the name of its service.

`postgresql:NAME` is the service NAME of libpq's own files: pg_service.conf says where it is, .pgpass holds the
password. So no configuration or run folder holds either. All is read in one read-only transaction, of one state of the
database.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ghar.config import POSTGRESQL
from ghar.data.readers.duckdb_base import quoted, whole
from ghar.errors import BadInput

SERVICE = re.compile(r"[\w.-]+")
BATCH = 1 << 24  # bytes that are fetched at once
OPTIONS = (
    "-c default_transaction_read_only=on -c default_transaction_isolation=repeatable\\\\ read "
    # rows come as they lie: two tries have one order
    "-c synchronize_seqscans=off -c max_parallel_workers_per_gather=0"
)
# A table that others have for a session alone, or that this user may not read, is none.
READABLE = (
    "nspname NOT IN ('pg_catalog', 'information_schema') AND nspname !~ '^pg_(toast|temp)' "
    "AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')"
)
TABLES = f"""
SELECT nspname::text, relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind IN ('r', 'p') AND {READABLE}
"""
# what a table's rows lie in, and how many were ever written: new rows, changed rows and a new copy change it; a standby
# counts no rows, and knows how far it has followed
STATE = f"""
SELECT concat_ws(' ', CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()::text END,
                 string_agg(concat_ws(' ', nspname, c.relname, relfilenode, pg_relation_size(c.oid), n_tup_ins,
                                      n_tup_upd, n_tup_del), ';' ORDER BY c.oid))
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE relkind = 'r' AND {READABLE}
"""


def is_postgresql(root: str) -> bool:
    """Whether data.root names a service of PostgreSQL."""
    return root.startswith(POSTGRESQL)


@dataclass(frozen=True)
class PostgreSQLBase:
    """service: its name; base: an ADBC connection."""

    service: str
    base: Any

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{POSTGRESQL}{self.service}"

    @property
    def preferred(self) -> str:
        """The schema that counts where several have a table."""
        return "public"

    def key(self, version: str) -> str:
        """What changes when any table does, some seconds later: the server counts rows when a session rests."""
        [[state]] = self._rows(STATE)
        return f"{self.service}-{hashlib.sha256(f'{version} {state}'.encode()).hexdigest()[:16]}"

    def tables(self) -> list[tuple[str, str]]:
        """Schema and name of each table; views are none."""
        return [(schema, table) for schema, table in self._rows(TABLES)]

    def columns(self, table: tuple[str, str]) -> list[str]:
        """Names of a table's columns."""
        with self.base.cursor() as cursor, _named(self.name):
            cursor.execute(f"SELECT * FROM {whole(table)} LIMIT 0")
            return [column[0] for column in cursor.description]

    def copy(self, table: tuple[str, str], columns: Sequence[str], to: Path) -> None:
        """Write columns of a table as Parquet, a batch at a time."""
        from pyarrow import parquet

        with self.base.cursor() as cursor, _named(self.name):
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH)})
            cursor.execute(f"SELECT {', '.join(map(quoted, columns))} FROM {whole(table)}")
            batches = cursor.fetch_record_batch()
            with parquet.ParquetWriter(to, batches.schema, compression="zstd") as file:
                for batch in batches:
                    file.write_batch(batch)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.base.cursor() as cursor, _named(self.name):
            cursor.execute(query)
            return cursor.fetchall()


@contextmanager
def opened_postgresql(root: str) -> Iterator[PostgreSQLBase]:
    """The database of a service. BadInput for a name that is none, a missing library, and whatever the server says."""
    service = root.removeprefix(POSTGRESQL)
    if not SERVICE.fullmatch(service):
        raise BadInput(
            f"data.root={POSTGRESQL}... takes the name of a service of pg_service.conf and nothing else: write its "
            "address and database there, and the password into .pgpass."
        )
    try:
        import pyarrow  # noqa: F401
        from adbc_driver_postgresql import dbapi
    except ModuleNotFoundError:
        raise BadInput(
            f"data.root={root} is a PostgreSQL database, whose driver is not installed: pip install 'ghar[postgresql]'."
        ) from None
    with _named(root):
        base = dbapi.connect(f"service={service} options='{OPTIONS}'")
    try:
        yield PostgreSQLBase(service, base)
    finally:
        base.close()


@contextmanager
def _named(root: str) -> Iterator[None]:
    """What the server or its driver says, as one sentence."""
    from adbc_driver_postgresql.dbapi import Error
    from pyarrow import ArrowException

    try:
        yield
    except (Error, ArrowException) as error:  # the latter where the server is lost midway
        first = re.split(r"ERROR: |FATAL: ", str(error).splitlines()[0])[-1].strip()
        raise BadInput(
            f"{root} cannot be read ({first}): correct its part of pg_service.conf, or what the user of it may read."
        ) from error
