"""What the clinical readers share: the columns of an event, their order, the table of codes, the way to the cache."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.ranges import SubjectRange, subject_ranges
from ghar.data.readers.cache import EVENTS, load_cohort, scan_events, store_cohort
from ghar.data.readers.tables import ROW_GROUP, SourceTable, find_table, fingerprint, sift
from ghar.errors import BadInput
from ghar.seal import sound

I64, F64, TEXT, TIME = pl.Int64(), pl.Float64(), pl.String(), pl.Datetime("us")
OWN_NAMES = "^(DRUG|DILUENT|ICU_ADMISSION)/"  # codes whose own text is their name, whatever the source
SORTED = 3_000_000  # events sorted at once, which takes about 0.7 GB
RANK = "_rank"  # further column of a part whose events of one time stand in an order of their own (`by_rank`)
UNRANKED = 2**62  # after all that have a number
CountedRows = tuple[pl.DataFrame, dict[str, int]]  # with counts of what was left out or mended
LazyRows = tuple[pl.LazyFrame, dict[str, int]]  # the same; may be on disk


def event(
    time: pl.Expr,
    code: pl.Expr,
    recorded: pl.Expr,
    number: pl.Expr | None = None,
    text: pl.Expr | None = None,
    visit: str = "hadm_id",
) -> list[pl.Expr]:
    """Columns of `Cohort.events`; `visit` is the column that holds the visit."""
    return [
        pl.col("subject_id"),
        time.alias("time"),
        code.alias("code"),
        (pl.lit(None, pl.Float32) if number is None else number.cast(pl.Float32)).alias("numeric_value"),
        (pl.lit(None, pl.String) if text is None else text).alias("text_value"),
        pl.col(visit).alias("visit_id"),
        recorded.alias("recorded"),
    ]


def with_drug_code(rows: pl.LazyFrame, name: str) -> pl.LazyFrame:
    """The rows with the column `drug_code`: a drug's name in lower case, without blanks around it; null if blank.

    A column and no expression, which polars would evaluate again wherever a rule and a result need it.
    """
    rows = rows.with_columns(drug_code=pl.col(name).str.strip_chars().str.to_lowercase())
    named = pl.col("drug_code") != ""
    return rows.with_columns(drug_code=pl.when(named).then(pl.concat_str(pl.lit("DRUG/"), "drug_code")))


def words(value: pl.Expr, number: pl.Expr) -> pl.Expr:
    """The text of a value where it does not merely repeat the number; most do, and are not worth their memory."""
    return pl.when((value.cast(pl.Float64, strict=False) != number).fill_null(True)).then(value)


def finite(number: pl.Expr) -> pl.Expr:
    """The number, null where it is NaN or infinite."""
    return pl.when(number.is_finite()).then(number)


def stacked(parts: Sequence[pl.DataFrame | pl.LazyFrame]) -> pl.LazyFrame:
    """All events, part by part, unread where they are on disk."""
    return pl.concat([part.lazy() for part in parts], how="diagonal")


def rank(number: str) -> pl.Expr:
    """The column RANK: the number at the end of the text in the column `number` ("10012853-28")."""
    return pl.col(number).str.extract(r"(\d{1,18})\s*$").cast(I64).fill_null(UNRANKED).alias(RANK)


def by_rank(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of one patient and time by their rank, those of one rank by code; rows without RANK keep their places.

    rows: by patient and time. So the rows have one order, whichever files they come from.
    """
    keys = rows.select("subject_id", "time", RANK, "code").with_row_index("_place")
    ranked = keys.filter(pl.col(RANK).is_not_null())
    moved = ranked.sort("subject_id", "time", RANK, "code", maintain_order=True)["_place"]
    rows = rows.drop(RANK)
    if (moved == ranked["_place"]).all():
        return rows
    return rows[keys["_place"].scatter(ranked["_place"], moved)]


