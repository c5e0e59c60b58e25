"""PostgreSQL in the place of a folder, by the name of a service: the same cohort and samples. Needs a server."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from ghar.config import DataConfig
from ghar.data.cohort import Cohort
from ghar.data.readers.database import is_database
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.source import origin, read_source
from ghar.envs.records import Records
from ghar.errors import BadInput
from ghar.inputs import missing
from ghar.launch.entry import load

pytest.importorskip("adbc_driver_postgresql", reason="the driver is not installed (pip install 'ghar[postgresql]')")
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (pip install 'ghar[duckdb]')")
TYPES = {"DOUBLE": "double precision", "VARCHAR": "text"}  # DuckDB's names of what PostgreSQL calls otherwise


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """Folder of a server's socket, a server of this test's own; skips where there is none to start."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin")) or [Path(shutil.which("initdb") or "/none/x").parent]
    if not (found[-1] / "initdb").exists():
        pytest.skip("no PostgreSQL server is installed (apt-get install postgresql)")
    user = "postgres" if os.getuid() == 0 else None  # it refuses to run as root
    with tempfile.TemporaryDirectory(prefix="ghar-postgresql-", dir="/tmp") as folder:
        if user is not None:
            shutil.chown(folder, user)
        data = f"{folder}/data"

        def run(*command: str) -> None:
            subprocess.run([f"{found[-1]}/{command[0]}", *command[1:]], check=True, user=user, cwd=folder,
                           stdout=subprocess.DEVNULL)  # fmt: skip

        run("initdb", "-D", data, "-A", "trust", "-U", "me")
        run("pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", f"-k {folder} -c listen_addresses=", "start")
        try:
            yield Path(folder)
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")


@pytest.fixture
def service(server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A service whose file and password stand where libpq looks for them, of an empty database."""
    (tmp_path / "pg_service.conf").write_text(f"[hospital]\nhost={server}\ndbname=postgres\nuser=me\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "pg_service.conf"))
    from adbc_driver_postgresql import dbapi

    with dbapi.connect("service=hospital", autocommit=True) as base, base.cursor() as cursor:
        cursor.execute("SELECT nspname::text FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$)'")
        for (name,) in cursor.fetchall():
            cursor.execute(f'DROP SCHEMA "{name}" CASCADE')
        cursor.execute("CREATE SCHEMA public")
    return "postgresql:hospital"


def write_database(root: Path, *, text: bool, schemas: str) -> None:
    """Every csv or csv.gz below a folder as a table: its cells as text, or in the types that DuckDB guesses."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect("service=hospital", autocommit=True) as base, base.cursor() as cursor:
        for file in sorted(root.rglob("*.csv*")):
            schema, name = schemas.format(file.parent.name), file.name.partition(".")[0]
            read = duckdb.sql(f"FROM read_csv('{file}', header=true, all_varchar={text})")
            pairs = zip(read.columns, map(str, read.types), strict=True)
            columns = ", ".join(f'"{column}" {TYPES.get(kind, kind)}' for column, kind in pairs)
            cursor.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            cursor.execute(f'CREATE TABLE "{schema}"."{name}" ({columns})')
            cursor.adbc_ingest(name, read.to_arrow_table(), mode="append", db_schema_name=schema)


def same_rows(one: Cohort, other: Cohort) -> bool:
    """Whether both have the same events, in whatever order those of one time come: a database's rows have none."""
    a, b = (cohort.events.sort(pl.all()) for cohort in (one, other))
    same = a.equals(b) and one.visits.equals(other.visits) and one.codes.equals(other.codes)
    return same and dict(one.counts) == dict(other.counts)


def data(name: str, root: str, cache: Path) -> DataConfig:
    return load([f"data={name}", f"data.root={root}", f"data.cache={cache}"]).data


@pytest.mark.slow
@pytest.mark.parametrize("text, schemas", [(True, "mimiciv_{}"), (False, "public")], ids=["as text", "typed"])
def test_small_tables(
    service: str, tmp_path: Path, write_tables: Callable[..., Path], text: bool, schemas: str
) -> None:
    from adbc_driver_postgresql import dbapi

    root = write_tables(tmp_path / "tables")
    write_database(root, text=text, schemas=schemas)
    config = data("mimic4", service, tmp_path / "cache")
    assert is_database(Path(service)) and origin(config).credentialed
    assert same_rows(read_source(config), read_mimic4(root))
    [copied] = (tmp_path / "cache" / "databases").iterdir()
    schema = schemas.format("hosp")
    with dbapi.connect("service=hospital", autocommit=True) as base, base.cursor() as cursor:
        cursor.execute(f'DELETE FROM "{schema}".admissions')
        cursor.execute("SELECT pg_stat_force_next_flush()")
    with pytest.raises(BadInput, match="admissions"):
        read_source(config)  # not the copy of what was there before
    assert len(list(copied.parent.iterdir())) == 2


@pytest.mark.slow
def test_the_open_demo_gives_the_same_samples(service: str, demo: Path, tmp_path: Path) -> None:
    """Prompts of the open MIMIC-IV demo, whose tables MIMIC's own script puts into schemas mimiciv_hosp and _icu."""
    write_database(demo, text=False, schemas="mimiciv_{}")
    keys = ("data=mimic4", f"data.cache={tmp_path / 'cache'}", "task=read", "env.prompts=full")
    mine, theirs = (Records(load([*keys, f"data.root={root}"])) for root in (service, demo))
    assert mine.splits == theirs.splits
    assert same_rows(mine.charted_source, theirs.charted_source)
    again = read_source(data("mimic4", service, tmp_path / "again"))
    assert again.events.equals(mine.charted_source.events)  # but one order each time


@pytest.mark.slow
def test_what_cannot_be_read_is_one_sentence(service: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(BadInput, match="has no table hosp/patients"):
        read_source(data("mimic4", service, cache))
    with pytest.raises(BadInput, match=r"postgresql:elsewhere cannot be read \(.*elsewhere.*\): correct its part of"):
        read_source(data("mimic4", "postgresql:elsewhere", cache))


def test_a_launcher_looks_for_no_such_file() -> None:
    assert missing(load(["data=mimic4", "data.root=postgresql:hospital"]), training=False) == []


@pytest.mark.parametrize("name", ["host=a.example password=hunter2", "me@host", ""])
def test_a_service_is_a_name_and_nothing_else(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="takes the name of a service") as refused:
        read_source(data("mimic4", f"'postgresql:{name}'", tmp_path))
    assert "hunter2" not in str(refused.value)
