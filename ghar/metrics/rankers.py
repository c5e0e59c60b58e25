"""How well rankers agree with a judge of similarity: Pearson's and Spearman's correlation (Table 4 and Appendix A.7,
EXPRAG), one pair of numbers a patient, then their mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ghar.metrics.bootstrap import mean_interval

Numbers = Sequence[float] | np.ndarray


def correlations(scores: Numbers, judged: Numbers) -> tuple[float, float] | None:
    """Pearson's r and Spearman's rho over one patient's candidates; None where either side says the same of all."""
    from scipy.stats import pearsonr, spearmanr

    one, two = np.asarray(scores, dtype=float), np.asarray(judged, dtype=float)
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(two) == 0:
        return None
    pearson: Any = pearsonr(one, two)
    spearman: Any = spearmanr(one, two)
    return float(pearson.statistic), float(spearman.statistic)


def agreement(
    scores: Mapping[str, Sequence[Numbers]], judged: Sequence[Numbers], *, seed: int, resamples: int
) -> dict[str, Any]:
    """{ranker: {"pearson": [mean, low, high], "spearman": ..., "patients": that have a correlation}}.

    scores: of each ranker, one row of candidates a patient, as in `judged`. Rankers without any are left out.
    """
    result = {}
    for ranker, rows in scores.items():
        found = [pair for pair in map(correlations, rows, judged) if pair is not None]
        if found:
            one, two = (mean_interval(column, seed=seed, resamples=resamples) for column in zip(*found, strict=True))
            result[ranker] = {"pearson": one.as_list(), "spearman": two.as_list(), "patients": len(found)}
    return result
