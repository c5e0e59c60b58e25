"""One table of a source folder: found, opened lazily with the wanted columns, filtered by named and counted rules.

Every clinical reader is written on these functions, so that bad input is refused in one way (a BadInput that names
file, row and column) and no row disappears without a count.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TypedDict

import polars as pl

from ghar.data.readers.damage import PEEK, LineCount, check_line_ends, first_bad_line, first_bytes
from ghar.data.readers.layouts import is_foreign, looks_like, places, seen
from ghar.disk import stamp
from ghar.errors import BadInput

SUFFIXES = (".csv.gz", ".csv", ".csv.zst", ".parquet")
HELD = 2_000_000  # rows of one table in memory: 140 MB of events
BATCH = 100_000  # rows of a table that are judged at once
ROW_GROUP = 250_000  # rows a reader of Parquet can skip when none is of the patients it looks for
LAYOUT = 5  # of a cohort on disk (cache.py), and what cells are taken for here; part of the cache key
YEARS = (1800, 2500)  # of every source, its shifts into the future and (MIMIC-III's oldest) the past included
ALL_BELOW = "**"  # in a path: this folder and all below it
STRANGE = "_strange_date"  # column of `SourceTable.rows`: whether a date of that row is outside of YEARS


class TextForm(TypedDict, total=False):
    """How a text file divides its cells, as polars is told."""

    separator: str
    quote_char: str | None


@dataclass(frozen=True)
class SourceTable:
    """A table that exists: its name in messages and counts, its file, the wanted columns with their types, its rows.

    cells: rows that a line of the file becomes, where each of several columns is a row of its own. undecided: columns
    of the file that nobody decided on; never_empty: whether no source has it without a row (both columns.py)."""

    name: str
    path: Path
    columns: Mapping[str, pl.DataType]
    rows: pl.LazyFrame
    cells: int = 1
    undecided: int = 0
    never_empty: bool = False


def find_table(root: Path, name: str) -> Path | None:
    """File of the table `name` ("hosp/admissions") as csv.gz, csv, csv.zst or parquet, in any letter case, and where
    else it may lie (`places`).

    None where it is absent; BadInput where it is there in two forms, which may differ.
    """
    folder, _, stem = name.rpartition("/")
    paths: list[Path] = []
    for place in places(root, folder):
        wanted = {stem + suffix: i for i, suffix in enumerate(SUFFIXES)}
        here = [path for path in _files(root, place) if path.name.lower() in wanted]
        paths = paths or sorted(here, key=lambda path: (wanted[path.name.lower()], str(path)))
    if len(paths) > 1:
        place = paths[0].parent
        names = " and ".join(str(path.relative_to(place if path.parent == place else place.parent)) for path in paths)
        raise BadInput(f"{place} holds the table {name} more than once, as {names}: keep one of them there.")
    return paths[0] if paths else None


def _files(root: Path, folder: str) -> list[Path]:
    """What lies in `folder` below root, whatever the case of its letters; nothing where there is no such folder."""
    if not root.is_dir():
        return []
    places = [root] if not folder else [p for p in root.iterdir() if p.name.lower() == folder and p.is_dir()]
    return [path for place in places for path in place.iterdir()]


def _root_nearby(root: Path, name: str) -> Path | None:
    """The folder one or two levels off that has the table: the parent of root=hosp, a version's folder below root. Not
    one of another source, which has a table of that name."""
    below = _folders(root)
    deeper = [path for folder in below for path in _folders(folder)]
    candidates = (root.absolute().parent, *below, *deeper)
    return next((place for place in candidates if _has(place, name) and not is_foreign(place, name)), None)


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir())
    except OSError:  # absent, or not ours to look into
        return []


def _has(place: Path, name: str) -> bool:
    try:
        return find_table(place, name) is not None
    except (BadInput, OSError):  # this is only a look for a better place
        return False


def columns_of(root: Path, name: str) -> set[str]:
    """The columns (lower case) that a table has; none where it is absent."""
    path = find_table(root, name)
    return set() if path is None else {column.lower().strip() for column in _header(path)}


def open_table(root: Path, name: str, columns: Mapping[str, pl.DataType]) -> SourceTable:
    """Open a table lazily with `columns` (lower case), in the given types; nothing but the header is read.

    Empty fields, quoted or not, are null; dates without a time are midnight; a date outside of YEARS is null, and its
    row marked in the further column STRANGE. Raises BadInput for a table or column that is absent.
    """
    path = find_table(root, name)
    if path is None:
        kinds, better = ", ".join(SUFFIXES), _root_nearby(root, name)
        mend = f"set data.root to {better}" if better is not None else looks_like(root, name)
        mend = mend or f"point data.root to the folder that contains it ({seen(root)})"
        raise BadInput(f"{root} has no table {name} ({kinds}): {mend}.")
    check_line_ends(path)
    spelling = {column.lower().strip(): column for column in _header(path)}
    absent = [column for column in columns if column not in spelling]
    if absent:
        if any("\n" in column for column in spelling):
            raise BadInput(f"{path} has no sound header: {_damage(path)}.")
        mend = looks_like(root, name) or "check the version"
        raise BadInput(f"{path} has no column {', '.join(absent)} (it has {', '.join(spelling)}): {mend}.")
    if path.suffix == ".parquet":
        scan = pl.scan_parquet(path, glob=False)
    else:
        numbers = {spelling[c]: kind for c, kind in columns.items() if kind.is_numeric()}
        written = _written_as_decimals(path, [name for name, kind in numbers.items() if kind.is_integer()])
        scan = _scan_text(path, {name: kind for name, kind in numbers.items() if name not in written})
    source = scan.collect_schema()
    rows = scan.select(_typed(pl.col(spelling[c]), source[spelling[c]], kind).alias(c) for c, kind in columns.items())
    return SourceTable(name.rpartition("/")[2], path, dict(columns), _sound_dates(rows, columns))


def _written_as_decimals(path: Path, names: Sequence[str]) -> set[str]:
    """The columns of whole numbers that begin with cells such as 22595853.0, as pandas writes a column with gaps.

    Only these are read as text and then as numbers, which takes longer; a later such cell elsewhere is refused.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            lines = file.read(PEEK).rpartition(b"\n")[0]
        form = text_form(lines)
        frame = pl.read_csv(lines, columns=list(names), infer_schema=False, truncate_ragged_lines=True, **form)
    except (pl.exceptions.PolarsError, OSError, EOFError, zlib.error):
        return set()  # empty, damaged or packed otherwise: who reads it says so
    return {name for name in names if frame[name].str.contains(r"^\s*[0-9]+\.0*\s*$").any()}


