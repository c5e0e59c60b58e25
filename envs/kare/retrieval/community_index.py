"""What community retrieval searches: communities, one summary of each, embeddings and theme relevance, on disk.

An index is for one theme. It keeps, for each community: its nodes, one summary, the unit vector of the summary and two
relevances to the theme (`CommunityArrays` of dgra.py); for each node its communities; and for at most `RELATIONS`
relations the communities that have one. It keeps no patients, no triples and no vectors of nodes.

The summary is that for the theme. Where the summariser said that a community has nothing to do with the theme, or gave
no reply, it is the general one. A community without any keeps its number and is never found.

Summaries are embedded as passages, and so are entities and terms while an index is made; a patient's context is
embedded as a query when it is searched (the paper has one embedding function; some encoders tell the two apart).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ghar.envs.kare.graph.communities import Communities
from ghar.envs.kare.graph.summaries import Summaries
from ghar.envs.kare.graph.themes import Theme
from ghar.envs.kare.retrieval.dgra import CommunityArrays
from ghar.errors import BadInput
from ghar.progress import progress
from ghar.retrieval.encoders import Encoder
from ghar.storage import Strings, new_folder, read_array, read_meta, read_strings, write_arrays, write_meta

FORMAT = "community-index-2"
CHUNK = 4096  # texts encoded at once
RELATIONS = 32  # partitions at most: a menu that is read whole
_ARRAYS = ("node_start", "node", "holder_start", "holder", "vector", "theme_nodes", "theme_summary", "usable")
_NAMES = ("entities", "summaries", "relations")


@dataclass(frozen=True)
class CommunityPart:
    """A partition among which GHAR's Agent-Top can choose: the communities with a fact of one relation. Like a
    meta-path it says what kind of knowledge is looked for; a community is in as many as it has relations."""

    index: int
    relation: str

    @property
    def text(self) -> str:
        return self.relation

    @property
    def label(self) -> str:
        return self.relation


@dataclass(frozen=True, eq=False)
class CommunityIndex:
    """arrays: nodes, vectors and relevance to the theme (`CommunityArrays` of dgra.py). entities: sorted names of the
    nodes. summaries: "" for none.

    relations: what GHAR's Agent-Top can choose among (`CommunityPart`), those of the most communities, at most
    RELATIONS, commonest first; relation r is in
    member[member_start[r]:member_start[r+1]], communities with a summary, ascending.
    encoder: key of the encoder that made the vectors. theme: its name, "" for none.
    counts: "communities", and how many of them are "without a summary".
    """

    arrays: CommunityArrays
    entities: Strings
    summaries: Strings
    relations: Strings
    member_start: np.ndarray
    member: np.ndarray
    encoder: str
    theme: str
    counts: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.arrays)

    def names(self, community: int) -> list[str]:
        """The entities of a community."""
        own = self.arrays
        return [self.entities[int(v)] for v in own.node[own.node_start[community] : own.node_start[community + 1]]]

    def members(self, partition: int) -> np.ndarray:
        """Communities of a partition, ascending."""
        return self.member[self.member_start[partition] : self.member_start[partition + 1]]

    @classmethod
    def load(cls, folder: Path) -> CommunityIndex:
        """Open a built index, arrays memory-mapped. BadInput names what is missing or damaged."""
        meta = read_meta(folder)
        if meta.get("format") != FORMAT:
            raise BadInput(f"{folder} holds no community index of format {FORMAT}; delete it and build it again.")
        arrays = CommunityArrays(*(read_array(folder, name) for name in _ARRAYS))
        entities, summaries, relations = (read_strings(folder, name) for name in _NAMES)
        members = (read_array(folder, "member_start"), read_array(folder, "member"))
        return cls(arrays, entities, summaries, relations, *members, meta["encoder"], meta["theme"], meta["counts"])


def build_index(
    communities: Communities, summaries: Summaries, theme: Theme | None, encoder: Encoder, folder: Path
) -> CommunityIndex:
    """Write the index as `folder`, whole or not at all, and open it. Without a theme its relevance is 0 everywhere.

    BadInput when no community has a summary: then there is nothing to retrieve.
    """
    special = summaries.theme or ("",) * len(summaries.general)
    texts = [
        (one or "").strip() or (other or "").strip() for one, other in zip(special, summaries.general, strict=True)
    ]
    usable = np.array([bool(text) for text in texts])
    count, nodes = len(texts), len(communities.entities)
    if count != len(communities):
        raise ValueError(f"{count} summaries are given for {len(communities)} communities")
    if not usable.any():
        raise BadInput(f"None of the {count} communities has a summary: look at what the summariser answered.")
    rows = np.flatnonzero(usable)
    with new_folder(folder) as half:
        shape = (count, encoder.dimension)
        vector = np.lib.format.open_memmap(half / "vector.npy", mode="w+", dtype=np.float32, shape=shape)
        for here, vectors in _encoded(encoder, len(rows), lambda i: texts[rows[i]], "Embed the summaries"):
            vector[rows[here]] = vectors
        vector.flush()
        by_node, by_summary = np.zeros(count, np.float32), np.zeros(count, np.float32)
        if theme is not None:
            by_node, by_summary = _theme_relevance(communities, theme, encoder, vector, rows)
        start, node = np.asarray(communities.node_start), np.asarray(communities.node)
        arrays = CommunityArrays.of(start, node, nodes, vector, by_node, by_summary, usable)
        write_arrays(half, {name: getattr(arrays, name) for name in _ARRAYS if name != "vector"})
        write_arrays(half, {"entities": Strings.of(communities.entities), "summaries": Strings.of(texts)})
        write_arrays(half, _members(communities, usable))
        counts = {"communities": count, "without a summary": count - len(rows)}
        named = {"encoder": encoder.key, "theme": theme.name if theme else ""}
        write_meta(half, {"format": FORMAT, "counts": counts, **named})
    return CommunityIndex.load(folder)


def _theme_relevance(
    communities: Communities, theme: Theme, encoder: Encoder, vector: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """f32[C] each: the mean over a community's nodes of the cosine to the nearest term (Eq. 6), and the summary's."""
    terms = encoder.passages(theme.terms).T
    names = communities.entities
    of_node = np.empty(len(names))
    for here, vectors in _encoded(encoder, len(names), names.__getitem__, "Embed the entities"):
        of_node[here] = (vectors @ terms).max(axis=1)
    sums = np.concatenate([[0.0], np.cumsum(of_node[communities.node])])
    start = np.asarray(communities.node_start)
    mean = (sums[start[1:]] - sums[start[:-1]]) / np.maximum(np.diff(start), 1)
    of_summary = np.zeros(len(communities), np.float32)
    for begin in range(0, len(rows), CHUNK):
        here = rows[begin : begin + CHUNK]
        of_summary[here] = (vector[here] @ terms).max(axis=1)
    return mean.astype(np.float32), of_summary


def _encoded(
    encoder: Encoder, count: int, text: Callable[[int], str], title: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(numbers, vectors) of texts 0..count-1, piece by piece. BadInput names a text without a finite vector."""
    with progress(count, title) as advance:
        for begin in range(0, count, CHUNK):
            here = range(begin, min(begin + CHUNK, count))
            vectors = encoder.passages([text(i) for i in here])
            for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
                raise BadInput(f"The encoder {encoder.key!r} gives no finite vector for {text(here[row])[:80]!r}.")
            yield np.asarray(here), vectors
            advance(len(here))


def _members(communities: Communities, usable: np.ndarray) -> dict[str, np.ndarray | Strings]:
    """The arrays of `CommunityIndex.relations`."""
    owner = np.repeat(np.arange(len(communities)), np.diff(communities.triple_start))
    relation = communities.triples[communities.triple, 1]
    kept = usable[owner]
    pairs = np.unique(np.stack([relation[kept], owner[kept]], axis=1), axis=0)
    sizes = np.bincount(pairs[:, 0], minlength=len(communities.relations))
    common = [int(r) for r in np.argsort(-sizes, kind="stable")[:RELATIONS] if sizes[r]]
    lists = [pairs[pairs[:, 0] == r, 1] for r in common]
    return {
        "relations": Strings.of([communities.relations[r] for r in common]),
        "member_start": np.cumsum([0, *map(len, lists)]),
        "member": np.concatenate([np.empty(0, np.int32), *lists]).astype(np.int32),
    }


def partitions(index: CommunityIndex) -> tuple[CommunityPart, ...]:
    """What Agent-Top can choose among, commonest relation first."""
    return tuple(CommunityPart(number, relation) for number, relation in enumerate(index.relations))
