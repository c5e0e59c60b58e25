"""The encoder fitted to events: rows are found by name, whatever the spelling, the time, or the word for it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.tasks.cards import CARDS
from ghar.envs.ehr_rag.code_vectors import CodeEncoder, fit_code_vectors, words_of
from ghar.envs.ehr_rag.ether import EtherSpec, EventCorpus, EventQuery
from ghar.errors import BadInput
from ghar.retrieval.encoders import load_encoder
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import StoreLayout
from tests.data.small import DAY, HOUR, START, small_cohort

DRUGS = [f"DRUG/{kind} {n}" for kind in ("statin", "insulin", "heparin", "steroid") for n in range(60)]
LABS = [f"LAB/{name}" for name in ("Hemoglobin", "Hemoglobin A1c", "Carboxyhemoglobin", "Sodium", "Anion Gap")]
SYNONYMS = ("ICD10CM/heart attack", "ICD10CM/myocardial infarction")
ROWS, PATIENTS = 5_300, 4


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    """Patients of 5,300 rows, some drugs far more frequent than others; one of two names for one thing, which comes
    with the same two drugs."""
    rng = np.random.default_rng(0)
    frequency = 1 / (1 + np.arange(len(DRUGS)))
    events = []
    for subject in range(1, PATIENTS + 1):
        drawn = rng.choice(len(DRUGS), ROWS, p=frequency / frequency.sum())
        rows = [DRUGS[i] for i in drawn]
        for place in rng.permutation(ROWS - 2)[:40]:
            rows[place : place + 3] = [SYNONYMS[int(rng.integers(2))], "DRUG/nitroglycerin", "DRUG/aspirin"]
        events += [(subject, 1, row, START + i * HOUR) for i, row in enumerate(rows)]
        events += [(subject, 1, lab, START + i * DAY, START, 1.0 + i, None) for i in range(20) for lab in LABS]
    made = small_cohort([(1, 1, START, START + DAY, None)], sorted(events, key=lambda e: (e[0], e[3])))
    return replace(made, codes=made.codes.with_columns(description=pl.col("code").str.replace("^[^/]*/", "")))


@pytest.fixture(scope="module")
def encoder(cohort: Cohort) -> CodeEncoder:
    return fit_code_vectors(cohort, {1, 2, 3})


def test_a_verbatim_row_is_found_among_53_chunks_nearly_always(
    cohort: Cohort, encoder: CodeEncoder, tmp_path: Path
) -> None:
    """Of patient 4, to whom nothing was fitted; without its time, which has no say."""
    store = build_event_store(cohort, tmp_path, encoder, StoreLayout(100, 0, True, "time"))
    spec = EtherSpec(alpha=0.75, recent_days=180, early_days=3650, candidates=100, values=5)
    corpus = EventCorpus([(4, START + 3650 * DAY)], spec, encoder, store, None, seed=0)
    record = corpus.record(0, "chunks")
    assert record.chunks == 53
    found = []
    for row in np.random.default_rng(1).integers(0, record.rows, 100).tolist():
        name = record.text([row])[0].partition("] ")[2]
        [evidence] = corpus.retrieve([EventQuery(name, top_n=5, place=0, view="chunks")])
        found.append(any(name in line for passage in evidence.passages for line in passage.text.split("\n")))
    assert np.mean(found) >= 0.95


def test_haemoglobin_is_the_first_indicator_of_the_question_about_anaemia(encoder: CodeEncoder) -> None:
    names = [lab.removeprefix("LAB/") for lab in LABS]
    cosines = encoder.passages(names) @ encoder.queries([CARDS["lab_anemia"].description])[0]
    assert names[int(cosines.argmax())] == "Hemoglobin" and np.sum(cosines == cosines.max()) == 1


def test_other_words_for_the_same_are_near_by_what_they_come_with(encoder: CodeEncoder) -> None:
    attack, infarction, statin = encoder.passages(["heart attack", "myocardial infarction", "statin 50"])
    assert attack @ infarction > 0.15 > 0.05 > attack @ statin


def test_times_have_no_say_and_numbers_are_a_word_more(encoder: CodeEncoder) -> None:
    one, other, bare = (
        "[2150-01-01 08:00:00] drug - statin 3", "[2160-12-31 23:00:00] drug - statin 3", "statin 3",
    )  # fmt: skip
    vectors = encoder.passages([one, other, bare])
    assert np.array_equal(vectors[0], vectors[1]) and np.array_equal(vectors[0], vectors[2])
    measured = encoder.passages([f"measurement - Sodium (value: {value} mmol/L)" for value in (140, 120)])
    asked = encoder.queries(["measurement - Sodium (value: 140 mmol/L)", "Sodium"])
    assert measured[0] @ asked[0] == pytest.approx(1, abs=1e-5) and 0.5 < measured[1] @ asked[0] < 0.99
    assert measured[0] @ asked[1] > 0.6
    told = encoder.passages(["measurement - Sodium (value: high)", "measurement - Sodium (value: low)"])
    assert told[0] @ told[1] < 0.99


def test_vectors_are_of_unit_length_and_empty_texts_are_nothing(encoder: CodeEncoder) -> None:
    vectors = encoder.passages(["statin 1\nstatin 1\ninsulin 2", "unheard of", "the of and", ""])
    assert vectors.shape == (4, encoder.dimension) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors[:2], axis=1), 1, atol=1e-5) and not vectors[3].any()


def test_a_text_has_the_same_vector_whatever_else_is_encoded(encoder: CodeEncoder) -> None:
    texts = ["statin 1\ninsulin 2", "heart attack", "statin 1\nstatin 9"]
    together = encoder.passages(texts)
    assert np.allclose(together, np.vstack([encoder.passages([text]) for text in texts]), atol=1e-6)


def test_it_depends_on_its_patients_alone_and_can_be_sent(cohort: Cohort, encoder: CodeEncoder) -> None:
    assert fit_code_vectors(cohort, {1, 2, 3}).key == encoder.key != fit_code_vectors(cohort, {1}).key
    sent = pickle.loads(pickle.dumps(encoder))
    assert np.array_equal(sent.passages(["heart attack"]), encoder.passages(["heart attack"]))


def test_nobody_to_fit_to_and_other_systems_are_refused(cohort: Cohort) -> None:
    with pytest.raises(BadInput, match="they have none"):
        fit_code_vectors(cohort, {99})
    with pytest.raises(BadInput, match="only system=ehr_rag"):
        load_encoder("codes", 8)


@pytest.mark.parametrize("one, other", [
    ("anaemia", "anemia"), ("Haemoglobin", "hemoglobin"), ("oesophagus", "esophagus"), ("tumours", "tumor"),
    ("Chest pains", "chest pain"), ("Crohn's", "crohn's"),
])  # fmt: skip
def test_one_spelling(one: str, other: str) -> None:
    assert words_of(one) == words_of(other)
