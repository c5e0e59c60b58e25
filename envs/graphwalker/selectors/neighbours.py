"""Nearest neighbours by cosine, exact, the same however the patients are put into batches.

Order: higher cosine first, rounded as everywhere in the house (`ghar.ranking`), then the lower row. Rows are proposed
in float32, a few more than wanted; cosines are computed again in float64, and where rows tie at the cut-off every row
is looked at. So a list does not depend on what else is asked, and lists of parts merge to the list of all.
"""

from __future__ import annotations

import numpy as np

from ghar.ranking import DECIMALS, best, propose

SPARE = 16  # proposals beyond those wanted, so that ties at the cut-off are seen
BLOCK = 2048  # queries whose proposals are looked at together
FULL = 64  # queries that are compared with every row together


def k_nearest(queries: np.ndarray, base: np.ndarray, k: int, first: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Rows int64 [q, k] of `base` nearest to each query, and their rounded cosines float32 [q, k], best first.

    queries, base: unit rows. first: query i is row first + i of the base and is no neighbour of itself; None: the
    queries are not in it. Needs k <= rows to choose from.
    """
    own = -np.ones(len(queries), np.int64) if first is None else first + np.arange(len(queries))
    wanted = min(k + (first is not None) + SPARE, len(base))
    scores, rows = propose(queries, base, wanted)
    near = np.empty((len(queries), k), np.int64)
    cosines = np.empty((len(queries), k), np.float32)
    for start in range(0, len(queries), BLOCK):
        block = slice(start, start + BLOCK)
        near[block], cosines[block] = _ranked(queries[block], base, rows[block], own[block], k)
    if wanted < len(base):  # the last proposal ties with the last one taken: others may have been cut off
        tied = np.flatnonzero(scores[:, -1] > cosines[:, -1] - 3 * 10.0**-DECIMALS)
        for start in range(0, len(tied), FULL):
            some = tied[start : start + FULL]
            near[some], cosines[some] = _among_all(queries[some], base, own[some], k)
    return near, cosines


def merge(
    near: np.ndarray, cosines: np.ndarray, more: np.ndarray, more_cosines: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The best of two lists a patient, [n, k] and [n, m] with distinct rows: [n, k]."""
    rows, values = np.hstack([near, more]), np.hstack([cosines, more_cosines])
    order = np.lexsort((rows, -values), axis=1)[:, : near.shape[1]]
    return np.take_along_axis(rows, order, 1), np.take_along_axis(values, order, 1)


def _ranked(
    queries: np.ndarray, base: np.ndarray, rows: np.ndarray, own: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    cosines = np.round(np.einsum("qd,qcd->qc", queries.astype(np.float64), base[rows].astype(np.float64)), DECIMALS)
    cosines[rows == own[:, None]] = -np.inf
    order = np.lexsort((rows, -cosines), axis=1)[:, :k]
    return np.take_along_axis(rows, order, 1), np.take_along_axis(cosines, order, 1).astype(np.float32)


def _among_all(queries: np.ndarray, base: np.ndarray, own: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    cosines = queries.astype(np.float64) @ base.astype(np.float64).T
    cosines[np.arange(len(queries))[own >= 0], own[own >= 0]] = -np.inf
    nearest = [best(np.arange(len(base)), row, k) for row in cosines]
    return np.stack([rows for rows, _ in nearest]), np.stack([values for _, values in nearest]).astype(np.float32)
