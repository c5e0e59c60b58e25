"""How often a study's 95% intervals hold the truth, on simulated studies whose truth is known.

Patients have one to three stays, which share the patient's luck; seeds share the patients. What is estimated is the
mean over all seeds and patients there could be, which is 0. The standard deviation between seeds goes from nothing to
several times that of a mean over patients.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ghar.metrics.seeds import seeds_and_patients

STUDIES = 1000
SEEDS = (2, 3, 5, 8)
BETWEEN = (0.0, 0.02, 0.05, 0.1, 0.2)  # standard deviation between seeds
PATIENTS = (60, 200)
LUCK, NOISE = 0.4, 0.25  # standard deviations of a patient's luck and of a stay


def coverage(share: float) -> dict[str, Any]:
    """settings: a row for each number of seeds, spread between them and number of patients; STUDIES times `share`."""
    settings: list[dict[str, Any]] = []
    for seeds in SEEDS:
        for patients in PATIENTS:
            for between in BETWEEN:
                hits, widths = zip(
                    *(_study(seeds, patients, between, i) for i in range(round(STUDIES * share))), strict=True
                )
                setting = {"seeds": seeds, "patients": patients, "between seeds": between}
                counted = {"held": round(float(np.mean(hits)), 3), "width": round(float(np.median(widths)), 3)}
                settings.append(setting | counted)
                print(json.dumps(settings[-1]), flush=True)
    return {"settings": settings}


def _study(seeds: int, patients: int, between: float, number: int) -> tuple[bool, float]:
    rng = np.random.default_rng([seeds, patients, round(1000 * between), number])
    who = np.repeat(np.arange(patients), rng.integers(1, 4, patients))
    luck = rng.normal(0, LUCK, patients)[who]
    values = [luck + rng.normal(0, between) + rng.normal(0, NOISE, len(who)) for _ in range(seeds)]
    interval = seeds_and_patients(values, [who.tolist()] * seeds, seed=number)
    return interval.low <= 0 <= interval.high, interval.high - interval.low
