"""Graphs of other shapes as PrimeKG's rows: Hetionet, SPOKE's exports, and plain triples with types.

A table of edges has three columns by one of the names below, comma or tab between them. The type of a node stands in
columns of its own, or in a table of nodes beside it (a file whose name begins with "nodes": id, type, and a name where
there is one), or before two colons in its id ("Gene::9021", Hetionet). Types have PrimeKG's names where they mean the
same, because links from patients' codes look for diseases, phenotypes and drugs; any other type stays, in lower case.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ghar.errors import BadInput

ENDS = (  # names of head, relation, tail
    ("head", "relation", "tail"),
    ("subject", "predicate", "object"),
    ("source", "metaedge", "target"),
    ("source", "relation", "target"),
    ("source", "edge", "target"),
    ("source", "type", "target"),
    ("start", "type", "end"),
    (":start_id", ":type", ":end_id"),
)
IDS, NAMES = ("id", ":id", "identifier", "node"), ("name", "label", "preferred_name")
KINDS = ("type", "kind", "category", "node_type", "label", ":label")
SAME = {  # a type as others call it -> PrimeKG's name
    "compound": "drug", "chemical": "drug", "chemical/drug": "drug", "gene": "gene/protein", "protein": "gene/protein",
    "symptom": "effect/phenotype", "side effect": "effect/phenotype", "sideeffect": "effect/phenotype",
    "phenotype": "effect/phenotype", "biological process": "biological_process",
    "biologicalprocess": "biological_process", "cellular component": "cellular_component",
    "cellularcomponent": "cellular_component", "molecular function": "molecular_function",
    "molecularfunction": "molecular_function",
}  # fmt: skip
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".sif", ".sif.gz", ".txt", ".txt.gz", ".parquet")
FORMS = (
    "a graph is a table with PrimeKG's 12 columns (relation, display_relation, x_index, x_id, x_type, x_name, "
    "x_source, and the same of y), or with head, relation, tail, head_type, tail_type, or with head, relation, tail "
    "and a table nodes.csv beside it with id, name, type"
)


def read_any(path: Path) -> pl.DataFrame:
    """A table as text, commas or tabs; names of columns in lower case. BadInput for what is none."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file; kg.path must name a csv, tsv, csv.gz or parquet file of a graph.")
    try:
        if path.suffix == ".parquet":
            rows = pl.read_parquet(path, glob=False)
        else:
            rows = pl.read_csv(path, infer_schema=False, glob=False)
            if rows.width == 1 and "\t" in rows.columns[0]:
                rows = pl.read_csv(path, infer_schema=False, separator="\t", quote_char=None, glob=False)
    except pl.exceptions.NoDataError:
        raise BadInput(f"{path} is empty; {FORMS}.") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInput(f"{path} is not a readable csv, csv.gz or parquet file ({reason}); {FORMS}.") from None
    return rows


def nodes_beside(path: Path) -> Path | None:
    """The table of nodes in the folder of a table of edges; None where there is none."""
    paths = [p for p in sorted(path.parent.glob("*")) if p.name.lower().startswith("nodes") and p != path]
    return next((p for p in paths if p.name.lower().endswith(SUFFIXES)), None)


def as_primekg(rows: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Edges as PrimeKG's 12 columns, all text. BadInput with the columns seen where they are no edges with types."""
    seen = {column.lower().strip(): column for column in rows.columns}
    ends = next((names for names in ENDS if set(names) <= seen.keys()), None)
    if ends is None:
        raise BadInput(f"{path} has the columns {', '.join(rows.columns)}: {FORMS}.")
    head, relation, tail = (pl.col(seen[name]).cast(pl.String).str.strip_chars() for name in ends)
    edges = rows.select(head=head, relation=relation, tail=tail)
    beside, own = nodes_beside(path), [seen.get(f"{ends[side]}_type") for side in (0, 2)]
    if own[0] is not None and own[1] is not None:
        kinds = [rows[name].cast(pl.String).str.strip_chars() for name in own if name is not None]
        parts = [
            pl.DataFrame({"id": edges[end], "kind": kind}) for end, kind in zip(("head", "tail"), kinds, strict=True)
        ]
        nodes = pl.concat(parts).unique(maintain_order=True).with_columns(name=pl.col("id"))
    elif beside is not None:
        nodes = _nodes(beside)
    else:
        nodes = pl.DataFrame({"id": pl.concat([edges["head"], edges["tail"]]).unique(maintain_order=True)})
        nodes = nodes.with_columns(
            kind=pl.col("id").str.extract("^([^:]+)::"), name=pl.col("id").str.extract("::(.*)$")
        )
        if nodes["kind"].null_count():
            raise BadInput(f"{path} tells no types of its nodes (it has {', '.join(rows.columns)}): {FORMS}.")
    return _joined(edges, nodes.drop_nulls("id"), path)


def _nodes(path: Path) -> pl.DataFrame:
    """id, kind and name of a table of nodes."""
    rows = read_any(path)
    seen = {column.lower().strip(): column for column in rows.columns}
    ids, kind = (next((seen[name] for name in names if name in seen), None) for names in (IDS, KINDS))
    if ids is None or kind is None:
        raise BadInput(f"{path} has the columns {', '.join(rows.columns)}: a table of nodes has id, name and type.")
    name = next((seen[name] for name in NAMES if name in seen and seen[name] != kind), ids)
    text = {"id": ids, "kind": kind, "name": name}
    return rows.select(pl.col(column).cast(pl.String).str.strip_chars().alias(to) for to, column in text.items())


def _joined(edges: pl.DataFrame, nodes: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Edges with what PrimeKG says of both ends. A node without a type is refused, with its row."""
    kind = pl.col("kind").str.to_lowercase()
    nodes = nodes.with_columns(kind=kind.replace(SAME), name=pl.coalesce("name", "id"))
    nodes = nodes.unique("id", keep="first", maintain_order=True).with_row_index("index")
    nodes = nodes.select("id", "kind", "name", pl.col("index").cast(pl.String), source=pl.lit(path.name.split(".")[0]))
    table = edges.with_columns(display_relation=pl.col("relation").str.replace_all("_", " "))
    for end, column in (("x", "head"), ("y", "tail")):
        about = {"index": f"{end}_index", "kind": f"{end}_type", "name": f"{end}_name", "source": f"{end}_source"}
        table = table.join(nodes.rename(about), left_on=column, right_on="id", how="left", maintain_order="left")
        lost = table[f"{end}_type"].is_null() & table[column].is_not_null()
        if lost.any():
            row = lost.arg_max() or 0
            raise BadInput(f"{path}, row {row + 1}: node {table[column][row]!r} has no type: add it to the nodes.")
    return table.rename({"head": "x_id", "tail": "y_id"})
