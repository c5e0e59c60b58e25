"""Time-series. Needs: nothing of the model. The k nearest by masked scale-invariant cosine (Kawarada et al. 2024).

After Appendix D of GraphWalker: both series are cut to the shorter one's steps, and only places where both have a value
count. Which scale is meant is left open there. Here each feature has a cosine of its own, so that multiplying a feature
of one patient by a positive number changes nothing; their mean is weighted by the number of places that count. Patients
with no place in common have likeness 0.
"""

from __future__ import annotations

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import (
    ExamplePool,
    Patient,
    Selection,
    SelectionQuery,
    Walk,
    nothing_shared,
)

prepare = nothing_shared


def select(pool: ExamplePool, shared: None, query: SelectionQuery) -> Walk:
    own = measured(query.patient)
    values = np.array([likeness(own, measured(other)) for other in pool.patients])
    return Selection(pool.best(np.round(values, 9), query.allowed, pool.selector.k))
    yield  # makes it a generator


def measured(patient: Patient) -> np.ndarray:
    """The patient's table [T, F]."""
    assert patient.series is not None  # ghar.configure lets no one ask this of medical questions
    return patient.series.values


def likeness(a: np.ndarray, b: np.ndarray) -> float:
    """Of two tables [T, F] with NaN where there is no value, from -1 to 1."""
    steps = min(len(a), len(b))
    x, y = a[:steps].astype(np.float64), b[:steps].astype(np.float64)
    both = ~np.isnan(x) & ~np.isnan(y)
    x, y = np.where(both, x, 0.0), np.where(both, y, 0.0)
    scale = np.sqrt((x * x).sum(0) * (y * y).sum(0))
    cosine = np.divide((x * y).sum(0), scale, out=np.zeros(len(scale)), where=scale > 0)
    places = both.sum(0)
    return float((places * cosine).sum() / places.sum()) if places.any() else 0.0
