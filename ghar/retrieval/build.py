"""Build a retriever over a graph, or open one that was built before."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np

from ghar.errors import BadInput
from ghar.extensions import import_module, is_module
from ghar.kg.graph import KnowledgeGraph
from ghar.progress import progress, track
from ghar.retrieval.dense import DenseIndex, fill_matrix
from ghar.retrieval.encoders import Encoder, load_encoder
from ghar.retrieval.inverted_lists import InvertedLists, build_lists
from ghar.retrieval.partition import PartitionRetriever
from ghar.retrieval.sparse import SparseIndex, SparseKind, build_sparse
from ghar.retrieval.texts import bulk_texts, first_items, item_text
from ghar.seal import sound
from ghar.storage import new_folder, read_array, read_meta, write_meta

FORMAT = 3  # raise it when the same graph would give other texts
ENCODED = 256  # texts per forward pass of a sentence encoder


def build_retriever(
    graph: KnowledgeGraph,
    kind: str,
    *,
    cache: Path | None = None,
    probes: int | None = None,
) -> PartitionRetriever:
    """The retriever Φ of Eq. 10 (GHAR) over a graph.

    kind: tfidf, bm25, hashing, e5, bge_m3, clinical_bert, any sentence-transformers name or folder, or a module of the
        user's own with `build(graph)`, which answers `retrieve(requests)`.
    cache: where indexes are kept, one folder per graph and kind, opened memory-mapped; None keeps it in memory.
    probes: with a dense kind, lists of a large partition that a query reads (lists.py); None reads all of it (exact).
    An index is written whole or not at all; building one holds, beside the matrix on disk, about 100 bytes per node
    and edge in memory.
    `BadInput` when an encoder cannot be loaded or a kept index is damaged.
    """
    if is_module(kind):
        return import_module("retriever", kind, "build").build(graph)
    if kind == "tfidf" or kind == "bm25":
        return PartitionRetriever(graph, _sparse(graph, kind, cache))
    index, lists = _dense(graph, load_encoder(kind, ENCODED), cache)
    return PartitionRetriever(graph, index) if probes is None else PartitionRetriever(graph, index, lists, probes)


def _sparse(graph: KnowledgeGraph, kind: SparseKind, cache: Path | None) -> SparseIndex:
    folder = _folder(graph, kind, cache)
    if folder is not None and sound(folder):
        _check(graph, kind, folder)
        return SparseIndex.load(folder, kind)
    items = track(range(graph.num_nodes + graph.num_edges), f"Index the graph ({kind})", unit="texts")
    index = build_sparse(kind, (item_text(graph, item) for item in items))
    if folder is None:
        return index
    with new_folder(folder, keep=True) as temporary:
        index.save(temporary)
        write_meta(temporary, _meta(graph, kind))
    return SparseIndex.load(folder, kind)


def _dense(graph: KnowledgeGraph, encoder: Encoder, cache: Path | None) -> tuple[DenseIndex, InvertedLists]:
    shape = (graph.num_nodes + graph.num_edges, encoder.dimension)
    folder = _folder(graph, encoder.key, cache)
    if folder is None:
        matrix = np.empty(shape, dtype=np.float32)
        _encode(graph, encoder, matrix)
        return DenseIndex(matrix, encoder), build_lists(graph, matrix)
    if not sound(folder):
        with new_folder(folder, keep=True) as temporary:
            matrix = np.lib.format.open_memmap(temporary / "matrix.npy", "w+", np.float32, shape)
            _encode(graph, encoder, matrix)
            build_lists(graph, matrix.view(np.ndarray)).save(temporary)
            matrix.flush()
            write_meta(temporary, _meta(graph, encoder.key))
    _check(graph, encoder.key, folder)
    matrix = read_array(folder, "matrix")
    if matrix.shape != shape:
        raise BadInput(f"{folder}/matrix.npy holds {matrix.shape} numbers, not {shape}; delete {folder}.")
    return DenseIndex(matrix, encoder), InvertedLists.load(folder)


def _encode(graph: KnowledgeGraph, encoder: Encoder, matrix: np.ndarray) -> None:
    with progress(len(matrix), f"Encode the graph ({encoder.key})", "texts") as advance:
        fill_matrix(matrix, encoder, first_items(graph), bulk_texts(graph), advance)


def _meta(graph: KnowledgeGraph, key: str) -> dict[str, object]:
    return {"format": FORMAT, "graph": graph.fingerprint, "key": key}


def _folder(graph: KnowledgeGraph, key: str, cache: Path | None) -> Path | None:
    """One folder per graph and encoder; the hash keeps apart what the readable part cannot."""
    if cache is None:
        return None
    readable = re.sub(r"[^\w.-]+", "_", key)[-40:].strip("._-")
    digest = hashlib.sha256(repr(sorted(_meta(graph, key).items())).encode()).hexdigest()[:16]
    return Path(cache) / f"{readable}-{digest}"


def _check(graph: KnowledgeGraph, key: str, folder: Path) -> None:
    if read_meta(folder) != _meta(graph, key):
        raise BadInput(f"{folder} is not the {key} index of this graph; delete it and it is built again.")
