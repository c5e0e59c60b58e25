"""DGRA against a direct evaluation of Eqs. 3-6 and Algorithm 1 (KARE)."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kare_dgra import direct_selection
from ghar.envs.kare.retrieval import dgra
from ghar.envs.kare.retrieval.dgra import PAPER, RELEASED, CommunityArrays, DgraSettings, Term, select
from ghar.envs.kare.retrieval.patient_graph import PatientKnowledgeGraph
from tests.envs.kare.retrieval.communities import arrays_of, draw_communities, draw_context, draw_patient, unit

TERMS = st.lists(st.sampled_from(get_args(Term)), max_size=3, unique=True).map(tuple)


@st.composite
def any_settings(draw: st.DrawFn) -> DgraSettings:
    preset = draw(st.sampled_from([PAPER, RELEASED, DgraSettings(0.0, 1.0, 1.0, 1.0, 1.0)]))
    over, by = draw(st.sampled_from(["direct", "all"])), draw(st.sampled_from(["nodes", "summary"]))
    return replace(preset, decay_over=over, theme_by=by, without=draw(TERMS))


@pytest.mark.slow
@settings(max_examples=300)
@given(st.integers(0, 2**32 - 1), any_settings(), st.integers(1, 8), st.sampled_from([1, 3, 512]))
def test_every_selection_is_that_of_a_direct_evaluation(seed: int, s: DgraSettings, n: int, pool: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 12))
    own = draw_communities(rng, int(rng.integers(0, 25)), nodes)
    patient, context = draw_patient(rng, nodes), draw_context(rng)
    wanted = direct_selection(own, patient, context, s, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dgra, "POOL", pool)
        found = select(own, patient, context, s, n)
    assert list(found.ids) == [community for community, _ in wanted]
    np.testing.assert_allclose([f.relevance for f in found.factors], [score for _, score in wanted], rtol=1e-9)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), any_settings())
def test_factors_multiply_to_the_relevance_and_explain_what_is_left_out(seed: int, s: DgraSettings) -> None:
    rng = np.random.default_rng(seed)
    own, patient = draw_communities(rng, 15, 10), draw_patient(rng, 10)
    for f in select(own, patient, draw_context(rng), s, 5).factors:
        terms = {"hits": f.hits, "decay": f.decay, "coherence": f.coherence, "recency": f.recency, "theme": f.theme}
        np.testing.assert_allclose(np.prod(list(terms.values())), f.relevance, rtol=1e-12)
        assert all(terms[name] == 1 for name in s.without)
        assert f.recency >= 1  # also without a direct hit: no NaN


CONTEXT = np.array([0.0, 1.0], np.float32)  # at a right angle to every summary of `of`


def of(members: list[list[int]], nodes: int, usable: list[bool] | None = None) -> CommunityArrays:
    zeros = np.zeros(len(members), np.float32)
    vectors = unit(np.zeros((len(members), 2), np.float32))
    return arrays_of(members, nodes, vectors, zeros, zeros, np.array(usable or [True] * len(members)))


def patient_of(direct: list[int], visit: list[int], indirect: list[int]) -> PatientKnowledgeGraph:
    return PatientKnowledgeGraph(np.array(direct, np.int64), np.array(visit, np.int64), np.array(indirect, np.int64))


def test_a_worked_example() -> None:
    """D = {0, 1}, I = {2, 3, 4, 5}; alpha .1, beta .7: after {0, 1} its direct nodes count .7 each."""
    own = of([[0, 1], [0, 2, 3], [1], [6]], 7)
    found = select(own, patient_of([0, 1], [0, 2], [2, 3, 4, 5]), CONTEXT, PAPER, 10)
    assert found.ids == (0, 2, 1)  # {6} is not relevant at all
    first, second, third = found.factors
    assert (first.hits, first.decay, first.recency) == (1.0, 1.0, pytest.approx(1.2))
    assert (second.hits, second.decay, second.recency) == (0.5, 0.7, pytest.approx(1.4))
    assert third.hits == pytest.approx(0.5 + 0.1 * 2 / 4)
    assert (third.decay, third.recency, third.direct_hits, third.indirect_hits) == (0.7, 1.0, 1, 2)


def test_equal_communities_come_lowest_id_first_and_unusable_ones_never() -> None:
    own = of([[0], [0], [0]], 1, usable=[True, False, True])
    assert select(own, patient_of([0], [0], []), CONTEXT, PAPER, 5).ids == (0, 2)


def test_a_patient_without_nodes_gets_nothing_unless_hits_are_switched_off() -> None:
    own, nobody = of([[0], [1]], 2), patient_of([], [], [])
    assert select(own, nobody, CONTEXT, PAPER, 5).ids == ()
    assert select(own, nobody, CONTEXT, replace(PAPER, without=("hits",)), 5).ids == (0, 1)
