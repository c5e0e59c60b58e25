"""Encoders by their names."""

import numpy as np
import pytest

from ghar.retrieval.encoders import load_encoder


@pytest.mark.parametrize("kind, dimension", [("hashing", 128), ("hashing-2048", 2048)])
def test_hashed_words_in_as_many_dimensions_as_named(kind: str, dimension: int) -> None:
    encoder = load_encoder(kind, 8)
    vectors = encoder.passages(["acute kidney failure", "gout"])
    assert encoder.dimension == dimension and encoder.key == f"hashing-{dimension}"
    assert vectors.shape == (2, dimension) and np.allclose(np.linalg.norm(vectors, axis=1), 1)
