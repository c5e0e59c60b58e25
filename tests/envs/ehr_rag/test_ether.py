"""ETHER against the equations written out, and the baselines' views."""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.ehr_rag.ether import EtherSpec, EventCorpus, EventQuery, rank_chunks, time_score
from ghar.retrieval.encoders import HashingEncoder
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import StoreLayout, to_micros
from tests.data.small import DAY, HOUR, START, small_cohort

ENCODER = HashingEncoder(32)
CUT = START + 40 * DAY - timedelta(microseconds=1)
SPEC = EtherSpec(alpha=0.75, recent_days=180, early_days=3650, candidates=100, values=5)


@given(
    st.lists(st.floats(0, 8000), min_size=1, max_size=20), st.floats(0, 8000),
    st.floats(1, 1000), st.floats(1, 9000),
)  # fmt: skip
def test_the_time_score_is_eq_2(days: list[float], more: float, recent: float, early: float) -> None:
    first, now = to_micros(START), to_micros(START + timedelta(days=max(days) + more))
    times = np.array([to_micros(START + timedelta(days=d)) for d in days])
    direct = []
    for day in days:
        until_now, since_first = max(days) + more - day, day
        direct.append(max(math.exp(-until_now / recent), math.exp(-since_first / early)))
    assert np.allclose(time_score(times, first, now, recent, early), direct, rtol=1e-6, atol=1e-9)


def test_the_time_score_is_u_shaped() -> None:
    days = np.array([0, 900, 1800, 2700, 3500, 3600])
    times = np.array([to_micros(START + int(d) * DAY) for d in days])
    scores = time_score(times, to_micros(START), to_micros(START + 3600 * DAY), 180, 3650)
    assert scores[0] == scores[-1] == 1.0 and scores.argmin() not in (0, 5) and scores[4] > scores[3]


@pytest.mark.parametrize("born", ["MEDS_BIRTH", "Gender/F"])
def test_a_birth_does_not_begin_the_record(tmp_path: Path, born: str) -> None:
    """Born 50 years before the first event: what is known first is early, as Eq. 2 means it for any patient."""
    birth = START - 50 * 365 * DAY
    events = [(1, None, born, birth), *((1, 1, f"DRUG/drug {i}", START + i * 100 * DAY) for i in range(30))]
    cohort = small_cohort([(1, 1, START, START + DAY, None)], [*events, (2, None, born, birth)])
    store = build_event_store(cohort, tmp_path, ENCODER, StoreLayout(1, 0, True, "time"))
    record = store.record(1, START + 3000 * DAY)
    assert record.first == to_micros(START) and record.rows == 31
    told = time_score(record.chunk_ends(), record.first, record.now, 180, 3650)
    assert told[1] == 1.0 and told[0] < 0.01 and told.max() <= 1 and told.argmin() == 0
    only_born = store.record(2, START)
    assert only_born.rows == 1 and only_born.first == only_born.now
    assert 0 < time_score(only_born.chunk_ends(), only_born.first, only_born.now, 180, 3650)[0] < 0.01


scores = st.integers(0, 40).map(lambda n: n / 40)  # coarse, so that ties happen


@given(st.lists(st.tuples(scores, scores), max_size=30), st.sampled_from([0.0, 0.5, 0.75, 1.0]),
       st.integers(1, 12), st.integers(1, 8))  # fmt: skip
def test_ranking_is_eq_3_over_the_most_similar(
    pairs: list[tuple[float, float]], alpha: float, candidates: int, keep: int
) -> None:
    semantic, time = np.array([s for s, _ in pairs]), np.array([t for _, t in pairs])
    pool = sorted(range(len(pairs)), key=lambda i: (-semantic[i], i))[:candidates]
    whole = {i: round(alpha * semantic[i] + (1 - alpha) * time[i], 5) for i in pool}
    expected = sorted(pool, key=lambda i: (-whole[i], i))[:keep]
    assert rank_chunks(semantic, time, alpha, candidates, keep) == expected


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> EventCorpus:
    """One patient with 60 drugs and two indicators over 60 days, one patient without events, cut at day 40."""
    events = [(1, 1, f"DRUG/drug {i % 7} of {'heart' if i == 20 else 'skin'}", START + i * DAY) for i in range(60)]
    events += [(1, 1, "LAB/sodium", START + i * DAY + HOUR, START, float(130 + i), None) for i in range(60)]
    events += [(1, 1, "LAB/troponin heart", START + 3 * DAY, START, 0.5, None)]
    cohort = small_cohort([(1, 1, START, START + DAY, None)], sorted(events, key=lambda e: e[3]))
    folder = tmp_path_factory.mktemp("stores")
    stores = [build_event_store(cohort, folder, ENCODER, StoreLayout(10, 2, apart, "time")) for apart in (True, False)]
    return EventCorpus([(1, CUT), (2, START), (1, START - DAY)], SPEC, ENCODER, *stores, seed=3)


