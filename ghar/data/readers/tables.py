"""One table of a source folder: found, opened lazily with the wanted columns, filtered by named and counted rules.

Every clinical reader is written on these functions, so that bad input is refused in one way (a BadInput that names
file, row and column) and no row disappears without a count.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ghar.errors import BadInput

SUFFIXES = (".csv.gz", ".csv", ".parquet")
HELD = 2_000_000  # rows of one table in memory: 140 MB of events
ROW_GROUP = 250_000  # rows a reader of Parquet can skip when none is of the patients it looks for
LAYOUT = 3  # of a cohort on disk (cache.py); part of the cache key


@dataclass(frozen=True)
class Table:
    """A table that exists: its name in messages and counts, its file, the wanted columns with their types, its rows."""

    name: str
    path: Path
    columns: Mapping[str, pl.DataType]
    rows: pl.LazyFrame


def find_table(root: Path, name: str) -> Path | None:
    """File of the table `name` ("hosp/admissions") as csv.gz, csv or parquet, in any letter case; None if absent."""
    folder, _, stem = name.rpartition("/")
    here = {p.name.lower(): p for p in (root / folder).iterdir()} if (root / folder).is_dir() else {}
    return next((here[stem + suffix] for suffix in SUFFIXES if stem + suffix in here), None)


def open_table(root: Path, name: str, columns: Mapping[str, pl.DataType]) -> Table:
    """Open a table lazily with exactly `columns` (lower case), in the given types; nothing but the header is read.

    Empty fields are null, dates without a time are midnight. Raises BadInput for a table or column that is absent.
    """
    path = find_table(root, name)
    if path is None:
        kinds = ", ".join(SUFFIXES)
        raise BadInput(f"{root} has no table {name} ({kinds}): point data.root to the folder that contains it.")
    spelling = {column.lower().strip(): column for column in _header(path)}
    absent = [column for column in columns if column not in spelling]
    if absent:
        raise BadInput(f"{path} has no column {', '.join(absent)} (it has {', '.join(spelling)}): check the version.")
    if path.suffix == ".parquet":
        scan = pl.scan_parquet(path)
    else:
        numbers = {spelling[c]: kind for c, kind in columns.items() if kind.is_numeric()}
        scan = pl.scan_csv(path, schema_overrides=numbers, infer_schema=False)
    source = scan.collect_schema()
    rows = scan.select(_typed(spelling[c], source[spelling[c]], kind).alias(c) for c, kind in columns.items())
    return Table(name.rpartition("/")[2], path, dict(columns), rows)


def sift(
    table: Table,
    rows: pl.LazyFrame,
    drops: Mapping[str, pl.Expr],
    repairs: Mapping[str, pl.Expr],
    result: Iterable[pl.Expr],
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Read a table once: drop rows by the first rule that holds, count repairs among the others, select `result`.

    `rows` is `table.rows`, possibly joined with other frames. Counts: "rows.T" (in the file), "dropped.T.rule" and
    "repaired.T.rule", zeros left out; rows.T = rows returned + sum of dropped.T.*. A rule that is null does not hold.
    """
    kept: list[pl.DataFrame] = []
    counts = _sift(table, rows, drops, repairs, result, kept.append)
    return pl.concat(kept), counts


def sift_large(
    table: Table,
    rows: pl.LazyFrame,
    drops: Mapping[str, pl.Expr],
    repairs: Mapping[str, pl.Expr],
    result: Iterable[pl.Expr],
    work: Path,
) -> tuple[pl.LazyFrame, dict[str, int]]:
    """`sift` for a table that may not fit in memory: `HELD` rows are held, the others go to Parquet files in `work`."""
    held: list[pl.DataFrame] = []
    files: list[Path] = []

    def keep(batch: pl.DataFrame) -> None:
        held.append(batch)
        if sum(frame.height for frame in held) >= HELD:
            files.append(work / f"{table.name}-{len(files):04}.parquet")
            pl.concat(held).write_parquet(files[-1], compression="lz4", row_group_size=ROW_GROUP)
            held.clear()
            held.append(batch.clear())

    counts = _sift(table, rows, drops, repairs, result, keep)
    return pl.concat([*([pl.scan_parquet(files)] if files else []), pl.concat(held).lazy()]), counts


