"""Proposals of nearest rows: the same with FAISS and, in a core without it, by NumPy."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from ghar.ranking import BLOCK, propose


@pytest.mark.parametrize("queries, rows, k", [(BLOCK + 3, 50, 7), (2, 5, 5), (0, 4, 2)])
def test_numpy_proposes_what_faiss_proposes(monkeypatch: pytest.MonkeyPatch, queries: int, rows: int, k: int) -> None:
    pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    asked, base = (rng.normal(size=(n, 16)).astype(np.float32) for n in (queries, rows))
    scores, near = propose(asked, base, k)
    monkeypatch.setitem(sys.modules, "faiss", None)
    plain, same = propose(asked, base, k)
    assert np.allclose(scores, plain, atol=1e-4) and (near == same).all()
    assert near.dtype == same.dtype == np.int64 and plain.dtype == np.float32
