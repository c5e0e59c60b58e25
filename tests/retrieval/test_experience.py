"""Retrievers over reports: which pieces come back, and how they grow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.data.sections import VISIT_HEADINGS
from ghar.retrieval.experience import (
    chunk_finder,
    chunks,
    find_excerpts,
    join_windows,
    make_finder,
    merge,
    merging_finder,
    sentence_spans,
    window_finder,
)
from ghar.retrieval.matching import bm25, tfidf

REPORTS = {
    7: "Chief Complaint:\ncough\nBrief Hospital Course:\nGiven fluids. Dose was 2.5 mg. Then antibiotics.\n"
    "Discharge Diagnosis:\nPneumonia\nDischarge Medications:\n1. Amoxicillin 500 mg",
    9: "Discharge Diagnosis:\nGout\nDischarge Medications:\n1. Colchicine 1 mg",
}


@pytest.mark.parametrize("kind", ["bm25", "dense", "fusion", "sentence_window", "auto_merging", "flare"])
def test_every_retriever_finds_the_report_with_the_words(kind: str) -> None:
    found = find_excerpts(make_finder(kind, tfidf), REPORTS, "amoxicillin", 3)
    assert found and found[0].report == 7 and "Amoxicillin" in found[0].text
    assert all(e.report == 7 for e in found)
    assert find_excerpts(make_finder(kind, tfidf), {}, "amoxicillin", 3) == []
    assert find_excerpts(make_finder(kind, tfidf), REPORTS, "nothing like it", 3) == []


def test_an_excerpt_names_its_heading() -> None:
    [found] = find_excerpts(chunk_finder(bm25), REPORTS, "gout", 1)
    assert (found.report, found.heading, found.text) == (9, "discharge diagnosis", "Gout")


def test_an_unknown_retriever_is_an_error() -> None:
    with pytest.raises(ValueError, match="colbert"):
        make_finder("colbert", tfidf)


def test_sentences_keep_decimals() -> None:
    said = [REPORTS[7][a:b] for _, a, b in sentence_spans(REPORTS[7])]
    assert said == [
        "cough", "Given fluids.", "Dose was 2.5 mg.", "Then antibiotics.", "Pneumonia", "1.", "Amoxicillin 500 mg",
    ]  # fmt: skip


def test_a_window_takes_the_neighbours() -> None:
    [found] = find_excerpts(window_finder(tfidf, 1), REPORTS, "2.5 dose", 1)
    assert found.text.split("\n")[0] == "Given fluids. Dose was 2.5 mg. Then antibiotics."


@given(st.dictionaries(st.integers(0, 11), st.integers(1, 5).map(float), max_size=6), st.integers(0, 3))
def test_windows_cover_just_the_neighbourhoods(hits: dict[int, float], window: int) -> None:
    joined = join_windows(hits, window, 12)
    covered = {i for place in hits for i in range(place - window, place + window + 1) if 0 <= i < 12}
    assert [i for first, last, _ in joined for i in range(first, last + 1)] == sorted(covered)
    for first, last, score in joined:
        assert score == max(s for place, s in hits.items() if first <= place <= last)


def test_windows_that_touch_are_one() -> None:
    assert join_windows({0: 1.0, 3: 2.0, 9: 1.0}, 1, 12) == [(0, 4, 2.0), (8, 10, 1.0)]


def merged_directly(hits: dict[int, float], leaves: int) -> dict[tuple[int, int], float]:
    """Every stretch of every level asked: are more than half of its pieces there?"""
    found = {(number, 0): score for number, score in hits.items()}
    for level in (1, 2):
        below = -(-leaves // 4 ** (level - 1))
        for stretch in range(-(-below // 4)):
            pieces = [p for p in range(4 * stretch, 4 * stretch + 4) if p < below]
            there = [(p, level - 1) for p in pieces if (p, level - 1) in found]
            if len(pieces) > 1 and 2 * len(there) > len(pieces):
                found[stretch, level] = sum(found.pop(key) for key in there) / len(there)
    return found


@pytest.mark.slow
@settings(max_examples=200)
@given(st.integers(1, 40), st.data())
def test_merging_is_that_of_the_rule(leaves: int, data: st.DataObject) -> None:
    places = st.integers(0, leaves - 1)
    hits = data.draw(st.dictionaries(places, st.integers(1, 9).map(float), max_size=leaves))
    found = merge({(place, 0): score for place, score in hits.items()}, leaves)
    expected = merged_directly(hits, leaves)
    assert found.keys() == expected.keys()
    assert all(found[key] == pytest.approx(expected[key]) for key in found)


def test_merged_leaves_come_back_as_one_stretch() -> None:
    text = "Brief Hospital Course:\n" + " ".join(f"w{i}" for i in range(8))

    def match(texts: Sequence[str], query: str) -> np.ndarray:
        return np.array([1.0 if i < 3 else 0.0 for i in range(len(texts))])

    [found] = find_excerpts(merging_finder(match, leaf=1), {1: text}, "", 5)
    assert found.text == "w0 w1 w2 w3" and found.score == 1.0
    [whole] = find_excerpts(merging_finder(lambda t, q: np.ones(len(t)), leaf=1), {1: text}, "", 8)
    assert whole.text == text.split("\n")[1]


@given(st.integers(1, 5))
def test_chunks_hold_every_word_once_and_no_heading(size: int) -> None:
    found = [REPORTS[7][a:b].split() for _, a, b in chunks(REPORTS[7], size)]
    assert all(len(words) <= size for words in found)
    flat = [word for words in found for word in words]
    kept = [w for w in REPORTS[7].split() if w in flat]
    assert flat == [w for w in kept if not w.endswith(":")] and "Pneumonia" in flat


def test_chunks_end_with_a_sentence_or_an_item() -> None:
    text = (
        "Brief Hospital Course:\nGiven fluids. Dose was 2.5 mg daily. Then antibiotics.\n"
        "Discharge Diagnosis:\nKitchen of house as the place of occurrence; Gout, unspecified; Pneumonia.\n"
        "Discharge Medications:\n1. Amoxicillin 500 mg 2. Colchicine 3. Zinc\n4. Iron"
    )
    assert [text[a:b] for _, a, b in chunks(text, 5)] == [
        "Given fluids.", "Dose was 2.5 mg daily.", "Then antibiotics.",
        "Kitchen of house as the", "place of occurrence; Gout, unspecified;", "Pneumonia.",
        "1. Amoxicillin 500 mg", "2. Colchicine 3. Zinc", "4. Iron",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["bm25", "sentence_window", "auto_merging"])
def test_pieces_of_visit_notes_of_aci_bench(shared_data: Path, kind: str) -> None:
    file = shared_data / "text" / "aci-bench" / "valid.csv.gz"
    if not file.exists():
        pytest.skip("no aci-bench in the shared data")
    notes = dict(enumerate(pl.read_csv(file)["note"]))
    found = find_excerpts(make_finder(kind, tfidf), notes, "assessment and plan: congestive heart failure, lasix", 6)
    assert len(found) >= 2 and "heart failure" in found[0].text.lower()
    assert all(e.text in notes[e.report] for e in found)
    assert {e.heading for e in found} <= set(VISIT_HEADINGS)
