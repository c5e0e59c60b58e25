"""When-to-retrieve equals scikit-learn's precision and recall, per patient and per decision."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_recall_fscore_support

from ghar.metrics.policy import when_to_retrieve

pair = st.tuples(st.booleans(), st.booleans())


@settings(max_examples=40)
@given(st.lists(st.lists(pair, max_size=4), min_size=1, max_size=20))
def test_equals_scikit_learn(decisions):
    flat = [p for patient in decisions for p in patient]
    got = when_to_retrieve(decisions, patients=None, resamples=200)
    if not flat:
        assert got == {}
        return
    needed, retrieved = zip(*flat, strict=True)
    precision, recall, f1, _ = precision_recall_fscore_support(needed, retrieved, average="binary", zero_division=0.0)  # pyright: ignore
    assert got["retrieval_rate"].value == pytest.approx(sum(retrieved) / len(flat))
    assert ("when_precision" in got) <= any(retrieved) and ("when_recall" in got) <= any(needed)
    for name, expected in (("when_precision", precision), ("when_recall", recall), ("when_f1", f1)):
        if name in got:
            assert got[name].value == pytest.approx(expected)
            assert 0 <= got[name].low <= got[name].high <= 1


def test_a_policy_that_never_retrieves_has_no_precision():
    got = when_to_retrieve([[(True, False)], [(False, False)]] * 10, patients=None)
    assert "when_precision" not in got
    assert got["when_recall"].value == got["when_f1"].value == got["retrieval_rate"].value == 0


def test_patients_are_resampled_whole():
    """Ten equal decisions of one patient say no more than one does."""
    patients = [[(True, True)], [(False, True)]] * 10
    once, often = (when_to_retrieve(rows, patients=None) for rows in (patients, [p * 10 for p in patients]))
    assert once["when_precision"] == often["when_precision"]
    stays = [p for p in patients for _ in range(10)]
    assert when_to_retrieve(stays, patients=[i // 10 for i in range(200)])["when_precision"] == once["when_precision"]


def test_no_patients():
    assert when_to_retrieve([], patients=[]) == {}
