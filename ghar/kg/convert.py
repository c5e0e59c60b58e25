"""Any graph that `kg.path` takes as one table in PrimeKG's format, which every system reads; UMLS with its semantic
types, so that more than KARE's path search can use it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO, cast

import numpy as np
import polars as pl

from ghar.disk import whole
from ghar.errors import BadInput
from ghar.kg.primekg import COLUMNS, primekg_rows
from ghar.kg.umls import read_types, read_umls

FORMS = (".csv", ".csv.gz", ".parquet")


def convert(source: Path, target: Path) -> pl.DataFrame:
    """Write the graph in `source`, a table or a folder of UMLS, to the file `target`, whole or not at all.

    Returns the rows written, as text. Raises BadInput for what is no graph, and for a target of another form than FORMS
    or that is the source itself.
    """
    form = next((form for form in FORMS if target.name.endswith(form)), None)
    if form is None:
        raise BadInput(f"{target} is no table's name: let it end with {', '.join(FORMS)}.")
    if target.resolve() == source.resolve():
        raise BadInput(f"{target} is the graph that is read: name another file.")
    rows = _of_umls(source) if source.is_dir() else primekg_rows(source)
    rows = rows.select(pl.col(COLUMNS).cast(pl.String))
    with whole(target) as half:
        if form == ".parquet":
            rows.write_parquet(half)
        else:
            with gzip.open(half, "wb", 6) if form == ".csv.gz" else half.open("wb") as file:
                rows.write_csv(cast("IO[bytes]", file))
    return rows


def _of_umls(folder: Path) -> pl.DataFrame:
    """The facts of a folder of UMLS, each in the direction that its source asserts."""
    umls = read_umls(folder)
    graph, kinds = umls.graph, read_types(folder)
    nodes = pl.DataFrame({"cui": list(umls.cuis), "name": list(graph.names)}).with_row_index("node")
    nodes = nodes.with_columns(pl.col("node").cast(pl.String)).join(kinds, on="cui", how="left", maintain_order="left")
    lost = nodes.filter(pl.col("type").is_null())
    if lost.height:
        raise BadInput(f"{folder / 'MRSTY.RRF'} has no type of {lost.height} concepts, as {lost['cui'][0]}: extract it "
                       "from the same release.")  # fmt: skip
    relation = pl.Series(graph.relations).gather(np.asarray(graph.relation))
    rows = pl.DataFrame({"relation": relation.str.replace_all(" ", "_"), "display_relation": relation})
    for end, places in (("x", graph.head), ("y", graph.tail)):
        about = nodes[np.asarray(places)]
        columns = {"index": "node", "id": "cui", "type": "type", "name": "name"}
        rows = rows.with_columns(about[column].alias(f"{end}_{name}") for name, column in columns.items())
        rows = rows.with_columns(pl.lit("UMLS").alias(f"{end}_source"))
    return rows