def ask(corpus: EventCorpus, view, query: str = "heart", top_n: int = 5, place: int = 0) -> tuple[Any, ...]:
    [found] = corpus.retrieve([EventQuery(query, top_n=top_n, place=place, view=view)])
    return found.passages


def test_indicators_by_the_similarity_of_their_names(corpus: EventCorpus) -> None:
    first, second = ask(corpus, "indicators", "heart troponin")
    assert first.codes == ("LAB/troponin heart",) and first.score > second.score
    assert second.text.count(";") == 4 and "169" in second.text and "170" not in second.text
    assert [p.codes[0] for p in ask(corpus, "indicators", "sodium", 1)] == ["LAB/sodium"]


def test_chunks_are_the_best_by_the_whole_score(corpus: EventCorpus) -> None:
    record = corpus.record(0, "chunks")
    query = ENCODER.queries(["heart"])[0]
    direct = []
    for chunk in range(record.chunks):
        rows = record.text(record.chunk_rows(chunk))
        age = (39 - min(chunk * 8 + 9, 39)) + 1  # days from the last row to the prediction
        time = max(math.exp(-age / 180), math.exp(-min(chunk * 8 + 9, 39) / 3650))
        direct.append(0.75 * float(ENCODER.passages(["\n".join(rows)])[0] @ query) + 0.25 * time)
    found = ask(corpus, "chunks", top_n=3)
    assert [p.ident for p in found] == sorted(range(len(direct)), key=lambda i: -direct[i])[:3]
    assert np.allclose([p.score for p in found], sorted(direct, reverse=True)[:3], atol=1e-6)
    assert all("LAB" not in code for p in found for code in p.codes)


@settings(max_examples=10)
@given(view=st.sampled_from(["indicators", "chunks", "similar", "newest", "frequent", "uniform"]), n=st.integers(1, 99))
def test_nothing_after_the_prediction_time_is_found(corpus: EventCorpus, view, n: int) -> None:
    for passage in ask(corpus, view, top_n=n):
        assert passage.last < CUT
        dates = [row[1:20] for row in passage.rows if row.startswith("[")]
        assert all(date < f"{CUT}" for date in dates)
        assert list(passage.numbers) == sorted(set(passage.numbers))
        assert len(passage.rows) == len(passage.codes)
    assert ask(corpus, view, place=1) == () and ask(corpus, view, place=2) == ()


def test_the_views_of_the_baselines(corpus: EventCorpus) -> None:
    [newest] = ask(corpus, "newest", top_n=7)
    assert newest.numbers == tuple(range(newest.numbers[-1] - 6, newest.numbers[-1] + 1))
    [frequent] = ask(corpus, "frequent", top_n=30)
    assert Counter(frequent.codes) == {"LAB/sodium": 30}
    groups = ask(corpus, "frequent", top_n=1000)
    often = Counter(code for passage in groups for code in passage.codes)
    assert [passage.score for passage in groups] == sorted({n / often.total() for n in often.values()}, reverse=True)
    assert all(often[code] == often.total() * passage.score for passage in groups for code in passage.codes)
    assert sorted(n for passage in groups for n in passage.numbers) == list(range(often.total()))
    drawn = [tuple(p.ident for p in ask(corpus, "uniform", top_n=4)) for _ in range(2)]
    assert drawn[0] == drawn[1] and len(set(drawn[0])) == 4
    again = EventCorpus([(2, START), (1, CUT)], SPEC, ENCODER, corpus.apart, corpus.whole, seed=3)
    assert tuple(p.ident for p in ask(again, "uniform", top_n=4, place=1)) == drawn[0]  # wherever the case stands
    similar = ask(corpus, "similar", "heart", 1)[0]
    assert any("heart" in code for code in similar.codes)
