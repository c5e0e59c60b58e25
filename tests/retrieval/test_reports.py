"""The report ranker against the equations evaluated one pair at a time, in whole fractions."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.errors import BadInput
from ghar.retrieval import reports
from ghar.retrieval.reports import (
    KINDS,
    CodeEntries,
    ReportIndex,
    ReportQuery,
    build_reports,
    rank,
    rank_by_thirds,
    similarities,
    weights,
)

Codes = tuple[frozenset[str], frozenset[str], frozenset[str]]
code_sets = st.frozensets(st.sampled_from("abcdefg"), max_size=5)
stays = st.tuples(st.integers(1, 4), st.integers(0, 3), st.tuples(code_sets, code_sets, code_sets))
SCHEMES = [(Fraction(1, 3),) * 3, (Fraction(0), Fraction(1), Fraction(0)), (Fraction(1), Fraction(0), Fraction(1))]


def index_of(rows: list[tuple[int, int, Any]]) -> ReportIndex:
    """Rows of (patient, time, three sets); stay ids fall with the row, so that no order is there by luck."""
    entries = {}
    for number, kind in enumerate(KINDS):
        pairs = [(row, ord(code) - ord("a")) for row, (_, _, sets) in enumerate(rows) for code in sorted(sets[number])]
        stay, code = np.array(pairs, np.int64).reshape(-1, 2).T
        entries[kind] = CodeEntries(stay, code, list("abcdefg"))
    ids = 100 - np.arange(len(rows))
    columns = [np.array([row[i] for row in rows], np.int64) for i in (0, 1)]
    return build_reports(ids, columns[0], columns[1], entries)


def as_query(subject: int, before: int | None, sets: Codes) -> ReportQuery:
    one, two, three = (tuple(sorted(own)) for own in sets)
    return ReportQuery(subject, before, (one, two, three))


def jaccard(a: frozenset[str], b: frozenset[str]) -> Fraction:
    return Fraction(len(a & b), len(a | b)) if a | b else Fraction(0)


def directly(rows: list, query: ReportQuery, weight: tuple[Fraction, ...], top_k: int) -> list[tuple[int, float]]:
    """Eqs. 4-7 on every stay, then the rules of the module's docstring."""
    found = []
    for number, (subject, time, sets) in enumerate(rows):
        tau = sum(w * jaccard(frozenset(q), s) for w, q, s in zip(weight, query.codes, sets, strict=True))
        if subject != query.subject_id and (query.before is None or time < query.before) and tau > 0:
            found.append((-tau, -time, 100 - number))
    return [(visit, float(-tau)) for tau, _, visit in sorted(found)[:top_k]]


@settings(max_examples=150)
@given(st.lists(stays, max_size=12), stays, st.sampled_from(SCHEMES), st.integers(1, 6), st.booleans())
def test_the_ranking_is_that_of_the_equations(rows: list, own: Any, weight: Any, top_k: int, timed: bool) -> None:
    subject, time, sets = own
    query, index = as_query(subject, time if timed else None, sets), index_of(rows)
    found, scores = rank(index, query, tuple(map(float, weight)), top_k)
    expected = directly(rows, query, weight, top_k)
    assert index.visit_id[found].tolist() == [visit for visit, _ in expected]
    assert scores == pytest.approx([score for _, score in expected], abs=1e-11)


