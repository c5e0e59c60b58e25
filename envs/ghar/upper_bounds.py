"""What GHAR and its ablations can know at best in the demo world, computed on the very cases (Table VII, GHAR).

A predictor that reads perfectly everything an episode can show it, and asks by name ("disease <name>", "drug <name>",
"gene <name>"; NI asks with the record itself), knows the severity of a rare entity exactly where the row that states it
comes up. Each look-up is made with the run's own retriever; what is known turns into an expected accuracy by the
world's law (envs/worlds/severity/upper_bounds.py).

    retrieval  every partition, as many rounds as needed: all rare entities.
    nm         the same without meta-paths: rows among the best `top_n` of the whole graph.
    nt         as nm, and what was found names no follow-up: rare conditions alone.
    nl         the right partition, of which as many words are kept as a summary may have.
    ni         one round, which asks with the whole record: rare conditions whose row comes up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ghar.envs.case import Case
from ghar.envs.ghar.episode import GharEpisodes, first_words, room_of_summary
from ghar.envs.rollout import Corpus
from ghar.envs.system import mark_of
from ghar.envs.worlds.severity.graph import DISPLAY, TARGET
from ghar.envs.worlds.severity.source_upper_bounds import source_ceilings
from ghar.envs.worlds.severity.upper_bounds import knowing, rare_numbers
from ghar.envs.worlds.severity.world import World, ceilings, truth_of
from ghar.envs.worlds.severity_grades import RELATIONS
from ghar.episode import Evidence, Retrieve
from ghar.kg.metapaths import MetaPath

AT_ONCE = 512  # look-ups


@dataclass(frozen=True)
class FactLocation:
    """Where a fact stands: what is asked, the relation whose partition holds it, and the fact in words."""

    query: str
    relation: str
    text: str


def ghar_ceilings(
    world: World,
    names: Mapping[str, str],
    task: str,
    cases: Sequence[Case],
    seen: Sequence[int],
    episodes: GharEpisodes[Any],
    corpus: Corpus,
) -> dict[str, float]:
    """name -> best expected accuracy on exactly these cases, task "los", "read" or "dec", leakage=paper.

    seen: visits whose labels a learner was trained on, and whose reports may be shown. In a world of further sources
    also those of every subset of sources, as "training+graph". The ablations' are left out where the partitions are
    not the graph's meta-paths. Raises BadInput as `ghar.envs.worlds.severity.world.ceilings` does.
    """
    ids = [case.visit_id for case in cases]
    ceiling = ceilings(world.root, ids, task, seen=seen)
    bounds = {"parametric": ceiling.parametric, "retrieval": ceiling.retrieval, "memory": ceiling.memory}
    if world.further.any:
        bounds |= {"+".join(names): best for names, best in source_ceilings(world, ids, task, seen).items() if names}
    if not all(isinstance(path, MetaPath) for path in episodes.metapaths):
        return bounds
    truth = truth_of(world, ids)
    chains = chains_of(world, names, rare_numbers(truth))
    for name, coverage in reach(chains, cases, episodes, corpus).items():
        bounds[name] = knowing(truth, world.rare_severity, task, coverage)
    return bounds


def chains_of(
    world: World, names: Mapping[str, str], numbers: np.ndarray
) -> list[tuple[tuple[FactLocation, ...], ...]]:
    """For each visit the rows that lead to the grade of its rare condition, and of its rare drug; () where none."""
    codes, severity = world.rare_codes, world.rare_severity

    def condition(number: int) -> tuple[FactLocation, ...]:
        name = names[codes[number]]
        return (_row("disease", name, DISPLAY[RELATIONS["disease"]], f"grade {severity[number]} course"),)

    def drug(number: int) -> tuple[FactLocation, ...]:
        name, target = names[codes[number]], world.target[codes[number]]
        grade = f"grade {severity[number]} course"
        return _row("drug", name, TARGET, target), _row("gene", target, DISPLAY[RELATIONS["gene"]], grade)

    return [(condition(one) if one >= 0 else (), drug(two) if two >= 0 else ()) for one, two in numbers.tolist()]


def _row(kind: str, name: str, display: str, other: str) -> FactLocation:
    return FactLocation(f"{kind} {name}", RELATIONS[kind], f"{name} - {display} - {other}")


def reach(
    chains: Sequence[tuple[tuple[FactLocation, ...], ...]],
    cases: Sequence[Case],
    episodes: GharEpisodes[Any],
    corpus: Corpus,
) -> dict[str, np.ndarray]:
    """Ablation -> bool [cases, 2]: whether the grade of the rare condition, and of the rare drug, can be known."""
    spec, room = episodes.spec, room_of_summary(episodes)
    rows = list(dict.fromkeys(row for pair in chains for chain in pair for row in chain))
    own = {relation: _partitions(episodes.metapaths, relation) for relation in RELATIONS.values()}
    mark = any(map(mark_of, cases))
    whole = _retrieve(corpus, [Retrieve(row.query, None, spec.top_n, credentialed=mark) for row in rows])
    inside = _retrieve(corpus, [Retrieve(row.query, own[row.relation], spec.top_n, credentialed=mark) for row in rows])
    comes_up = {row: _states(evidence, row) for row, evidence in zip(rows, whole, strict=True)}
    fits = {row: _fits(evidence, row, room) for row, evidence in zip(rows, inside, strict=True)}
    diseases = own[RELATIONS["disease"]]
    asked = _retrieve(corpus, [Retrieve(case.text, diseases, spec.top_n, credentialed=mark) for case in cases])
    by_record = [
        [len(chain) == 1 and _states(evidence, chain[0]) for chain in pair]
        for pair, evidence in zip(chains, asked, strict=True)
    ]

    def all_of(hits: dict[FactLocation, bool], steps: int) -> np.ndarray:
        return np.array([[len(chain) <= steps and all(hits[row] for row in chain) for chain in p] for p in chains])

    by_reach = {"ni": np.array(by_record), "nt": all_of(comes_up, 1), "nl": all_of(fits, 2), "nm": all_of(comes_up, 2)}
    return {name: table.reshape(len(cases), 2) for name, table in by_reach.items()}


def _partitions(paths: Sequence[MetaPath], relation: str) -> tuple[int, ...]:
    return tuple(path.index for path in paths if path.relation == relation)


def _retrieve(corpus: Corpus, requests: Sequence[Retrieve]) -> list[Evidence]:
    parts = (requests[start : start + AT_ONCE] for start in range(0, len(requests), AT_ONCE))
    return [evidence for part in parts for evidence in corpus.retrieve(part)]


def _states(evidence: Evidence, row: FactLocation) -> bool:
    """Whether a row, read in either direction, is among the passages."""
    return any(passage.text in _both_ways(row) for passage in evidence.passages)


def _both_ways(row: FactLocation) -> tuple[str, str]:
    return row.text, " - ".join(reversed(row.text.split(" - ")))


def _fits(evidence: Evidence, row: FactLocation, room: int) -> bool:
    """Whether a row stands whole in the first `room` words of the raw evidence."""
    lines = first_words(evidence.text, room).split("\n")
    return any(text in lines for text in _both_ways(row))
