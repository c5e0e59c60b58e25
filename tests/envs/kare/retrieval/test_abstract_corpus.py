"""Abstracts behind `Retrieve`: exact nearest neighbours, kept on disk, made once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.kare.graph.abstracts import Abstracts, read_abstracts
from ghar.envs.kare.retrieval.abstract_corpus import AbstractCorpus, index_abstracts
from ghar.episode import Retrieve
from ghar.retrieval.encoders import HashingEncoder

WORDS = ("gout", "heart failure", "warfarin", "sepsis", "anaemia", "metformin", "stroke")


class Counting(HashingEncoder):
    encoded = 0

    def passages(self, texts):
        Counting.encoded += len(texts)
        return super().passages(texts)


def read(folder: Path) -> Abstracts:
    folder.mkdir()
    rows = [{"id": i, "title": f"{word} {i}", "abstract": f"{word} with gout."} for i, word in enumerate(WORDS)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_abstracts(folder, folder.parent / "cache")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> AbstractCorpus:
    folder = tmp_path_factory.mktemp("abstracts")
    return index_abstracts(read(folder / "papers"), HashingEncoder(64), folder / "cache")


@settings(max_examples=30)
@given(queries=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join), max_size=4),
       n=st.integers(1, 9))
def test_nearest_is_the_direct_cosine(corpus: AbstractCorpus, queries: list[str], n: int):
    found = corpus.nearest(queries, n)
    passages = corpus.index.encoder.passages(list(corpus.abstracts.texts)).astype(np.float64)
    for query, hits in zip(queries, found, strict=True):
        cosines = np.round(passages @ corpus.index.encoder.queries([query])[0].astype(np.float64), 5)
        direct = sorted(range(len(cosines)), key=lambda i: (-cosines[i], i))[:n]
        assert [row for row, _ in hits] == direct
        assert [score for _, score in hits] == pytest.approx(cosines[direct].tolist(), abs=2e-5)


def test_as_a_corpus(corpus: AbstractCorpus):
    evidence = corpus.retrieve([Retrieve("sepsis", None, 2), Retrieve("warfarin", None, 1), Retrieve("gout", None, 2)])
    assert [len(found.passages) for found in evidence] == [2, 1, 2]
    assert [found.passages[0].ident for found in evidence] == [3, 2, 0]
    best = evidence[0].passages[0]
    assert (best.text, best.kind, best.partition) == ("sepsis 3. sepsis with gout.", "abstract", -1)
    assert corpus.retrieve([]) == []
    with pytest.raises(ValueError, match="no partitions"):
        corpus.retrieve([Retrieve("gout", (1,), 1)])


def test_encoded_once_and_made_again_when_damaged(tmp_path: Path):
    abstracts, cache = read(tmp_path / "papers"), tmp_path / "index"
    Counting.encoded = 0
    first = index_abstracts(abstracts, Counting(32), cache).nearest(["gout"], 3)
    assert Counting.encoded == 7 + 1
    assert index_abstracts(abstracts, Counting(32), cache).nearest(["gout"], 3) == first and Counting.encoded == 7 + 2
    index_abstracts(abstracts, HashingEncoder(16), cache)
    assert len(list(cache.iterdir())) == 2
    (folder,) = [f for f in cache.iterdir() if np.load(f / "matrix.npy").shape[1] == 16]
    before = (folder / "matrix.npy").read_bytes()
    (folder / "matrix.npy").write_bytes(before[:-1] + b"x")
    index_abstracts(abstracts, HashingEncoder(16), cache)
    assert (folder / "matrix.npy").read_bytes() == before
