"""The typed knowledge graph: node tables, and edges as one compressed sparse row structure per meta-path.

A meta-path (head type, relation, tail type) is a partition of the edges (Section III-A, GHAR). Edges are sorted by
(path, head, tail, display), so that a partition is a slice and needs no copy.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from ghar.errors import BadInput
from ghar.storage import Strings, new_folder, read_array, read_meta, read_strings, write_arrays, write_meta

FORMAT = 1


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """V nodes, E edges, X meta-paths. A node or an edge is named by its position, 0..V-1 or 0..E-1.

    names, ids: name and source id of each node; index: i64[V], the node's number in the source file, ascending.
    type, source: i16[V], positions in `types` (alphabetical) and `sources`.
    head, tail: i32[E] nodes; display: i16[E], positions in `displays`, the relation as it is read aloud.
    path_head, path_tail: i16[X] types; path_relation: X relation names. Paths are sorted by
        (head type, relation, tail type), so their ids depend on nothing but the set of paths.
    path_start: i64[X+1]; the edges of path p are path_start[p]..path_start[p+1].
    out_start: i64[X, V+1]; the edges of path p that leave node v are out_start[p, v]..out_start[p, v+1].
    in_start: i64[X, V+1], in_edge: i32[E]; those that enter v are in_edge[in_start[p, v]:in_start[p, v+1]].
    member: i32, member_start: i64[X+1]; member[member_start[p]:member_start[p+1]] are the nodes of path p, ascending.
    fingerprint: hash of all that can be retrieved.
    """

    names: Strings
    ids: Strings
    index: np.ndarray
    type: np.ndarray
    source: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    display: np.ndarray
    path_head: np.ndarray
    path_tail: np.ndarray
    path_start: np.ndarray
    out_start: np.ndarray
    in_start: np.ndarray
    in_edge: np.ndarray
    member: np.ndarray
    member_start: np.ndarray
    types: tuple[str, ...]
    sources: tuple[str, ...]
    displays: tuple[str, ...]
    path_relation: tuple[str, ...]
    fingerprint: str

    @property
    def num_nodes(self) -> int:
        return len(self.index)

    @property
    def num_edges(self) -> int:
        return len(self.head)

    @property
    def num_paths(self) -> int:
        return len(self.path_relation)

    def edges_of_path(self, path: int) -> range:
        """The edges of a meta-path."""
        return range(int(self.path_start[path]), int(self.path_start[path + 1]))

    def nodes_of_path(self, path: int) -> np.ndarray:
        """The nodes that an edge of a meta-path touches, ascending."""
        return self.member[self.member_start[path] : self.member_start[path + 1]]

    def edges_of(self, node: int, path: int | None = None) -> np.ndarray:
        """The edges that touch `node`, ascending; of one meta-path, or of all."""
        edges = []
        for p in range(self.num_paths) if path is None else (path,):
            leaving = np.arange(self.out_start[p, node], self.out_start[p, node + 1])
            entering = self.in_edge[self.in_start[p, node] : self.in_start[p, node + 1]]
            edges += [leaving, entering]
        return np.unique(np.concatenate([np.empty(0, np.int64), *edges]))

    def neighbours(self, node: int, path: int | None = None) -> np.ndarray:
        """The nodes one edge away from `node`, in either direction, ascending; along one meta-path, or along all."""
        edges = self.edges_of(node, path)
        return np.unique(np.where(self.head[edges] == node, self.tail[edges], self.head[edges]))

    def save(self, folder: Path) -> None:
        """Write the graph into `folder`, whole or not at all."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {k: v for k, v in values.items() if isinstance(v, np.ndarray | Strings)}
        meta = {"format": FORMAT} | {k: v for k, v in values.items() if k not in arrays}
        with new_folder(folder) as temporary:
            write_arrays(temporary, arrays)
            write_meta(temporary, meta)

    @classmethod
    def load(cls, folder: Path) -> KnowledgeGraph:
        """Open a saved graph memory-mapped; `BadInput` names a missing or damaged file."""
        meta = read_meta(folder)
        if meta.get("format") != FORMAT:
            raise BadInput(f"{folder} is not a graph of format {FORMAT}; delete it and build it again.")
        values: dict[str, object] = {}
        for f in fields(cls):
            if f.type == "Strings":
                values[f.name] = read_strings(folder, f.name)
            elif f.type == "np.ndarray":
                values[f.name] = read_array(folder, f.name)
            else:
                values[f.name] = meta[f.name] if f.type == "str" else tuple(meta[f.name])
        return cls(**values)  # type: ignore[arg-type]