def released(rows: list, query: ReportQuery, top_k: int) -> list[int]:
    """The released code's rule, pair by pair."""

    def index(a: frozenset[str], b: frozenset[str]) -> float:
        for short, long in ((a, b), (b, a)):
            if 10 * len(short) < len(long) and len(short & long) < len(short):
                return 0.0
        return round(float(jaccard(a, b)), 4) if a and b else 0.0

    table = []
    for number, (subject, time, sets) in enumerate(rows):
        each = [index(frozenset(q), s) for q, s in zip(query.codes, sets, strict=True)]
        if subject != query.subject_id and (query.before is None or time < query.before) and round(sum(each), 4) >= 0.5:
            table.append((each, time, 100 - number))
    chosen: dict[int, None] = {}
    for kind in range(3):
        order = sorted((-each[kind], -time, visit) for each, time, visit in table if each[kind] > 0)
        chosen |= dict.fromkeys(visit for _, _, visit in order[: top_k // 3])
    return list(chosen)


@settings(max_examples=100)
@given(st.lists(stays, max_size=12), stays, st.sampled_from([3, 6]))
def test_the_released_rule(rows: list, own: Any, top_k: int) -> None:
    subject, time, sets = own
    query, index = as_query(subject, time, sets), index_of(rows)
    found, _ = rank_by_thirds(index, query, top_k)
    assert index.visit_id[found].tolist() == released(rows, query, top_k)


def test_the_released_length_rule_drops_a_long_set_unless_it_holds_the_short_one() -> None:
    names = [f"{i:02}" for i in range(30)]
    entries = {kind: CodeEntries(np.zeros(0, np.int64), np.zeros(0, np.int64), []) for kind in KINDS}
    stay, code = np.repeat([0, 1], 12), np.tile(np.arange(12), 2)
    entries["diagnoses"] = CodeEntries(np.append(stay, [2]), np.append(code, [0]), names)
    sets = build_reports(*(np.array(x, np.int64) for x in ([1, 2, 3], [1, 2, 3], [0, 0, 0])), entries).sets[0]
    assert reports._released_jaccard(sets, ["00"]).tolist() == [round(1 / 12, 4)] * 2 + [1.0]
    assert reports._released_jaccard(sets, ["99"]).tolist() == [0, 0, 0]


def test_ties_go_to_the_newer_report_then_to_the_lower_stay() -> None:
    same = (frozenset("a"), frozenset(), frozenset())
    index = index_of([(1, 5, same), (2, 9, same), (3, 9, same), (4, 1, same)])
    found, _ = rank(index, as_query(7, None, same), weights("uniform", "diagnoses"), 3)
    assert index.visit_id[found].tolist() == [98, 99, 100]


def test_a_patient_without_codes_has_no_similar_stay() -> None:
    empty = (frozenset(), frozenset(), frozenset())
    index = index_of([(1, 5, (frozenset("a"),) * 3), (2, 5, empty)])
    found, scores = rank(index, as_query(7, None, empty), weights("uniform", "diagnoses"), 15)
    assert len(found) == len(scores) == 0
    assert len(rank(index_of([]), as_query(7, None, empty), weights("uniform", "diagnoses"), 15)[0]) == 0


@pytest.mark.parametrize("scheme, expected", [
    ("uniform", (1 / 3, 1 / 3, 1 / 3)), ("task_focused", (0.0, 1.0, 0.0)), ("complementary", (1.0, 0.0, 1.0)),
])  # fmt: skip
def test_weights_of_table_5(scheme: Any, expected: Any) -> None:
    assert weights(scheme, "medications") == expected


def test_a_saved_index_answers_alike_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    sets = (frozenset("ab"), frozenset("c"), frozenset())
    index = index_of([(1, 5, sets), (2, 6, (frozenset("a"), frozenset("cd"), frozenset("e")))])
    index.save(tmp_path / "index")
    again, query = ReportIndex.load(tmp_path / "index"), as_query(9, None, sets)
    weight = weights("uniform", "diagnoses")
    assert isinstance(again.visit_id.base, np.memmap)
    assert np.array_equal(similarities(index, query, weight), similarities(again, query, weight))
    assert [p.name for p in tmp_path.iterdir()] == ["index"]
    (tmp_path / "index" / "diagnoses.stays.npy").write_bytes(b"half")
    with pytest.raises(BadInput, match=r"diagnoses\.stays\.npy"):
        ReportIndex.load(tmp_path / "index")
