"""Communities of the knowledge graph at several levels, from several runs of hierarchical Leiden (Section 3.1.3, KARE).

Leiden (Traag et al. 2019) divides the undirected graph of entities by modularity: level 0, the coarsest. A community of
more than `max_cluster` entities is taken out and divided again on the next level, until it is small enough or cannot be
divided. So `max_cluster` (the paper's max_cluster_size, 5 "for each top-level community"; 10 in the released code) says
where division ends, and all coarser communities are kept beside the smallest. Two entities share one edge of weight 1
however many triples join them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ghar.envs.kare.graph.triples import ConceptGraphs, Triple
from ghar.errors import BadInput
from ghar.progress import track
from ghar.storage import Strings, new_folder, read_array, read_meta, read_strings, write_arrays, write_meta

FORMAT = "communities-1"
_ARRAYS = ("triples", "node_start", "node", "triple_start", "triple", "run", "level")


@dataclass(frozen=True, eq=False)
class Communities:
    """C communities, each with another set of triples, in the order in which they were found.

    entities, relations: sorted names. triples: int32 [T, 3], (head entity, relation, tail entity), the graph's order.
    node_start int64 [C+1], node int32: entities of community c, ascending, node[node_start[c]:node_start[c+1]].
    triple_start int64 [C+1], triple int32: the triples among them, likewise. run, level: int16 [C], where it was found
    first. empty: communities without a triple inside, dropped. repeated: those whose triples were known already.
    """

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    triples: np.ndarray
    node_start: np.ndarray
    node: np.ndarray
    triple_start: np.ndarray
    triple: np.ndarray
    run: np.ndarray
    level: np.ndarray
    empty: int
    repeated: int

    def __len__(self) -> int:
        return len(self.run)

    def triples_of(self, community: int) -> np.ndarray:
        """Triple ids of a community, ascending."""
        return self.triple[self.triple_start[community] : self.triple_start[community + 1]]

    def triple_names(self, triple: int) -> Triple:
        """A triple in words."""
        head, relation, tail = self.triples[triple].tolist()
        return Triple(self.entities[head], self.relations[relation], self.entities[tail])

    def write(self, folder: Path) -> None:
        """Write a folder, whole or not at all."""
        with new_folder(folder) as temporary:
            write_arrays(temporary, {name: getattr(self, name) for name in _ARRAYS})
            write_arrays(temporary, {"entities": Strings.of(self.entities), "relations": Strings.of(self.relations)})
            write_meta(temporary, {"format": FORMAT, "empty": self.empty, "repeated": self.repeated})

    @classmethod
    def read(cls, folder: Path) -> Communities:
        """Open what `write` wrote, arrays memory-mapped. BadInput names a missing or damaged file."""
        meta = read_meta(folder)
        if meta.get("format") != FORMAT:
            raise BadInput(f"{folder} holds no communities of format {FORMAT}; delete it and build it again.")
        arrays = {name: read_array(folder, name) for name in _ARRAYS}
        entities, relations = (tuple(read_strings(folder, name)[:]) for name in ("entities", "relations"))
        return cls(entities, relations, **arrays, empty=meta["empty"], repeated=meta["repeated"])


def detect(graphs: ConceptGraphs, *, runs: int = 25, max_cluster: int = 5, seed: int) -> Communities:
    """The communities of `runs` runs with seeds drawn from `seed`, all levels, each set of triples once.

    Raises BadInput for a graph in which no triple joins two entities.
    """
    entities = tuple(sorted({name for triple in graphs.triples for name in (triple.head, triple.tail)}))
    relations = tuple(sorted({triple.relation for triple in graphs.triples}))
    entity, relation = ({name: i for i, name in enumerate(names)} for names in (entities, relations))
    rows = [(entity[head], relation[word], entity[tail]) for head, word, tail in graphs.triples]
    triples = np.array(rows, dtype=np.int32).reshape(-1, 3)
    edges = _edges(triples)
    if not edges:
        raise BadInput(
            f"The graph has {len(triples)} triples and none joins two entities, so there are no communities: check the "
            "sources of the construction."
        )
    seen: set[bytes] = set()
    sets: list[np.ndarray] = []
    places: list[tuple[int, int]] = []
    empty = candidates = 0
    seeds = np.random.SeedSequence(seed).generate_state(runs).tolist()
    for run, run_seed in enumerate(track(seeds, "Find communities", unit="runs")):
        for level, labels in enumerate(_levels(edges, len(entities), max_cluster, run_seed)):
            inside = _inside(triples, labels)
            candidates += len(inside)
            empty += len(np.unique(labels[labels >= 0])) - len(inside)
            for ids in inside:
                digest = hashlib.blake2b(ids.tobytes(), digest_size=16).digest()
                if digest not in seen:
                    seen.add(digest)
                    sets.append(ids)
                    places.append((run, level))
    nodes = [np.unique(triples[ids][:, [0, 2]]) for ids in sets]
    run_of, level_of = np.array(places, dtype=np.int16).T
    return Communities(
        entities, relations, triples, *_csr(nodes), *_csr(sets), run_of, level_of, empty, candidates - len(sets)
    )


def _edges(triples: np.ndarray) -> list[tuple[str, str, float]]:
    """The undirected pairs of different entities that a triple joins, once each, as the library wants them."""
    pairs = np.unique(np.sort(triples[:, [0, 2]], axis=1), axis=0)
    return [(str(a), str(b), 1.0) for a, b in pairs.tolist() if a != b]


def _levels(edges: list[tuple[str, str, float]], n: int, max_cluster: int, seed: int) -> Iterator[np.ndarray]:
    """For each level, coarsest first: int64 [n], the community of each entity, -1 for those not divided that far."""
    from graspologic_native import hierarchical_leiden  # pyright: ignore[reportAttributeAccessIssue] (untyped)

    partition = hierarchical_leiden(edges, max_cluster_size=max_cluster, seed=seed)
    table = np.array([(part.level, int(part.node), part.cluster) for part in partition], dtype=np.int64)
    for level in range(table[:, 0].max() + 1):
        labels = np.full(n, -1)
        own = table[table[:, 0] == level]
        labels[own[:, 1]] = own[:, 2]
        yield labels


def _inside(triples: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """int32 triple ids, ascending, of every community that holds both ends of at least one triple."""
    heads, tails = labels[triples[:, 0]], labels[triples[:, 2]]
    ids = np.flatnonzero((heads == tails) & (heads >= 0)).astype(np.int32)
    ids = ids[np.argsort(heads[ids], kind="stable")]
    return np.split(ids, np.flatnonzero(np.diff(heads[ids])) + 1) if len(ids) else []


def _csr(lists: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return starts, np.concatenate(lists).astype(np.int32)
