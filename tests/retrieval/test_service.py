"""The retrieval service over real sockets: the same answers, and sentences when something is in the way."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs ghar[service]")
pytest.importorskip("uvicorn", reason="the service needs ghar[service]")

import uvicorn

from ghar.envs.rollout import EpisodeJob, rollout
from ghar.episode import Act, Completion, Evidence, Prediction, Retrieve
from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.retrieval import client as client_module
from ghar.retrieval.access_control import TimedProtocol
from ghar.retrieval.build import build_retriever
from ghar.retrieval.client import RemoteRetriever, ServiceFailure, connect
from ghar.retrieval.partition import PartitionRetriever
from ghar.retrieval.service import ServiceSettings, create_app, serve
from ghar.retrieval.service_token import own_token
from ghar.retrieval.wire import ServiceVersion
from tests.kg.graphs import TINY, graph_of
from tests.llm.api_server import listening

REQUESTS = [
    Retrieve(query, partitions, top_n)
    for query in ("metformin", "SOD1 amyotrophic", "", "naïve “query”\n")
    for partitions in (None, (0, 1), (), (4,))
    for top_n in (1, 3)
]


@pytest.fixture(scope="module", autouse=True)
def token() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GHAR_RETRIEVAL_TOKEN", "token of the tests")
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeGraph:
    return graph_of(tmp_path_factory.mktemp("kg"), TINY)


@pytest.fixture(scope="module")
def retriever(tiny: KnowledgeGraph) -> PartitionRetriever:
    return build_retriever(tiny, "tfidf")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAUSE", 0.01)


def version_of(graph: KnowledgeGraph) -> ServiceVersion:
    return ServiceVersion(graph.fingerprint, "tfidf", 16)


@contextmanager
def serving(retriever: PartitionRetriever) -> Iterator[str]:
    """The address of a service in this process; it is gone when the block ends."""
    app = create_app(retriever, version_of(retriever.graph), batch=8, token=own_token())
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", http=TimedProtocol, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(600)
        listener.close()


@pytest.fixture(scope="module")
def service(retriever: PartitionRetriever) -> Iterator[str]:
    with serving(retriever) as url:
        yield url


def join(url: str, graph: KnowledgeGraph, *, credentialed: bool = True, allow: Sequence[str] = ()) -> RemoteRetriever:
    return connect(url, version_of(graph), credentialed=credentialed, allow=allow, timeout=600)


def test_the_answers_are_those_of_the_retriever(service: str, retriever: PartitionRetriever):
    remote = join(service, retriever.graph)
    assert remote.retrieve(REQUESTS) == retriever.retrieve(REQUESTS)
    assert remote.retrieve([]) == []


def test_large_batches_are_shared_out_and_come_back_in_order(service: str, retriever: PartitionRetriever):
    many = REQUESTS * 10
    assert join(service, retriever.graph).retrieve(many) == retriever.retrieve(many)


def test_one_callers_mistake_is_not_anothers(service: str, retriever: PartitionRetriever):
    remote = join(service, retriever.graph)
    answers: list[list[Evidence]] = []
    other = threading.Thread(target=lambda: answers.append(remote.retrieve(REQUESTS)))
    other.start()
    with pytest.raises(ServiceFailure, match="meta-path 99 does not exist"):
        remote.retrieve([Retrieve("secret words", (99,))])
    with pytest.raises(ServiceFailure) as caught:
        remote.retrieve([Retrieve("secret words", (0,), 0)])
    assert "secret" not in str(caught.value)
    other.join(600)
    assert answers == [retriever.retrieve(REQUESTS)]


def test_another_graph_is_refused_at_once_and_later(service: str, retriever: PartitionRetriever, tmp_path: Path):
    other = graph_of(tmp_path, TINY[:3])
    with pytest.raises(BadInput, match=r"serves graph \w+ by tfidf .* this run needs graph \w+ by tfidf") as caught:
        join(service, other)
    assert "\n" not in str(caught.value)
    late = RemoteRetriever(service, other.fingerprint)  # the service was restarted with another graph
    with pytest.raises(ServiceFailure, match=r"the service holds graph \w+, not the one asked about"):
        late.retrieve(REQUESTS)


def test_another_index_is_refused(service: str, tiny: KnowledgeGraph):
    with pytest.raises(BadInput, match=r"16 probes.*all lists"):
        connect(service, replace(version_of(tiny), probes=None), credentialed=False, allow=())


def test_nobody_there(tiny: KnowledgeGraph):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(BadInput, match=rf"127\.0\.0\.1:{port} does not answer .*serve_retrieval"):
        join(f"http://127.0.0.1:{port}", tiny)


def test_no_answer_in_time(tiny: KnowledgeGraph):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServiceFailure, match="no answer in time"):
            RemoteRetriever(url, tiny.fingerprint, timeout=0.2, tries=2).retrieve(REQUESTS[:1])


@pytest.mark.parametrize("url", ["https://index.example.org", "http://10.0.0.1:8077", "http://localhost.evil.org:1"])
def test_credentialed_queries_stay_here(url: str, tiny: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(RemoteRetriever, "version", lambda self: version_of(tiny))
    host = url.split("/")[2].split(":")[0]
    with pytest.raises(BadInput, match=r"privacy\.allow"):
        join(url, tiny, allow=["wandb"])
    join(url, tiny, allow=[host]).close()
    join(url, tiny, credentialed=False).close()


def test_no_proxy_sees_a_query(service: str, tiny: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert len(join(service, tiny).retrieve(REQUESTS)) == len(REQUESTS)


def test_a_service_that_dies_is_a_typed_failure_of_the_episodes(retriever: PartitionRetriever):
    prompts: list[str] = []
    service = ExitStack()

    class Talker:
        def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
            prompts.extend(act.prompt for act in acts)
            return [Completion("yes") for _ in acts]

    def job(number: int) -> EpisodeJob:
        def episode():
            if number != 2:  # number 2 never looks anything up
                found = yield Retrieve("metformin", (3,))
                yield Act("top", "retrieve", found.text)
                service.close()
                yield Retrieve("riluzole", (4,))
            yield Act("top", "predict", "what now")
            return Prediction(0)

        return EpisodeJob(f"s{number}", 0, episode)

    with service:
        remote = RemoteRetriever(service.enter_context(serving(retriever)), retriever.graph.fingerprint)
        episodes = rollout([job(i) for i in range(4)], {"top": Talker()}, remote, seed=0, in_flight=4)
    assert [e.prediction.label for e in episodes] == [None, None, 0, None]
    failures = [e.failure for e in episodes if e.failure]
    assert len(failures) == 3
    assert all(f.startswith("retrieval: ServiceFailure: the retrieval service http://127.0.0.1") for f in failures)
    assert not [p for p in prompts if "service" in p or "Failure" in p]


def test_a_stopped_service_is_named(retriever: PartitionRetriever):
    with serving(retriever) as url:
        remote = join(url, retriever.graph)
        assert remote.retrieve(REQUESTS[:1])
    with pytest.raises(ServiceFailure, match="does not answer"):
        remote.retrieve(REQUESTS[:1])


@pytest.mark.parametrize("url", ["127.0.0.1:8077", "http://127.0.0.1", "https://127.0.0.1:1", "http://127.0.0.1:99999"])
def test_an_address_that_is_none(url: str):
    with pytest.raises(BadInput, match=r"retriever\.service=.* is no address to serve at"):
        serve(url, ServiceSettings("", "tfidf", "", None), 1)


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BadInput, match=rf"{url}: the address cannot be taken .*another port"):
            serve(url, ServiceSettings("", "tfidf", "", None), 1)


GOOD = ["metformin", "node", 3, 0.5, 7]


@pytest.mark.parametrize("answers, said", [
    ([[GOOD]], "sent 1 answers to 2 requests"),
    ([[GOOD], [GOOD], [GOOD]], "sent 3 answers to 2 requests"),
    ([[GOOD], [[*GOOD[:2], 4, *GOOD[3:]]]], "something else than it was asked"),
    ([[GOOD], [GOOD] * 3], "something else than it was asked"),
    ([[GOOD], [["metformin", "drug", *GOOD[2:]]]], "something else than it was asked"),
    ([[GOOD], [[None, *GOOD[1:]]]], "something else than it was asked"),
    ([[GOOD], [GOOD[:3]]], "cannot be read"), ([[GOOD], 7], "cannot be read"), (None, "cannot be read"),
])  # fmt: skip
def test_a_service_that_lies_is_a_failure(answers: object, said: str):
    with listening(lambda body, headers: (200, {"answers": answers})) as (url, _):
        client = RemoteRetriever(url.removesuffix("/v1"), "of a graph", tries=1)
        with pytest.raises(ServiceFailure, match=said):
            client.retrieve([Retrieve("a", (3,), 1), Retrieve("b", (3,), 1)])
        client.close()