def _sound_dates(rows: pl.LazyFrame, columns: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """Dates outside of YEARS as null, and the column STRANGE, where the table has dates."""
    dates = [pl.col(name) for name, kind in columns.items() if kind == pl.Datetime]
    if not dates:
        return rows
    sound = [in_years(date) for date in dates]
    return rows.with_columns(
        *(pl.when(fine).then(date) for date, fine in zip(dates, sound, strict=True)),
        pl.any_horizontal(~fine for fine in sound).fill_null(False).alias(STRANGE),
    )


def in_years(date: pl.Expr) -> pl.Expr:
    """Whether a date is one of YEARS; null without a date."""
    return date.is_between(*(pl.datetime(year, 1, 1) for year in (YEARS[0], YEARS[1] + 1)), closed="left")


def sift(
    table: SourceTable,
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
    table: SourceTable,
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
    return pl.concat([*([pl.scan_parquet(files, glob=False)] if files else []), pl.concat(held).lazy()]), counts


def _sift(
    table: SourceTable,
    rows: pl.LazyFrame,
    drops: Mapping[str, pl.Expr],
    repairs: Mapping[str, pl.Expr],
    result: Iterable[pl.Expr],
    keep: Callable[[pl.DataFrame], None],
) -> dict[str, int]:
    """Give the rows to `keep`, batch by batch (an empty one first), and return the counts."""
    if STRANGE in rows.collect_schema():
        repairs = {**repairs, "date_out_of_range": pl.col(STRANGE)}
    broken = [pl.when(rule.fill_null(False)).then(pl.lit(i, pl.Int8)) for i, rule in enumerate(drops.values())]
    reason = pl.coalesce(*broken).alias("_reason") if broken else pl.lit(None, pl.Int8).alias("_reason")
    flags = {f"_repair{i}": rule.fill_null(False) for i, rule in enumerate(repairs.values())}
    judged = rows.select(*result, reason, **flags)  # in one step, so that what several of them need is made once
    dropped, repaired, kept = Counter[int](), Counter[str](), 0
    lines = LineCount(table.path)
    keep(judged.collect_schema().to_frame(eager=True).drop("_reason", *flags))
    try:
        # In batches, because two queries on one scan would keep all its rows in memory for the slower one.
        for batch in judged.collect_batches(maintain_order=True, engine="streaming", chunk_size=BATCH):
            good = batch
            if batch["_reason"].null_count() < batch.height:
                dropped.update(dict(batch["_reason"].drop_nulls().value_counts().rows()))
                good = batch.filter(pl.col("_reason").is_null())
            kept += good.height
            repaired.update(good.select(pl.col(list(flags)).sum()).row(0, named=True) if flags else {})
            keep(good.drop("_reason", *flags))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise explain(table, error) from error
    total = kept + sum(dropped.values())
    counts = {f"rows.{table.name}": total} | _joined(table, lines.wait(), total)
    counts |= {} if total else _empty(table)
    counts |= {f"undecided.{table.name}.columns": table.undecided} if table.undecided else {}
    counts |= {f"dropped.{table.name}.{name}": dropped[i] for i, name in enumerate(drops) if dropped[i]}
    repairs_made = zip(repairs, flags, strict=True)
    return counts | {f"repaired.{table.name}.{name}": repaired[flag] for name, flag in repairs_made if repaired[flag]}


def _empty(table: SourceTable) -> dict[str, int]:
    """A sentence on the screen and a count for a table that has a header and no row: it may have been cut short.
    BadInput for one that is never empty at its source."""
    if table.never_empty:
        raise BadInput(f"{table.path} has a header and no row, and no hospital has none: copy the table again.")
    print(f"{table.path} has a header and no row: copy the table again unless it is empty at its source.",
          file=sys.stderr)  # fmt: skip
    return {f"empty.{table.name}": 1}


def _joined(table: SourceTable, lines: int | None, rows: int) -> dict[str, int]:
    """How many lines of the file are no rows of their own, because quotes join them. BadInput where none is a row."""
    missing = (lines or 0) - rows // table.cells
    if missing <= 0:
        return {}
    if rows == 0:
        raise BadInput(f"{table.path} has {missing} lines and no row: {_damage(table.path)}.")
    return {f"joined.{table.name}.lines": missing}


def _damage(path: Path) -> str:
    """The first bad line, and what to do."""
    bad = first_bad_line(path)
    if bad is None:
        return "copy the file again"
    where = f"line {bad[0]} below the header" if bad[0] else "the header"
    return f"{where} {bad[1]}: correct it"


def fingerprint(files: Iterable[Path], version: str) -> str:
    """Sixteen hex digits that change when a file's name, size or times do, or the reader's `version`."""
    seen = sorted((path.name, *stamp(path)) for path in files)
    return hashlib.sha256(repr((LAYOUT, version, seen)).encode()).hexdigest()[:16]


def _scan_text(path: Path, kinds: Mapping[str, pl.DataType] | None = None) -> pl.LazyFrame:
    """The cells of a csv file as text, those of `kinds` in their types."""
    return pl.scan_csv(path, schema_overrides=kinds, infer_schema=False, glob=False, **text_form(first_bytes(path)))


def text_form(begin: bytes) -> TextForm:
    """How a file that begins so divides its cells: by commas, or by tabs without quotes, as OMOP's vocabularies do."""
    header = begin.partition(b"\n")[0]
    return {"separator": "\t", "quote_char": None} if b"\t" in header and b"," not in header else {}


def _header(path: Path) -> list[str]:
    try:
        scan = pl.scan_parquet(path, glob=False) if path.suffix == ".parquet" else _scan_text(path)
        return scan.collect_schema().names()
    except pl.exceptions.NoDataError:
        raise BadInput(f"{path} is empty: copy the table again.") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BadInput(f"{path} cannot be read ({_first_line(error)}): {_damage(path)}.") from error


def _typed(column: pl.Expr, source: pl.DataType, kind: pl.DataType, *, strict: bool = True) -> pl.Expr:
    """The column as `kind`; a text that does not parse is an error of the query, or null where it is not `strict`."""
    if source != pl.String:
        return column.cast(kind)
    # First what nearly every cell is; the other forms are tried on the few that are left.
    if kind == pl.Datetime:
        return column.map_batches(partial(_dates, strict=strict), return_dtype=kind, is_elementwise=True)
    if kind.is_integer():
        whole = column.cast(kind, strict=False)
        rest = pl.when(whole.is_null()).then(column).str.strip_chars().str.replace(r"\.0*$", "")
        return pl.coalesce(whole, pl.when(rest != "").then(rest).cast(kind, strict=strict))
    if kind.is_float():
        return pl.when(column != "").then(column).cast(kind, strict=strict)
    return pl.when(column != "").then(column)


def _dates(column: pl.Series, *, strict: bool) -> pl.Series:
    """The column as dates. Explicit formats: six times faster than polars' inference, and 02/09/2137 is refused instead
    of guessed. Other forms than the usual one are tried where some cell needs them, which takes three times as long."""
    if column.str.contains(":60", literal=True).any():  # polars would read a leap second as the minute after
        column = column.str.replace(":60", ":no time", literal=True)
    full = column.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False, cache=False)
    if full.null_count() == column.null_count():
        return full
    cell, date = pl.col("cell"), pl.col("date")
    rest = pl.when(date.is_null() & (cell != "")).then(cell).str.replace("T", " ", literal=True)
    fine = rest.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    days = pl.when(fine.is_null()).then(rest).str.to_date("%Y-%m-%d", strict=strict)
    frame = pl.DataFrame({"cell": column, "date": full})
    return frame.select(pl.coalesce(date, fine, days.cast(full.dtype))).to_series()


def explain(table: SourceTable, error: Exception) -> BadInput:
    """Say what is wrong with a table that a query could not read: the first cell that does not parse; polars itself
    says neither row nor file."""
    if isinstance(error, OSError):
        return BadInput(f"{table.path} is cut short or damaged ({_first_line(error)}): copy the file again.")
    for (column, kind), path in product(table.columns.items(), _files_of(table)):
        bad = _first_bad_cell(path, column, kind)
        if bad is not None:
            where = f"{path}, row {bad[0]} below the header, column {column}"
            return BadInput(f"{where}: {bad[1]!r} is not {_wanted(kind)}: correct that row.")
    return BadInput(f"{table.path} cannot be read ({_first_line(error)}): {_damage(table.path)}.")


def _files_of(table: SourceTable) -> list[Path]:
    """The file of a table, or the shards of MEDS's events, whose path says where they lie (data/**/*.parquet)."""
    parts = table.path.parts
    if ALL_BELOW not in parts:
        return [table.path]
    return sorted(Path(*parts[: parts.index(ALL_BELOW)]).rglob(table.path.name))


def _first_bad_cell(path: Path, column: str, kind: pl.DataType) -> tuple[int, str] | None:
    """Row (from 1) and text of the first cell that is not of `kind`."""
    scan = pl.scan_parquet(path, glob=False) if path.suffix == ".parquet" else _scan_text(path)
    name = next(n for n in scan.collect_schema().names() if n.lower().strip() == column)
    text = pl.col("text")
    parsed = _typed(text, pl.String(), kind, strict=False)
    cells = scan.select(pl.col(name).cast(pl.String).alias("text")).with_row_index("row", offset=1)
    try:
        bad = cells.filter((text.str.strip_chars() != "") & parsed.is_null()).head(1).collect()
    except (pl.exceptions.PolarsError, OSError):
        return None
    return bad.row(0) if bad.height else None


def _wanted(kind: pl.DataType) -> str:
    if kind == pl.Datetime:
        return "a date (YYYY-MM-DD hh:mm:ss or YYYY-MM-DD)"
    return "a whole number" if kind.is_integer() else "a number"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
