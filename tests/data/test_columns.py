"""Every column of the open demos has an owner, and the readers have no other list of columns than the declarations."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from ghar.data.groups import STAYS
from ghar.data.mapping import KEYS, ORDERS
from ghar.data.readers.columns import SourceColumns, open_declared
from ghar.data.readers.eicu_columns import EICU
from ghar.data.readers.mimic3_columns import MIMIC3
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.data.readers.omop_columns import OMOP
from ghar.data.readers.tables import SUFFIXES, columns_of, sift
from ghar.errors import BadInput
from ghar.launch.columns import page

ROOT = Path(__file__).resolve().parents[2]
DEMOS = {"mimic-iii-demo-1.4": MIMIC3, "mimic-iv-demo-2.2": MIMIC4, "eicu-crd-demo-2.0.1": EICU}
FOLDERS = ("", "hosp", "icu", "ed", "note", "subset_174_stays")  # below a demo's root
DIRECT = {"columns.py", "open_demos.py"}  # the latter opens a table's ids alone, to know the demo


def tables_in(folder: Path) -> dict[str, Path]:
    """Name -> folder of every table below a demo's root."""
    found = {}
    for path in sorted(folder.rglob("*")):
        suffix = next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)
        if suffix is not None and path.is_file():
            place = str(path.parent.relative_to(folder)) if path.parent != folder else ""
            assert place in FOLDERS, path
            name = path.name.lower().removesuffix(suffix)
            found[name if place in ("", "subset_174_stays") else f"{place}/{name}"] = path.parent
    return found


@pytest.mark.parametrize("demo", DEMOS)
def test_every_column_of_the_open_demos_has_an_owner(shared_data: Path, demo: str) -> None:
    source = DEMOS[demo]
    tables = tables_in(shared_data / demo)
    assert len(tables) > 25, sorted(tables)
    missing = {}
    for name, folder in tables.items():
        columns = columns_of(folder if "/" not in name else folder.parent, name)
        assert columns, name
        if found := source.undecided(name, sorted(columns)):
            missing[name] = found
    assert not missing


@pytest.mark.parametrize("source", [*DEMOS.values(), OMOP], ids=[*DEMOS, "omop"])
def test_a_column_has_one_owner(source: SourceColumns) -> None:
    for name, table in source.tables.items():
        owned = [*table.read, *table.optional, *table.drug_keys, *{*table.records, *table.groups}, *table.years]
        owned += [column for names in table.ignored.values() for column in names.split()]
        assert len(owned) == len(set(owned)), name
    assert not source.unread_tables & set(source.tables)


def test_a_column_or_table_without_a_decision_is_found() -> None:
    assert MIMIC4.undecided("hosp/labevents", ["ItemID", "new"]) == ["new"]
    assert MIMIC4.undecided("hosp/never_seen", ["subject_id"]) == ["subject_id"]
    assert not MIMIC4.undecided("hosp/poe", ["anything"])


@pytest.mark.slow
def test_tables_are_opened_by_the_declarations_alone() -> None:
    direct = set()
    for path in (ROOT / "ghar").rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if any(isinstance(call, ast.Name) and call.id == "open_table" for call in calls):
            direct.add(path.name)
    assert direct == DIRECT


@pytest.mark.parametrize("source", [MIMIC3, MIMIC4], ids=["mimic3", "mimic4"])
def test_a_table_declared_as_never_empty_is_refused_without_a_row(tmp_path: Path, source: SourceColumns) -> None:
    declared = [name for name, table in source.tables.items() if table.never_empty]
    assert len(declared) == 1
    for name in declared:
        path = tmp_path / f"{name}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(",".join(source.tables[name].read) + "\n")
        table = open_declared(tmp_path, source, name)
        with pytest.raises(BadInput, match="has a header and no row, and no hospital has none"):
            sift(table, table.rows, {}, {}, [pl.all()])


def test_columns_for_other_purposes_are_those_declared() -> None:
    for name, (source, columns) in ORDERS.items():
        there = {*columns.values(), *(key for key in KEYS if key not in columns)}
        assert set(source.tables[name].drug_keys) == there - set(source.tables[name].read) & source.tables[name].decided
    for name in {name for _, name, *_ in STAYS}:
        rows = [(source, wanted) for source, table, _, *wanted in STAYS if table == name]
        asked = {column for _, wanted in rows for column in wanted if column is not None}
        assert asked == set(rows[0][0].tables[name].groups)


def test_a_column_nobody_decided_on_is_counted(tmp_path: Path, write_tables: Callable[..., Path]) -> None:
    path = write_tables(tmp_path) / "hosp" / "prescriptions.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line + (",surprise" if i == 0 else ",1") for i, line in enumerate(lines)) + "\n")
    assert read_mimic4(tmp_path).counts["undecided.prescriptions.columns"] == 1


def test_the_page_is_made_of_the_declarations() -> None:
    assert (ROOT / "docs" / "columns.md").read_text() == page()
