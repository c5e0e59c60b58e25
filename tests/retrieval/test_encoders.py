"""Encoders by their names."""

from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

from ghar.retrieval.encoders import HashingEncoder, load_encoder
from ghar.retrieval.sparse import words_and_pairs


@pytest.mark.parametrize("kind, dimension", [("hashing", 128), ("hashing-2048", 2048)])
def test_hashed_words_in_as_many_dimensions_as_named(kind: str, dimension: int) -> None:
    encoder = load_encoder(kind, 8)
    vectors = encoder.passages(["acute kidney failure", "gout"])
    assert encoder.dimension == dimension and encoder.key == f"hashing-{dimension}"
    assert vectors.shape == (2, dimension) and np.allclose(np.linalg.norm(vectors, axis=1), 1)


@pytest.mark.parametrize("dimension", [7, 128])
def test_hashing_is_that_of_scikit_learn(dimension: int) -> None:
    texts = ["", "heart failure", "Heart failure, heart failure; pneumonia", "K+ 5.1 mmol/L " * 9]
    options: Any = {"analyzer": words_and_pairs, "dtype": np.float32}
    wanted: Any = HashingVectorizer(n_features=dimension, **options).transform(texts)
    found = HashingEncoder(dimension).passages(texts)
    assert found.dtype == np.float32 and np.array_equal(found, wanted.toarray())