def build_graph(nodes: pl.DataFrame, edges: pl.DataFrame) -> KnowledgeGraph:
    """Build the graph from tables that have been checked.

    nodes: index i64 (unique), id, type, name, source (str). edges: head, tail (values of `index`), relation and
    display_relation (str), oriented as they are to be kept; repeated rows count once.
    """
    nodes = nodes.sort("index")
    index = nodes["index"].to_numpy()
    types, type_of = _codes(nodes["type"])
    sources, source_of = _codes(nodes["source"])
    displays, display_of = _codes(edges["display_relation"])
    relations, relation_of = _codes(edges["relation"])
    head = np.searchsorted(index, edges["head"].to_numpy())
    tail = np.searchsorted(index, edges["tail"].to_numpy())

    # A path's key sorts like (head type, relation, tail type), because the codes are in alphabetical order.
    key = (type_of[head].astype(np.int64) * len(relations) + relation_of) * len(types) + type_of[tail]
    keys, path = np.unique(key, return_inverse=True)
    table = pl.DataFrame({"path": path.astype(np.int32), "head": head.astype(np.int32)})
    table = table.with_columns(pl.Series("tail", tail.astype(np.int32)), pl.Series("display", display_of))
    table = table.unique().sort("path", "head", "tail", "display")
    path, head, tail = (table[c].to_numpy() for c in ("path", "head", "tail"))
    in_edge = np.lexsort((head, tail, path)).astype(np.int32)
    path_start = np.searchsorted(path, np.arange(len(keys) + 1))
    slices = [slice(a, b) for a, b in pairwise(path_start)]
    members = [np.unique(np.concatenate([head[s], tail[s]])) for s in slices]

    arrays = {
        "names": Strings.of(nodes["name"].to_list()),
        "ids": Strings.of(nodes["id"].to_list()),
        "index": index,
        "type": type_of,
        "source": source_of,
        "head": head,
        "tail": tail,
        "display": table["display"].to_numpy(),
        "path_head": (keys // len(types) // len(relations)).astype(np.int16),
        "path_tail": (keys % len(types)).astype(np.int16),
        "path_start": path_start,
        "out_start": _row_starts(path, head, len(keys), len(index)),
        "in_start": _row_starts(path[in_edge], tail[in_edge], len(keys), len(index)),
        "in_edge": in_edge,
        "member": np.concatenate([np.empty(0, np.int32), *members]).astype(np.int32),
        "member_start": np.cumsum([0] + [len(m) for m in members]),
    }
    words = {
        "types": types,
        "sources": sources,
        "displays": displays,
        "path_relation": tuple(relations[k // len(types) % len(relations)] for k in keys.tolist()),
    }
    return KnowledgeGraph(**arrays, **words, fingerprint=_fingerprint(arrays, words))


def _codes(column: pl.Series) -> tuple[tuple[str, ...], np.ndarray]:
    """The distinct values in alphabetical order, and each row's position among them."""
    values = column.unique().sort()
    codes = column.replace_strict(values, pl.Series(range(len(values)), dtype=pl.Int16), return_dtype=pl.Int16)
    return tuple(values), codes.to_numpy()


def _row_starts(path: np.ndarray, node: np.ndarray, num_paths: int, num_nodes: int) -> np.ndarray:
    """i64[X, V+1]: where the entries of each (path, node) begin in a list sorted by (path, node)."""
    counts = np.bincount(path.astype(np.int64) * num_nodes + node, minlength=num_paths * num_nodes)
    ends = np.cumsum(counts).reshape(num_paths, num_nodes)
    begins = np.concatenate([[0], ends[:, -1][:-1]]) if num_paths else np.empty(0, np.int64)
    return np.concatenate([begins[:, None], ends], axis=1)


def _fingerprint(arrays: dict[str, np.ndarray | Strings], words: dict[str, tuple[str, ...]]) -> str:
    digest = hashlib.sha256(repr((FORMAT, sorted(words.items()))).encode())
    for name in ("names", "ids", "index", "type", "source", "head", "tail", "display", "path_start"):
        array = arrays[name]
        for part in (array.data, array.offsets) if isinstance(array, Strings) else (array,):
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
