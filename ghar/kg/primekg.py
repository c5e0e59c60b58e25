"""Read a graph in PrimeKG's format: one row per directed edge, 12 columns, csv, csv.gz or parquet; node types of any
names. Graphs of other shapes (Hetionet, SPOKE, plain triples) become such rows first (`ghar.kg.edges`).

PrimeKG lists every edge twice, once in each direction, so a reversed row is no second fact. The rule that picks one
orientation:
- between two types, when both directions occur, the head is of the type that comes first in the alphabet
  (drug - drug_protein - gene/protein); when only one occurs, it is kept;
- within one type, when both directions of an edge occur, the head is the node with the smaller x_index; when only
  one occurs, it is kept.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import polars as pl

from ghar.disk import stamp
from ghar.errors import BadInput
from ghar.kg.edges import as_primekg, nodes_beside, read_any
from ghar.kg.graph import FORMAT, KnowledgeGraph, build_graph
from ghar.seal import sound

NODE_COLUMNS = ("index", "id", "type", "name", "source")
COLUMNS = ("relation", "display_relation", *(f"{end}_{c}" for end in "xy" for c in NODE_COLUMNS))

VERSION = "primekg-2"  # part of the cache key: raise it when a rule changes


def graph_folder(path: Path, cache: Path) -> Path:
    """The folder of `cache` that holds the graph of a PrimeKG file, read now or when the file last changed."""
    path = Path(path).resolve()
    beside = nodes_beside(path)
    parts = (path if path.is_file() else None, beside)
    key = [VERSION, FORMAT, str(path), *(None if part is None else stamp(part) for part in parts)]
    folder = Path(cache) / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    if not sound(folder):
        read_primekg(path).save(folder)
    return folder


def open_primekg(path: Path, cache: Path) -> KnowledgeGraph:
    """`read_primekg`, memory-mapped from `cache`."""
    return KnowledgeGraph.load(graph_folder(path, cache))


def read_primekg(path: Path) -> KnowledgeGraph:
    """Read a PrimeKG file. `BadInput` names the file and the column or row (counted from 1 below the header)."""
    rows = primekg_rows(Path(path))
    nodes = _nodes(rows, path)
    return build_graph(nodes, _orient(rows))


def primekg_rows(path: Path) -> pl.DataFrame:
    """The 12 columns, made from other ones where the graph has another shape, checked; indexes are i64, the rest text.
    `BadInput` as for `read_primekg`."""
    rows = read_any(path)
    if rows.is_empty():
        raise BadInput(f"{path} has a header but no rows.")
    nested = [c for c in rows.columns if rows.schema[c].is_nested() or rows.schema[c] == pl.Binary]
    if nested:
        raise BadInput(f"{path}, column {nested[0]}: {rows.schema[nested[0]]} is not text; write it as text.")
    if not set(COLUMNS) <= set(rows.columns):
        rows = as_primekg(rows, path)
    return _check_values(rows.select(pl.col(COLUMNS).cast(pl.String)), path)


def _check_values(rows: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Nothing blank, indexes whole numbers; the indexes become i64."""
    for column in COLUMNS:
        blank = rows[column].is_null() | (rows[column].str.strip_chars() == "")
        _refuse(blank, path, column, "is blank", "fill it in or remove the row")
    numbers = rows.with_columns(pl.col("x_index", "y_index").cast(pl.Int64, strict=False))
    for column in ("x_index", "y_index"):
        bad = numbers[column].is_null()
        _refuse(bad, path, column, "is not a whole number", "number the nodes", rows[column])
    return numbers


def _refuse(bad: pl.Series, path: Path, column: str, what: str, advice: str, values: pl.Series | None = None) -> None:
    row = _first(bad)
    if row is not None:
        value = "the value" if values is None else repr(values[row])
        raise BadInput(f"{path}, row {row + 1}, column {column}: {value} {what}; {advice}.")


def _first(mask: pl.Series) -> int | None:
    return mask.arg_max() if mask.any() else None


def _nodes(rows: pl.DataFrame, path: Path) -> pl.DataFrame:
    """One row per node; `BadInput` when an index stands for two different nodes (a dangling row)."""
    ends = [rows.select(pl.col(f"{end}_{c}").alias(c) for c in NODE_COLUMNS) for end in "xy"]
    nodes = pl.concat([end.unique(maintain_order=True) for end in ends]).unique(maintain_order=True)
    if nodes["index"].n_unique() == nodes.height:
        return nodes
    first = nodes.unique("index", keep="first", maintain_order=True)
    for end, table in zip("xy", ends, strict=True):
        expected = table.select("index").join(first, on="index", how="left", maintain_order="left")
        for column in NODE_COLUMNS[1:]:
            row = _first(table[column] != expected[column])
            if row is not None:
                raise BadInput(
                    f"{path}, row {row + 1}, column {end}_{column}: node {table['index'][row]} is "
                    f"{table[column][row]!r} here and {expected[column][row]!r} elsewhere; give each node one {column}."
                )
    raise AssertionError("unreachable: two different rows share an index")


def _orient(rows: pl.DataFrame) -> pl.DataFrame:
    """Turn the edges by the rule at the top of this file. Columns: relation, display_relation, head, tail."""
    paths = rows.select("relation", "x_type", "y_type").unique()
    turned = paths.select("relation", x_type="y_type", y_type="x_type")
    both = turned.join(paths, on=["relation", "x_type", "y_type"], how="semi")
    flip = both.filter(pl.col.x_type > pl.col.y_type).with_columns(flip=pl.lit(True))
    rows = rows.join(flip, on=["relation", "x_type", "y_type"], how="left").with_columns(pl.col.flip.fill_null(False))
    same = rows.filter((pl.col.x_type == pl.col.y_type) & (pl.col.x_index > pl.col.y_index))
    mirror = same.select("relation", "display_relation", x_index="y_index", y_index="x_index")
    keys = ["relation", "display_relation", "x_index", "y_index"]
    paired = rows.select(keys).join(mirror, on=keys, how="semi")
    paired = paired.unique().select(*keys[:2], x_index="y_index", y_index="x_index", pair=pl.lit(True))
    rows = rows.join(paired, on=keys, how="left")
    turn = pl.col.flip | pl.col.pair.fill_null(False)
    return rows.select(
        "relation",
        "display_relation",
        head=pl.when(turn).then("y_index").otherwise("x_index"),
        tail=pl.when(turn).then("x_index").otherwise("y_index"),
    )
