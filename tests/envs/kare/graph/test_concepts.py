from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.data.cohort import Sample, Visit
from ghar.envs.kare.graph.concepts import ConceptSets, co_occurring, concept_sets
from ghar.envs.kare.graph.near_duplicates import keep_different
from ghar.errors import BadInput

DAY = datetime(2100, 1, 1)
NAMES = {"ICD10CM/I10": "Hypertension", "ICD9CM/4019": "hypertension ", "DRUG/x": "X-ray; dye", "ICD10PCS/0": "???"}


def sample(subject: int, *visits: Visit) -> Sample:
    return Sample(f"{subject}-{visits[-1].visit_id}", subject, visits[-1].visit_id, DAY, visits, 0)


def sets_of(*sets: set[int], size: int = 12, patients: list[int] | None = None) -> ConceptSets:
    lists = [np.array(sorted(s), np.int32) for s in sets]
    start, names = np.cumsum([0, *map(len, lists)]), tuple(f"c{i:02}" for i in range(size))
    return ConceptSets(
        names,
        start,
        np.concatenate([np.empty(0, np.int32), *lists]),
        np.array(patients or range(len(lists)), np.int64),
        {name: (name,) for name in names},
    )


def test_a_set_per_visit_each_visit_once() -> None:
    early = Visit(1, DAY, ("ICD10CM/I10",), (), ())
    more = Visit(1, DAY, ("ICD10CM/I10",), ("ICD10PCS/0",), ("DRUG/x",))
    last = Visit(2, DAY, ("ICD9CM/4019", "ICD10CM/I10"))
    nothing = Visit(3, DAY, (), ("ICD10PCS/0",))
    sets = concept_sets([sample(7, early), sample(7, more, last), sample(8, nothing)], NAMES.__getitem__)
    assert sets.names == ("hypertension", "x ray dye")
    assert [sets.names_of(i) for i in range(len(sets))] == [["hypertension", "x ray dye"], ["hypertension"]]
    assert sets.patient.tolist() == [7, 7]
    assert sets.codes == {"hypertension": ("ICD10CM/I10", "ICD9CM/4019"), "x ray dye": ("DRUG/x",)}
    assert sets.nameless == ("ICD10PCS/0",) and sets.empty == 1


def test_the_coding_system_has_concepts_that_no_patient_shows() -> None:
    sets = concept_sets([sample(7, Visit(1, DAY, ("ICD10CM/I10",)))], NAMES.__getitem__, ["DRUG/x", "ICD10PCS/0"])
    assert sets.names == ("hypertension", "x ray dye") and len(sets) == 1 and sets.names_of(0) == ["hypertension"]
    assert sets.codes["x ray dye"] == ("DRUG/x",) and co_occurring(sets, 5) == [[], []]
    with pytest.raises(BadInput, match="no visit with a code"):
        concept_sets([sample(8, Visit(3, DAY, (), ("ICD10PCS/0",)))], NAMES.__getitem__, ["DRUG/x"])


def test_nothing_to_start_from_is_told() -> None:
    with pytest.raises(BadInput, match="no visit with a code"):
        concept_sets([sample(8, Visit(3, DAY, (), ("ICD10PCS/0",)))], NAMES.__getitem__)


SETS = st.lists(st.sets(st.integers(0, 11), min_size=1), min_size=1, max_size=25)


@pytest.mark.slow
@given(SETS, st.integers(1, 4), st.integers(0, 5))
def test_co_occurring_counts_patients(sets: list[set[int]], people: int, top: int) -> None:
    patients = [i % people for i in range(len(sets))]
    records = [
        set().union(*(s for s, p in zip(sets, patients, strict=True) if p == person)) for person in range(people)
    ]
    for concept, found in enumerate(co_occurring(sets_of(*sets, patients=patients), top)):
        count = {o: sum(concept in r and o in r for r in records) for o in range(12) if o != concept}
        together = [o for o in sorted(count, key=lambda o: (-count[o], o)) if count[o]]
        assert found == together[:top]


def direct(sets: list[set[int]], threshold: int) -> list[int]:
    kept: list[int] = []
    for i, here in enumerate(sets):
        if all(len(here ^ sets[other]) >= threshold for other in kept):
            kept.append(i)
    return kept


@pytest.mark.slow
@settings(max_examples=300)
@given(SETS, st.integers(0, 7))
def test_the_filter_keeps_what_the_rule_keeps(sets: list[set[int]], threshold: int) -> None:
    assert keep_different(sets_of(*sets), threshold).tolist() == direct(sets, threshold)


@pytest.mark.parametrize("concepts, most", [(60, 20), (3000, 40)])
def test_larger_sets_too_where_signatures_collide(concepts: int, most: int) -> None:
    rng = np.random.default_rng(concepts)
    sets = [set(rng.integers(0, concepts, rng.integers(1, most)).tolist()) for _ in range(150)]
    for _ in range(250):  # near copies, some of them at a distance of exactly 5
        copy = set(sets[rng.integers(len(sets))])
        sets.append((copy ^ set(rng.integers(0, concepts, rng.integers(1, 8)).tolist())) or {0})
    order = rng.permutation(len(sets))
    sets = [sets[i] for i in order]
    kept = keep_different(sets_of(*sets, size=concepts), 5).tolist()
    assert kept == direct(sets, 5)
    assert len(kept) < len(sets)


def test_the_order_decides_who_stays() -> None:
    a, b, c = {1, 2, 3, 4}, {1, 2, 3, 5, 6}, {1, 2, 5, 6, 7, 8}  # a and b differ by 3, b and c by 3, a and c by 6
    assert keep_different(sets_of(a, b, c), 5).tolist() == [0, 2]
    assert keep_different(sets_of(b, a, c), 5).tolist() == [0]
