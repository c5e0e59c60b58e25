"""How well rankers agree with a judge of similarity: Pearson's and Spearman's correlation (Table 4 and Appendix A.7,
EXPRAG), one pair of numbers a sample, then their mean, with intervals over patients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ghar.metrics.bootstrap import Patients, mean_interval

Numbers = Sequence[float] | np.ndarray


def correlations(scores: Numbers, judged: Numbers) -> tuple[float, float] | None:
    """Pearson's r and Spearman's rho over one sample's candidates; None where either side says the same of all."""
    from scipy.stats import pearsonr, spearmanr

    one, two = np.asarray(scores, dtype=float), np.asarray(judged, dtype=float)
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(two) == 0:
        return None
    pearson: Any = pearsonr(one, two)
    spearman: Any = spearmanr(one, two)
    return float(pearson.statistic), float(spearman.statistic)


def agreement(
    scores: Mapping[str, Sequence[Numbers]],
    judged: Sequence[Numbers],
    *,
    patients: Patients,
    seed: int,
    resamples: int,
) -> dict[str, Any]:
    """{ranker: {"pearson": [mean, low, high], "spearman": ..., "n" and "patients": that have a correlation}}.

    scores: of each ranker, one row of candidates a sample, as in `judged`; patients: the patient of each sample.
    Rankers without any are left out.
    """
    who = range(len(judged)) if patients is None else patients
    result = {}
    for ranker, rows in scores.items():
        pairs = [(pair, at) for pair, at in zip(map(correlations, rows, judged), who, strict=True) if pair is not None]
        if pairs:
            ids = [at for _, at in pairs]
            one, two = (
                mean_interval([pair[side] for pair, _ in pairs], patients=ids, seed=seed, resamples=resamples)
                for side in (0, 1)
            )
            count = {"n": len(pairs), "patients": len(set(ids))}
            result[ranker] = {"pearson": one.as_list(), "spearman": two.as_list(), **count}
    return result
