"""Parquet files of a MEDS folder: their columns in the wanted types, or a sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from ghar.errors import BadInput

TIME = pl.Datetime("us")
PARQUET = b"PAR1"  # the first bytes of every Parquet file


def scan(
    path: Path,
    required: Mapping[str, pl.DataType],
    optional: Mapping[str, pl.DataType],
    loose: Mapping[str, pl.DataType] | None = None,
    advice: str = "is it MEDS 0.3 or 0.4?",
) -> pl.LazyFrame:
    """The wanted columns in the wanted types; optional ones that are absent are null. BadInput for any other file.

    loose: columns outside of MEDS, of any type in the file; what cannot be taken for the wanted type is null.
    advice: ends the sentence about a required column that is absent.
    """
    schema = schema_of(path)
    absent = [name for name in required if name not in schema]
    if absent:
        raise BadInput(f"{path} has no column {', '.join(absent)} (it has {', '.join(schema)}): {advice}")
    columns = []
    for name, kind in {**required, **optional}.items():
        if name not in schema:
            columns.append(pl.lit(None, kind).alias(name))
        elif not fits(schema[name], kind):
            raise BadInput(f"{path}: column {name} is {schema[name]}, MEDS wants {kind}: convert that column.")
        else:
            columns.append(pl.col(name).cast(kind))
    for name, kind in (loose or {}).items():
        there = pl.col(name).cast(kind, strict=False) if name in schema else pl.lit(None, kind)
        columns.append(there.alias(name))
    return pl.scan_parquet(path, glob=False).select(columns)


def schema_of(path: Path) -> Mapping[str, pl.DataType]:
    """Names and types of the columns. BadInput for a file that cannot be read."""
    try:
        return pl.scan_parquet(path, glob=False).collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        if _is_other_format(path):
            raise BadInput(f"{path} is no Parquet file: convert it to Parquet.") from error
        raise BadInput(f"{path} cannot be read ({str(error).splitlines()[0]}): copy the file again.") from error


def _is_other_format(path: Path) -> bool:
    """Whether a file does not begin as Parquet does; one that was cut short at its end still does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(PARQUET)) != PARQUET


def fits(given: pl.DataType, wanted: pl.DataType) -> bool:
    """Whether a column can be taken for the wanted type without changing what it says."""
    if given == pl.Null or given == wanted:
        return True
    if wanted.is_temporal():
        return given == pl.Date or (isinstance(given, pl.Datetime) and given.time_zone is None)
    if wanted.is_integer():
        return given.is_integer()
    if wanted.is_float():
        return given.is_numeric()
    return wanted == pl.String and isinstance(given, pl.Categorical | pl.Enum)
