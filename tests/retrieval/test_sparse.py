import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from ghar.retrieval.sparse import build_sparse, passage_terms, words

TEXTS = ["hepatitis C (disease)", "hepatitis B (disease)", "factor V - target - drug C", "Ménière disease", "a a b"]
sentences = st.lists(st.sampled_from("abcd"), min_size=1, max_size=5).map(" ".join)
texts = st.lists(sentences, min_size=1, max_size=8)


@settings(max_examples=40)
@given(texts, st.data())
def test_tfidf_is_scikit_learns_cosine(texts: list[str], data: st.DataObject):
    query = data.draw(st.sampled_from(texts))  # for which both sides have the same terms
    index = build_sparse("tfidf", texts)
    vectorizer = TfidfVectorizer(analyzer=passage_terms)
    cosines = (vectorizer.fit_transform(texts) @ vectorizer.transform([query]).T).toarray()[:, 0]
    [(items, scores)] = index.search(index.encode([query]), range(len(texts)), len(texts))
    dense = np.zeros(len(texts))
    dense[items] = scores
    assert np.allclose(dense, cosines, atol=1e-5)


@settings(max_examples=40)
@given(texts, st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
def test_bm25_is_that_of_bm25s(texts: list[str], query: list[str]):
    index = build_sparse("bm25", texts)
    engine = bm25s.BM25()
    engine.index([words(text) for text in texts], show_progress=False)
    known = [word for word in query if word in engine.vocab_dict]
    expected = engine.get_scores(known) if known else np.zeros(len(texts))
    [(items, scores)] = index.search(index.encode([" ".join(query)]), range(len(texts)), len(texts))
    dense = np.zeros(len(texts))
    dense[items] = scores
    assert np.allclose(dense, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["tfidf", "bm25"])
def test_single_letters_and_accents_count(kind):
    index = build_sparse(kind, TEXTS)
    hits = index.search(index.encode(["Hepatitis C", "meniere disease"]), range(len(TEXTS)), 1)
    assert [items.tolist() for items, _ in hits] == [[0], [3]]


@pytest.mark.parametrize("kind", ["tfidf", "bm25"])
def test_what_shares_no_word_is_no_hit(kind):
    index = build_sparse(kind, TEXTS)
    for query in ("zebra", "", "hepatitis"):
        [(items, _)] = index.search(index.encode([query]), range(2, 5), 3)
        assert not len(items)