def in_order(
    parts: Sequence[pl.DataFrame | pl.LazyFrame],
    work: Path,
    finish: Callable[[pl.DataFrame], pl.DataFrame] = lambda rows: rows,
) -> pl.LazyFrame:
    """All events by subject and time; those of one time in the order of `parts` and of RANK, static ones first.

    They are sorted range by range of subjects, about `SORTED` events at once, and written to the folder `work`. Tables
    on disk that are roughly in the order of subjects, as the sources are, are read once; others once a range. `finish`
    is given each range, sorted, before it is written.
    """
    events = stacked(parts)
    ranges = subject_ranges(events, SORTED) or [SubjectRange(0, 0, 0)]
    for i, part in enumerate(ranges):
        some = events if len(ranges) == 1 else part.of(events)
        rows = some.collect(engine="streaming").sort("subject_id", "time", maintain_order=True)
        rows = finish(rows)
        rows = by_rank(rows) if RANK in rows.columns else rows
        rows.write_parquet(work / EVENTS.format(i), compression="lz4", row_group_size=ROW_GROUP)
    return scan_events(work, len(ranges))


def code_table(events: pl.LazyFrame, names: Iterable[pl.DataFrame], own_names: str = OWN_NAMES) -> CountedRows:
    """Codes that occur, sorted, with the first of `names` (code, description) that knows them, else their own text.

    Counts "codes_without_name": the latter, but for codes matching `own_names`, whose text is their name.
    """
    code_names = pl.concat(names).unique("code", keep="first", maintain_order=True)
    seen = events.select("code").unique().collect(engine="streaming").sort("code")
    codes = seen.join(code_names, on="code", how="left", maintain_order="left")
    own, plain = pl.col("code").str.replace("^[^/]*/", ""), pl.col("code").str.contains(own_names)
    nameless = codes.select((pl.col("description").is_null() & ~plain).sum()).item()
    empty = pl.lit([], dtype=pl.List(pl.String))
    return codes.with_columns(pl.col("description").fill_null(own), parents=empty), {"codes_without_name": nameless}


def dictionary(table: SourceTable, code: pl.Expr, title: str) -> pl.DataFrame:
    """Names (code, description) in a table of the source; rows without code or name say nothing and are left out."""
    name = pl.col(title).str.strip_chars()
    drops = {"no_code": code.is_null(), "no_name": name.is_null() | (name == "")}
    return sift(table, table.rows, drops, {}, [code.alias("code"), name.alias("description")])[0]


def read_tables(
    root: Path,
    readers: Mapping[str, Callable[[], CountedRows | LazyRows]],
    optional: Container[str],
    advance: Callable[[], None],
) -> tuple[list[pl.DataFrame | pl.LazyFrame], dict[str, int]]:
    """The events of each table of `readers`, in their order, and what their rules counted; of an `optional` one that is
    not in `root` none, which is counted."""
    parts: list[pl.DataFrame | pl.LazyFrame] = []
    counts: dict[str, int] = {}
    for table, read in readers.items():
        if table in optional and find_table(root, table) is None:
            counts[f"absent.{table.rpartition('/')[2]}"] = 1
        else:
            events, part_counts = read()
            parts.append(events)
            counts |= part_counts
        advance()
    return parts, counts


def source_folder(root: Path, holds: str) -> Path:
    """The folder data.root. BadInput where there is none; holds: what it should contain."""
    if not Path(root).is_dir():
        raise BadInput(f"There is no folder {root}: point data.root to the folder that contains {holds}.")
    return Path(root)


def through_cache(
    read: Callable[[Path], Cohort],
    name: str,
    cache: Path | None,
    prefix: str,
    files: Iterable[Path | None],
    version: str,
) -> Cohort:
    """What `read` makes, or its copy under `cache`, keyed by names, sizes and times of the `files` that exist.

    `read` gets a folder for its work, where it leaves the events (`in_order`). Without a cache they come into memory.
    """
    if cache is None:
        with tempfile.TemporaryDirectory() as work:
            cohort = read(Path(work))
            return replace(cohort, table=cohort.events)
    there = [path for path in files if path is not None and path.exists()]
    folder = Path(cache) / f"{prefix}-{fingerprint(there, version)}"
    if not sound(folder):
        store_cohort(read, folder)
    return load_cohort(folder, name)
