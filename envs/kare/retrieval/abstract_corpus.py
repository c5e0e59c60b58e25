"""Abstracts as a corpus behind `Retrieve`: the classic RAG of KARE's Table 2, and the papers of a concept set."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ghar.envs.kare.graph.abstracts import Abstracts
from ghar.episode import Evidence, Passage, Retrieve
from ghar.errors import BadInput
from ghar.progress import progress
from ghar.retrieval.dense import DenseIndex, fill_matrix
from ghar.retrieval.encoders import Encoder
from ghar.seal import sound
from ghar.storage import new_folder, read_array, read_meta, write_meta

FORMAT = 1


@dataclass(frozen=True, eq=False)
class AbstractCorpus:
    """Row i of the index is abstract i."""

    abstracts: Abstracts
    index: DenseIndex

    def nearest(self, queries: Sequence[str], n: int) -> list[list[tuple[int, float]]]:
        """For each query its `n` nearest abstracts as (row, cosine), best first; among equals the earlier row."""
        if not queries:
            return []
        hits = self.index.search(self.index.encode(queries), range(len(self.abstracts)), n)
        return [list(zip(rows.tolist(), scores.tolist(), strict=True)) for rows, scores in hits]

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """The `top_n` nearest abstracts of each request as passages of kind "abstract". Abstracts have no partitions:
        ValueError for a request that names some."""
        if any(request.partitions is not None for request in requests):
            raise ValueError("abstracts have no partitions")
        by_request: list[Evidence] = [Evidence()] * len(requests)
        for n in sorted({request.top_n for request in requests}):
            here = [i for i, request in enumerate(requests) if request.top_n == n]
            for i, hits in zip(here, self.nearest([requests[i].query for i in here], n), strict=True):
                by_request[i] = Evidence(
                    tuple(Passage(self.abstracts.texts[row], "abstract", -1, score, row) for row, score in hits)
                )
        return by_request


def index_abstracts(abstracts: Abstracts, encoder: Encoder, cache: Path) -> AbstractCorpus:
    """Encode every abstract once; the matrix (f32[abstracts, dimension]) is kept under `cache`, memory-mapped."""
    meta = {"format": FORMAT, "abstracts": abstracts.fingerprint, "encoder": encoder.key}
    digest = hashlib.blake2b(repr(sorted(meta.items())).encode(), digest_size=8).hexdigest()
    folder, shape = Path(cache) / f"abstract-index-{digest}", (len(abstracts), encoder.dimension)
    if not sound(folder):
        with (
            new_folder(folder, keep=True) as half,
            progress(len(abstracts), f"Encode abstracts ({encoder.key})") as advance,
        ):
            matrix = np.lib.format.open_memmap(half / "matrix.npy", "w+", np.float32, shape)
            rows = np.arange(len(abstracts))
            fill_matrix(matrix, encoder, rows, lambda items: [abstracts.texts[int(i)] for i in items], advance)
            matrix.flush()
            write_meta(half, meta)
    matrix = read_array(folder, "matrix")
    if read_meta(folder) != meta or matrix.shape != shape:
        raise BadInput(f"{folder} is not the {encoder.key} index of these abstracts: delete it, it is built again.")
    return AbstractCorpus(abstracts, DenseIndex(matrix, encoder))
