"""The index of communities and the corpus over it: what is found, what never is; GHAR's episode over communities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from ghar.envs.ghar.episode import GharEpisodes, GharSpec
from ghar.envs.kare.graph.communities import Communities
from ghar.envs.kare.graph.summaries import Summaries
from ghar.envs.kare.graph.themes import Theme
from ghar.envs.kare.retrieval import community_index
from ghar.envs.kare.retrieval.community_corpus import ChosenCommunity, CommunityCorpus, SelectCommunities
from ghar.envs.kare.retrieval.community_index import CommunityIndex, build_index, partitions
from ghar.envs.kare.retrieval.dgra import PAPER, RELEASED, select
from ghar.envs.kare.retrieval.patient_graph import PatientKnowledgeGraph
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.episode import Act, Completion, Evidence, Prediction, Retrieve
from ghar.errors import BadInput
from ghar.llm.cached_llm import LlmCost
from ghar.retrieval.encoders import HashingEncoder
from tests.envs.parts import make_case

ENTITIES = ("asthma", "fever", "grade 7 course", "metformin", "sepsis")
MEMBERS = ([0, 1, 2, 3, 4], [1, 4], [0, 1], [2, 4], [3], [0])
RELATIONS = ("aids", "brings", "lacks")
TOLD = ([0, 1, 1], [1], [2], [1, 2], [0], [0])  # relations of each one's triples
GENERAL = ("all of it", "sepsis brings fever", "asthma without fever", None, "metformin alone", " ")
THEMED = (None, "sepsis with fever is dangerous", "", None, None, None)
THEME = Theme("mortality prediction", ("sepsis", "dangerous course"))
ENCODER = HashingEncoder(64)


def csr(lists: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum([0, *map(len, lists)]), np.concatenate([np.array(values, np.int32) for values in lists])


def communities() -> Communities:
    start, relation = csr(TOLD)
    triples = np.stack([np.zeros_like(relation), relation, np.ones_like(relation)], axis=1)
    zeros = np.zeros(len(MEMBERS), np.int16)
    own = (start, np.arange(len(relation), dtype=np.int32))
    return Communities(ENTITIES, RELATIONS, triples, *csr(MEMBERS), *own, zeros, zeros, 0, 0)


def summaries(general: Sequence[str | None] = GENERAL, theme: Sequence[str | None] = THEMED) -> Summaries:
    return Summaries(tuple(general), tuple(theme), LlmCost(), {})


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> CommunityIndex:
    return build_index(communities(), summaries(), THEME, ENCODER, tmp_path_factory.mktemp("index") / "communities")


def graph(direct: list[int], visit: list[int], indirect: list[int]) -> PatientKnowledgeGraph:
    return PatientKnowledgeGraph(np.array(direct, np.int64), np.array(visit, np.int64), np.array(indirect, np.int64))


GRAPHS = {"s0": graph([1, 4], [0, 2], [2]), "s1": graph([3], [0], []), "s2": graph([], [], [])}


@pytest.fixture
def corpus(index: CommunityIndex) -> CommunityCorpus:
    return CommunityCorpus(index, ENCODER, GRAPHS, PAPER)


def test_the_index_holds_the_summary_for_the_theme_or_the_general_one_and_counts_what_has_none(index) -> None:
    assert index.summaries[:] == [
        "all of it", "sepsis with fever is dangerous", "asthma without fever", "", "metformin alone", ""
    ]  # fmt: skip
    assert index.arrays.usable.tolist() == [True, True, True, False, True, False]
    assert index.counts == {"communities": 6, "without a summary": 2}
    assert isinstance(index.arrays.vector.base, np.memmap)
    np.testing.assert_allclose(index.arrays.vector[1], ENCODER.passages(["sepsis with fever is dangerous"])[0])
    assert not index.arrays.vector[3].any()
    assert index.names(1) == ["fever", "sepsis"]


def test_theme_relevance_is_eq_6(index: CommunityIndex) -> None:
    terms = ENCODER.passages(THEME.terms)
    for community, members in enumerate(MEMBERS):
        nearest = [max(float(e @ term) for term in terms) for e in ENCODER.passages([ENTITIES[v] for v in members])]
        assert index.arrays.theme_nodes[community] == pytest.approx(np.mean(nearest), abs=1e-6)
    summary = ENCODER.passages(["sepsis with fever is dangerous"])[0]
    assert index.arrays.theme_summary[1] == pytest.approx(max(float(summary @ term) for term in terms), abs=1e-6)


def test_without_a_theme_its_relevance_is_zero(tmp_path: Path) -> None:
    made = build_index(communities(), summaries(theme=()), None, ENCODER, tmp_path / "index")
    assert made.theme == "" and not made.arrays.theme_nodes.any() and not made.arrays.theme_summary.any()
    assert made.summaries[1] == "sepsis brings fever"


def test_an_index_is_built_whole_or_not_at_all(tmp_path: Path) -> None:
    class Broken(HashingEncoder):
        def passages(self, texts: Sequence[str]) -> np.ndarray:
            if "fever" in texts:
                raise RuntimeError("out of memory")
            return super().passages(texts)

    with pytest.raises(RuntimeError):
        build_index(communities(), summaries(), THEME, Broken(64), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match="None of the 6 communities has a summary"):
        build_index(communities(), summaries([None] * 6, [""] * 6), THEME, ENCODER, tmp_path / "index")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match="is missing"):
        CommunityIndex.load(tmp_path / "index")
    build_index(communities(), summaries(), THEME, ENCODER, tmp_path / "index")
    (tmp_path / "index" / "vector.npy").write_bytes(b"short")
    with pytest.raises(BadInput, match=r"vector\.npy"):
        CommunityIndex.load(tmp_path / "index")


def test_a_text_without_a_finite_vector_is_named(tmp_path: Path) -> None:
    class Broken(HashingEncoder):
        def passages(self, texts: Sequence[str]) -> np.ndarray:
            vectors = super().passages(texts)
            vectors[[i for i, text in enumerate(texts) if text == "metformin alone"]] = np.nan
            return vectors

    with pytest.raises(BadInput, match="no finite vector for 'metformin alone'"):
        build_index(communities(), summaries(), THEME, Broken(64), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_a_selection_is_dgra_s_with_the_factors_of_each_pick(corpus: CommunityCorpus) -> None:
    context = "Visit 0: fever. Visit 2: sepsis."
    [evidence] = corpus.retrieve([SelectCommunities(context, None, 10, "s0")])
    wanted = select(corpus.index.arrays, GRAPHS["s0"], ENCODER.queries([context])[0], PAPER, 10)
    assert tuple(p.ident for p in evidence.passages) == wanted.ids
    assert [p.factors for p in evidence.passages if isinstance(p, ChosenCommunity)] == list(wanted.factors)
    first = evidence.passages[0]
    assert (first.kind, first.score) == ("community", wanted.factors[0].relevance)
    assert evidence.text.startswith(corpus.index.summaries[wanted.ids[0]])
    assert not {3, 5} & {p.ident for p in evidence.passages}  # without a summary
    [few, other, nothing] = corpus.retrieve(
        [SelectCommunities(context, None, n, sample) for n, sample in ((1, "s0"), (5, "s1"), (5, "s2"))]
    )
    assert few.passages == evidence.passages[:1]
    assert {p.ident for p in other.passages} == {0, 4}  # of all that hold the node
    assert nothing == Evidence()


def test_settings_change_what_is_selected_and_why(corpus: CommunityCorpus) -> None:
    request = SelectCommunities("fever", None, 2, "s0")
    [paper] = corpus.retrieve([request])
    [released] = replace(corpus, settings=RELEASED).retrieve([request])
    assert {p.score for p in paper.passages} != {p.score for p in released.passages}


def test_no_request_can_hold_a_label() -> None:
    names = {field.name for field in fields(SelectCommunities)}
    assert names == {"query", "partitions", "top_n", "sample_id", "credentialed"}


def test_partitions_are_relations_commonest_first_with_the_communities_that_have_a_summary(index) -> None:
    assert [part.relation for part in partitions(index)] == ["aids", "brings", "lacks"]
    assert [index.members(part.index).tolist() for part in partitions(index)] == [[0, 4], [0, 1], [2]]


def test_only_the_commonest_relations_are_on_the_menu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(community_index, "RELATIONS", 1)
    made = build_index(communities(), summaries(), THEME, ENCODER, tmp_path / "index")
    assert [(part.index, part.text) for part in partitions(made)] == [(0, "aids")]


def test_plain_requests_find_by_likeness_within_partitions(corpus: CommunityCorpus) -> None:
    whole, lacking, two, both = corpus.retrieve(
        [
            Retrieve("sepsis with fever", None, 1),
            Retrieve("metformin alone", (2,), 3),
            Retrieve("metformin alone", (0, 1), 3),
            SelectCommunities("sepsis with fever", None, 3, "s0"),
        ]
    )
    assert [p.ident for p in whole.passages] == [1]
    assert [(p.ident, p.partition) for p in lacking.passages] == [(2, 2)]
    assert (two.passages[0].ident, two.passages[0].partition) == (4, 0)
    assert sorted(p.ident for p in two.passages) == [0, 1, 4]  # 0 is in both, and found once
    assert two.passages[0].score == pytest.approx(1.0)
    assert both.passages[0].ident == 1


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Retrieve("q", (3,)), "partition 3 does not exist; there are 3"),
        (Retrieve("q", None, 0), "top_n is 0"),
        (SelectCommunities("q", None, 1, "nobody"), "'nobody' has no patient graph"),
    ],
)
def test_a_request_that_cannot_be_answered_says_why(corpus: CommunityCorpus, request_: Retrieve, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corpus.retrieve([request_])


def test_another_encoder_than_that_of_the_index_is_refused(index: CommunityIndex) -> None:
    with pytest.raises(BadInput, match=r"hashing-64.*hashing-32"):
        CommunityCorpus(index, HashingEncoder(32), GRAPHS, PAPER)


class Script:
    """Fixed replies by role: look up in partition 1, then terminate."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        said = {
            "rewrite": "sepsis with fever", "retrieve": "yes", "metapaths": "1 7", "summarise": "dangerous",
            "continue": "terminate", "predict": "answer: topmost",
        }  # fmt: skip
        self.prompts = getattr(self, "prompts", {}) | {act.role: act.prompt for act in acts}
        return [Completion(said[act.role]) for act in acts]


def test_ghar_s_episode_plays_over_communities(corpus: CommunityCorpus) -> None:
    spec = GharSpec("compact", 1, 2, 2, top_n=1, ablation="none")
    episodes, policy = GharEpisodes(spec, partitions(corpus.index)), Script()
    job = EpisodeJob("s0", 0, lambda: episodes.episode(make_case()))
    [episode] = rollout([job], {"top": policy, "low": policy}, corpus, seed=0, in_flight=1)
    assert episode.failure is None
    step = episode.prediction.history[0]
    assert isinstance(episode.prediction, Prediction) and episode.prediction.label == 2
    assert (step.paths, step.path_errors, step.evidence) == ((1,), 1, "sepsis with fever is dangerous")
    assert "1 brings" in policy.prompts["metapaths"]
    assert "sepsis with fever is dangerous" in policy.prompts["summarise"]