def _sift(
    table: Table,
    rows: pl.LazyFrame,
    drops: Mapping[str, pl.Expr],
    repairs: Mapping[str, pl.Expr],
    result: Iterable[pl.Expr],
    keep: Callable[[pl.DataFrame], None],
) -> dict[str, int]:
    """Give the rows to `keep`, batch by batch (an empty one first), and return the counts."""
    broken = [pl.when(rule.fill_null(False)).then(pl.lit(i, pl.Int8)) for i, rule in enumerate(drops.values())]
    reason = pl.coalesce(*broken).alias("_reason") if broken else pl.lit(None, pl.Int8).alias("_reason")
    flags = {f"_repair{i}": rule.fill_null(False) for i, rule in enumerate(repairs.values())}
    judged = rows.with_columns(reason).select(*result, "_reason", **flags)
    dropped, repaired = Counter(), Counter()
    keep(judged.collect_schema().to_frame(eager=True).drop("_reason", *flags))
    try:
        # In batches, because two queries on one scan would keep all its rows in memory for the slower one.
        for batch in judged.collect_batches(maintain_order=True, engine="streaming"):
            dropped.update(dict(batch["_reason"].value_counts().rows()))
            good = batch.filter(pl.col("_reason").is_null())
            repaired.update(good.select(pl.col(list(flags)).sum()).row(0, named=True) if flags else {})
            keep(good.drop("_reason", *flags))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _explain(table, error) from error
    counts = {f"rows.{table.name}": sum(dropped.values())}
    counts |= {f"dropped.{table.name}.{name}": dropped[i] for i, name in enumerate(drops) if dropped[i]}
    repairs_made = zip(repairs, flags, strict=True)
    return counts | {f"repaired.{table.name}.{name}": repaired[flag] for name, flag in repairs_made if repaired[flag]}


def fingerprint(files: Iterable[Path], version: str) -> str:
    """Sixteen hex digits that change when a file's name, size or modification time does, or the reader's `version`."""
    seen = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return hashlib.sha256(repr((LAYOUT, version, seen)).encode()).hexdigest()[:16]


def _header(path: Path) -> list[str]:
    try:
        scan = pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path, infer_schema=False)
        return scan.collect_schema().names()
    except pl.exceptions.NoDataError:
        raise BadInput(f"{path} is empty: copy the table again.") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BadInput(f"{path} cannot be read ({_first_line(error)}): copy the table again.") from error


def _typed(name: str, source: pl.DataType, kind: pl.DataType) -> pl.Expr:
    """The column as `kind`; a text that does not parse is an error of the query."""
    column = pl.col(name)
    if not (kind == pl.Datetime and source == pl.String):
        return column.cast(kind)
    # Explicit formats: six times faster than polars' inference, and 02/09/2137 is refused instead of guessed.
    full = column.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)
    rest = pl.when(full.is_null()).then(column).str.to_date("%Y-%m-%d", strict=True)
    return pl.coalesce(full, rest.cast(kind))


def _explain(table: Table, error: Exception) -> BadInput:
    """Look for the first cell that does not parse; polars itself says neither row nor file."""
    if isinstance(error, OSError):
        return BadInput(f"{table.path} is cut short or damaged ({_first_line(error)}): copy the file again.")
    for column, kind in table.columns.items():
        bad = _first_bad_cell(table.path, column, kind)
        if bad is not None:
            where = f"{table.path}, row {bad[0]} below the header, column {column}"
            return BadInput(f"{where}: {bad[1]!r} is not {_wanted(kind)}: correct that row.")
    return BadInput(f"{table.path} cannot be read ({_first_line(error)}): correct or copy the file again.")


def _first_bad_cell(path: Path, column: str, kind: pl.DataType) -> tuple[int, str] | None:
    """Row (from 1) and text of the first cell that is not of `kind`."""
    scan = pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path, infer_schema=False)
    name = next(n for n in scan.collect_schema().names() if n.lower().strip() == column)
    text = pl.col("text")
    if kind == pl.Datetime:
        times = [text.str.to_datetime(f, strict=False) for f in ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S")]
        parsed = pl.coalesce(*times, text.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime))
    else:
        parsed = text.str.strip_chars_start().cast(kind, strict=False)
    cells = scan.select(pl.col(name).cast(pl.String).alias("text")).with_row_index("row", offset=1)
    try:
        bad = cells.filter(text.is_not_null() & parsed.is_null()).head(1).collect()
    except (pl.exceptions.PolarsError, OSError):
        return None
    return bad.row(0) if bad.height else None


def _wanted(kind: pl.DataType) -> str:
    if kind == pl.Datetime:
        return "a date (YYYY-MM-DD hh:mm:ss or YYYY-MM-DD)"
    return "a whole number" if kind.is_integer() else "a number"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
