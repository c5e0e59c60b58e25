"""EXPRAG's report ranker at MIMIC-IV's size: 430,000 generated admissions (benchmarks/run.py reports).

Codes an admission and how often the commonest occur are like MIMIC-IV's: 12 diagnoses of 25,000 (the commonest in a
sixth of the admissions), 22 drugs of 6,000 (in half of them), 1.6 procedures of 10,000 (half have none). The index is
built and saved in a process of its own, whose peak memory counts; then stays of the index ask, one at a time, each
with all its codes. Exactness is checked by evaluating Eqs. 4-7 with Python sets for 20,000 stays and all that were
found.
"""

from __future__ import annotations

import os
import resource
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from ghar.progress import track
from ghar.retrieval.reports import KINDS, CodeEntries, ReportIndex, ReportQuery, build_reports, rank, weights

ADMISSIONS, STAYS_OF_ONE = 430_000, 2.2
CODES = {"diagnoses": (25_000, 12.0, 8.0), "medications": (6_000, 22.0, 4.0), "procedures": (10_000, 1.6, 20.0)}
SPREAD = 1.5  # shape of the number of codes: a few admissions have very many
QUERIES, CHECKED, SAMPLE, TOP_K = 300, 5, 20_000, 15
LIMIT = 3600.0  # seconds the building may take


def reports(folder: Path, *, share: float, seed: int, timeout: float = LIMIT) -> dict[str, Any]:
    """Numbers of `share` of 430,000 admissions."""
    admissions, target = round(ADMISSIONS * share), folder / f"reports-{share:g}-seed{seed}"
    shutil.rmtree(target, ignore_errors=True)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        result: dict[str, Any] = pool.submit(_build, target, admissions, seed).result(timeout=timeout)
    index = ReportIndex.load(target)
    sets = code_lists(index)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    asking = rng.choice(len(index), min(QUERIES, len(index)), replace=False)
    queries = [ReportQuery(int(index.subject_id[row]), None, sets(int(row))) for row in asking]
    times, wrong = [], 0
    weight = weights("uniform", "diagnoses")
    rank(index, queries[0], weight, TOP_K)  # the first one reads the files
    for number, query in enumerate(track(queries, "Rank admissions")):
        start, worked = time.perf_counter(), time.process_time()
        rows, scores = rank(index, query, weight, TOP_K)
        times.append((1000 * (time.perf_counter() - start), 1000 * (time.process_time() - worked)))
        if number < CHECKED:
            sample = rng.choice(len(index), min(SAMPLE, len(index)), replace=False)
            wrong += wrong_places(index, sets, query, rows, scores, sample)
    for q in (50, 90, 99):  # by the clock, which others slow down, and of the processor
        clock, processor = np.percentile(times, q, axis=0).tolist()
        result |= {f"one ranking, p{q} ms": clock, f"one ranking, p{q} ms of processor": processor}
    result["places that differ from a direct evaluation"] = wrong
    result |= {"admissions": len(index), "queries": len(queries), "seed": seed, "load average": os.getloadavg()[0]}
    return result


def _build(target: Path, admissions: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    entries = {kind: draw_codes(rng, kind, admissions) for kind in KINDS}
    subject = np.sort(rng.integers(0, max(1, round(admissions / STAYS_OF_ONE)), admissions))
    available = rng.integers(0, 10**15, admissions)
    start = time.perf_counter()
    index = build_reports(np.arange(admissions), subject, available, entries)
    index.save(target)
    return {
        "index, seconds to build and save": time.perf_counter() - start,
        "index, peak memory in GB (with its input)": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "index on disk in GB": sum(path.stat().st_size for path in target.iterdir()) / 1e9,
        "different codes of admissions": sum(len(sets.stays) for sets in index.sets),
    }


def draw_codes(rng: np.random.Generator, kind: str, admissions: int) -> CodeEntries:
    """Codes of all admissions: their number is spread like real ones, their popularity falls as 1 / (rank + shift)."""
    size, mean, shift = CODES[kind]
    count = rng.poisson(rng.gamma(SPREAD, mean / SPREAD, admissions))
    popularity = np.cumsum(1 / (np.arange(size) + shift))
    code = np.searchsorted(popularity, rng.random(int(count.sum())) * popularity[-1]).astype(np.int64)
    return CodeEntries(np.repeat(np.arange(admissions), count), code, [f"{kind}/{i:05}" for i in range(size)])


def code_lists(index: ReportIndex):
    """A function from a row of the index to its codes of each kind."""
    parts = []
    for sets in index.sets:
        stays = np.asarray(sets.stays)
        order = np.argsort(stays, kind="stable")
        code = np.repeat(np.arange(len(sets.names)), np.diff(sets.start))[order]
        parts.append((sets.names, code, np.searchsorted(stays[order], np.arange(len(index) + 1))))

    def codes(row: int) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        one, two, three = (tuple(names[int(c)] for c in code[at[row] : at[row + 1]]) for names, code, at in parts)
        return one, two, three

    return codes


def wrong_places(
    index: ReportIndex, codes: Any, query: ReportQuery, rows: np.ndarray, scores: np.ndarray, sample: np.ndarray
) -> int:
    """Found stays whose similarity, and stays of the sample whose place, is not that of Eqs. 4-7 on Python sets."""
    asked = [set(own) for own in query.codes]

    def similarity(row: int) -> float:
        shares = []
        for own, other in zip(asked, map(set, codes(row)), strict=True):
            shares.append(len(own & other) / len(own | other) if own | other else 0.0)
        return sum(shares) / 3

    wrong = sum(abs(similarity(int(row)) - score) > 1e-9 for row, score in zip(rows, scores, strict=True))
    hits = set(rows.tolist())
    last = (-float(scores[-1]), int(rows[-1])) if len(rows) == TOP_K else (0.0, -1)
    for row in sample.tolist():
        if row in hits or int(index.subject_id[row]) == query.subject_id:
            continue
        tau = round(similarity(row), 12)
        wrong += tau > 0 and (-tau, row) < last
    return int(wrong)
