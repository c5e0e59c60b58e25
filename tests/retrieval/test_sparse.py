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


@pytest.mark.parametrize("kind", ["tfidf", "bm25"])
def test_what_shares_filler_words_alone_is_no_hit(kind):
    """SmolLM2 asks in sentences: of "what is known about it" the PrimeKG subset had "Abnormality of the liver"."""
    texts = ["Abnormality of the liver", "fever with rash", "there then (pathway)", "hepatitis A", "rash of the skin"]
    index = build_sparse(kind, texts)

    def found(query: str) -> set[int]:
        [(items, scores)] = index.search(index.encode([query]), range(len(texts)), len(texts))
        assert (scores > 0).all()
        return set(items.tolist())

    assert found("what is it about, with the") == set()
    assert found("what of the skin") == {4}
    assert found("a liver") == {0, 3}  # a letter may be part of a name
    assert found("rash with fever") == {1, 4}
    assert found("there then") == ({2} if kind == "tfidf" else set())  # a whole name
