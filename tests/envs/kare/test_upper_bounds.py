"""The ceiling, against an enumeration of all that could be."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.cohort import Task
from ghar.envs.case import Case
from ghar.envs.kare.episode import KareReading
from ghar.envs.kare.upper_bounds import highest_of, kare_ceilings, law_of
from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity_grades import RELATIONS, Knowledge, label_rule

KNOWS = Knowledge({"disease asthma": 2, "disease gout": 6}, RELATIONS, label_rule("los"))
TASK = Task("los", "How long?", tuple(map(str, range(10))))


@given(st.integers(0, 9), st.integers(0, 3))
def test_the_highest_of_known_and_unknown_grades(known: int, unknown: int) -> None:
    counts = np.zeros(story.GRADES)
    for drawn in product(range(1, 10), repeat=unknown):
        counts[max((known, *drawn))] += 1
    assert np.allclose(highest_of(known, unknown), counts / counts.sum())


def test_what_is_shown_lifts_the_ceiling() -> None:
    law = law_of("los")
    assert law is not None and law_of("kare_mortality") is None
    topics = ("disease gout", "disease barpis wenlanosis")
    case = Case("s", 1, 1, "now: " + "; ".join(topics), topics, TASK, 7, KareReading())
    told = "- barpis wenlanosis phenotype present grade 7 course."
    found = kare_ceilings(law, KNOWS, [case], {"s": told})
    assert found["communities"] == law[7].max() == story.LOS_EXACT
    assert np.isclose(found["parametric"], (np.array([6, 1, 1, 1]) / 9 @ law[6:]).max())
    readmission = law_of("kare_readmission")
    assert readmission is not None and np.allclose(readmission.sum(1), 1)
