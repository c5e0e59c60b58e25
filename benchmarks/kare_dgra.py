"""KARE's selection of communities at the paper's size: 60,000 generated communities (benchmarks/run.py kare_dgra).

Sizes are those of Appendix D.1: 68% of the communities have fewer than 20 triples, 96% fewer than 150, the rest have no
summary. Communities hold neighbours of a centre on a line of 200,000 entities and some popular ones, so that they
overlap like those of 25 runs; a patient has 50 concepts in 4 visits, each with a graph of about 100 nodes around it.
Embeddings have 1,024 dimensions (Appendix D.1) and are in memory. Patients ask one at a time, on one core.

Exactness: for some patients Eqs. 3-6 are evaluated directly for every candidate at every iteration, with Python sets.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

import numpy as np

from ghar.envs.kare.retrieval.dgra import PAPER, RELEASED, CommunityArrays, DgraSettings, select
from ghar.envs.kare.retrieval.patient_graph import PatientKnowledgeGraph
from ghar.progress import track

COMMUNITIES, ENTITIES, DIMENSION = 60_000, 200_000, 1024
BANDS = ((0.684, 1, 20), (0.957, 20, 150), (1.0, 150, 2000))  # share of communities up to here, triples from, below
CONCEPTS, VISITS, AROUND = 50, 4, 100
PATIENTS, CHECKED, TOP_N = 100, 3, 10


def dgra(*, share: float, seed: int) -> dict[str, Any]:
    """Numbers of both presets; `share` of 60,000 communities."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    own = draw_communities(rng, round(COMMUNITIES * share), max(round(ENTITIES * share), 2 * AROUND), DIMENSION)
    asking = [(draw_patient(rng, own), unit_rows(rng, 1, DIMENSION)[0]) for _ in range(PATIENTS)]
    result: dict[str, Any] = {}
    for name, settings in (("paper", PAPER), ("released", RELEASED)):
        select(own, *asking[0], settings, TOP_N)  # the first one is not measured
        times, cpu, direct, wrong = [], [], [], 0
        for number, (patient, context) in enumerate(track(asking, f"Select communities ({name})")):
            start, spent = time.perf_counter(), time.process_time()
            selection = select(own, patient, context, settings, TOP_N)
            times.append(1000 * (time.perf_counter() - start))
            cpu.append(1000 * (time.process_time() - spent))
            if number < CHECKED:
                start = time.perf_counter()
                wanted = direct_selection(own, patient, context, settings, TOP_N)
                direct.append(1000 * (time.perf_counter() - start))
                wrong += list(selection.ids) != [id for id, _ in wanted]
        for q in (50, 90, 99):
            result[f"{name}: one patient, p{q} ms"] = float(np.percentile(times, q))
        result[f"{name}: one patient, p50 ms of a core"] = float(np.median(cpu))  # whatever else the machine does
        result[f"{name}: direct evaluation, median ms"] = float(np.median(direct))
        result[f"{name}: patients whose list differs from it, of {CHECKED}"] = wrong
    hits = [len(np.unique(patient.direct)) + len(patient.indirect) for patient, _ in asking]
    result |= {"nodes of a patient, median": int(np.median(hits)), "memberships": len(own.node)}
    result |= {"communities": len(own), "patients": len(asking), "selected of each": TOP_N, "seed": seed}
    result["load average"] = os.getloadavg()[0]
    return result


def draw_communities(rng: np.random.Generator, count: int, entities: int, dimension: int) -> CommunityArrays:
    """Communities as the head of this file says."""
    band, spread = rng.random(count), rng.random(count)
    low, high = np.empty(count), np.empty(count)
    for share, least, below in reversed(BANDS):
        low[band < share], high[band < share] = least, below
    triples = np.floor(low * (high / low) ** spread).astype(np.int64)  # log-uniform within its band
    members = []
    for size, centre in zip((0.8 * triples).astype(np.int64) + 2, rng.integers(0, entities, count), strict=True):
        near = centre + rng.normal(0, size, size).astype(np.int64)
        popular = (entities * rng.random(max(1, size // 10)) ** 4).astype(np.int64)
        members.append(np.unique(np.concatenate([near % entities, popular])))
    start = np.cumsum([0, *map(len, members)])
    theme = (rng.random((2, count)) / 2).astype(np.float32)
    vector = unit_rows(rng, count, dimension)
    node = np.concatenate(members).astype(np.int32)
    return CommunityArrays.of(start, node, entities, vector, theme[0], theme[1], triples < BANDS[-1][1])


def draw_patient(rng: np.random.Generator, own: CommunityArrays) -> PatientKnowledgeGraph:
    """A patient as the head of this file says."""
    entities = len(own.holder_start) - 1
    direct = np.unique((entities * rng.random(CONCEPTS) ** 2).astype(np.int64))
    around = (direct[:, None] + rng.integers(-AROUND, AROUND + 1, (len(direct), AROUND))) % entities
    indirect = np.setdiff1d(around, direct)
    return PatientKnowledgeGraph(direct, rng.integers(0, VISITS, len(direct)), indirect)


def unit_rows(rng: np.random.Generator, count: int, dimension: int) -> np.ndarray:
    """f32[count, dimension] of unit length around a common direction, as embeddings of one field are."""
    rows = rng.standard_normal((count, dimension), dtype=np.float32) + 0.7
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def direct_selection(
    own: CommunityArrays, patient: PatientKnowledgeGraph, context: np.ndarray, s: DgraSettings, n: int
) -> list[tuple[int, float]]:
    """Algorithm 1 as it is written, every relevance anew at every iteration: (community, relevance) by selection."""
    sets = [set(own.node[a:b].tolist()) for a, b in zip(own.node_start[:-1], own.node_start[1:], strict=True)]
    cosine = [float(np.dot(row.astype(np.float64), context)) for row in own.vector]
    theme = (own.theme_nodes if s.theme_by == "nodes" else own.theme_summary).tolist()
    direct, indirect = set(patient.direct.tolist()), set(patient.indirect.tolist())
    visit = dict(zip(patient.direct.tolist(), patient.visit.tolist(), strict=True))
    hit_count: dict[int, int] = {}
    left = np.flatnonzero(own.usable).tolist()
    selected: list[tuple[int, float]] = []

    def relevance(c: int) -> float:
        hit = sets[c] & direct
        hits = len(hit) / len(direct) if direct else 0.0
        hits += s.alpha * len(sets[c] & indirect) / len(indirect) if indirect else 0.0
        terms = {
            "hits": hits,
            "decay": math.prod(s.beta ** hit_count.get(v, 0) for v in (hit if s.decay_over == "direct" else sets[c])),
            "coherence": 1 + s.lambda_coherence * cosine[c],
            "recency": 1 + s.lambda_recency * sum(visit[v] for v in hit) / len(hit) if hit else 1.0,
            "theme": 1 + s.lambda_theme * theme[c],
        }
        return math.prod(value for name, value in terms.items() if name not in s.without)

    while len(selected) < n and left:
        scores = [relevance(c) for c in left]
        top = max(scores)
        if top <= 0:
            break
        best = min(c for c, score in zip(left, scores, strict=True) if score >= top * (1 - 1e-12))
        selected.append((best, scores[left.index(best)]))
        left.remove(best)
        for v in sets[best]:
            hit_count[v] = hit_count.get(v, 0) + 1
    return selected
