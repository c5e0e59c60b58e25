"""The service against callers who mean it ill: a token, limits, fair turns, and nothing of theirs in an answer."""

import asyncio
import json
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs ghar[service]")
pytest.importorskip("uvicorn", reason="the service needs ghar[service]")

import httpx

from benchmarks import service as bench
from ghar.episode import Evidence, Retrieve
from ghar.errors import BadInput
from ghar.retrieval import access_control
from ghar.retrieval.access_control import Limits, TimedProtocol
from ghar.retrieval.batching import Busy, MicroBatcher
from ghar.retrieval.build import build_retriever
from ghar.retrieval.client import RemoteRetriever, ServiceFailure
from ghar.retrieval.partition import PartitionRetriever
from ghar.retrieval.service import ServiceSettings, serve
from ghar.retrieval.service_token import TOKEN, own_token
from tests.kg.graphs import TINY, graph_of
from tests.retrieval.test_batching import Echo, texts, wishes
from tests.retrieval.test_service import serving

SECRET = "SECRET words of a patient"
SHOWN = {"Authorization": "Bearer token of the tests"}


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> PartitionRetriever:
    return build_retriever(graph_of(tmp_path_factory.mktemp("kg"), TINY), "tfidf")


@pytest.fixture(scope="module")
def url(retriever: PartitionRetriever) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN, "token of the tests")
        patch.setattr(TimedProtocol, "limits", Limits(body=200_000, arrive=2.0, leave=1.0, connections=30))
        with serving(retriever) as found:
            yield found


def body(retriever: PartitionRetriever, *requests: dict[str, object], **more: object) -> bytes:
    return json.dumps({"graph": retriever.graph.fingerprint, "requests": list(requests), **more}).encode()


def answered(url: str, retriever: PartitionRetriever) -> bool:
    """Whether an honest caller is answered at once."""
    asked = body(retriever, {"query": "metformin", "partitions": [3]})
    found = httpx.post(f"{url}/retrieve", content=asked, headers=SHOWN, timeout=600)
    return found.status_code == 200 and bool(found.json()["answers"][0])


@pytest.mark.parametrize("headers", [
    {}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Bearer wrong"},
    {"Authorization": "token of the tests"}, {"Authorization": "Basic token of the tests"}, {"Authorization": "é"},
])  # fmt: skip
def test_without_the_token_nothing_is_answered(url: str, retriever: PartitionRetriever, headers: dict[str, str]):
    plain = {name: value.encode() for name, value in headers.items()}
    for path in ("/retrieve", "/version", "/docs", "/openapi.json"):
        found = httpx.post(url + path, content=body(retriever, {"query": SECRET}), headers=plain)
        assert found.status_code == 401 and found.json()["error"] == "unauthorized" and "SECRET" not in found.text
    assert httpx.get(f"{url}/health").json() == {"status": "ok"}


def test_a_client_with_another_token_says_so(url: str, retriever: PartitionRetriever, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(TOKEN, "another")
    with pytest.raises(ServiceFailure, match=f"refused: this service asks for its token: set {TOKEN}"):
        RemoteRetriever(url, retriever.graph.fingerprint).retrieve([Retrieve("x")])


@pytest.mark.parametrize("wish, told", [
    ({"query": SECRET, "top_n": 10**9}, "requests.0.top_n: too large"),
    ({"query": SECRET, "top_n": 0}, "requests.0.top_n: too small"),
    ({"query": SECRET, "top_n": float("nan")}, "no JSON|whole number"),
    ({"query": SECRET, "top_n": float("inf")}, "no JSON|whole number"),
    ({"query": SECRET, "top_n": "1"}, "whole number"),
    ({"query": [SECRET]}, "requests.0.query: no text"),
    ({"query": SECRET * 2000}, "requests.0.query: too long"),
    ({"query": SECRET, "partitions": [SECRET]}, "partitions.0: no whole number"),
    ({"query": SECRET, "partitions": [99]}, "meta-path 99 does not exist"),
    ({"query": SECRET, "partitions": [-1]}, "meta-path -1 does not exist"),
    ({"query": SECRET, SECRET: 1}, "no such field"),
    ({SECRET: SECRET}, "."),
    (None, "no object"),
])  # fmt: skip
def test_what_cannot_be_meant_is_named_and_not_repeated(url: str, retriever: PartitionRetriever, wish, told: str):
    found = httpx.post(f"{url}/retrieve", content=body(retriever, wish), headers=SHOWN)
    assert found.status_code == 422 and found.json()["error"] == "invalid"
    assert "SECRET" not in found.text
    assert re.search(told, found.json()["detail"])


@pytest.mark.parametrize("content", [
    b"", b"[", b"{" * 1000, b"[" * 100_000, b"\xff\xfe", b'{"graph": "\\ud800", "requests": []}', b"null", b"1e999",
    b'{"requests": [], "graph": ' + b"1" * 100_000 + b"}",
])  # fmt: skip
def test_bodies_that_are_none(url: str, content: bytes):
    found = httpx.post(f"{url}/retrieve", content=content, headers=SHOWN)
    assert found.status_code == 422 and set(found.json()) == {"error", "detail"} and len(found.text) < 200


def test_too_much_is_refused_before_it_is_read(url: str, retriever: PartitionRetriever):
    many = body(retriever, *[{"query": ""}] * 65)
    found = httpx.post(f"{url}/retrieve", content=many, headers=SHOWN)
    assert (found.status_code, found.json()["detail"]) == (422, "requests: too many items")
    large = httpx.post(f"{url}/retrieve", content=b"x" * 300_000, headers=SHOWN)
    assert large.status_code == 413 and large.json()["error"] == "too_large"
    pieces = httpx.post(f"{url}/retrieve", content=iter([b"x" * 50_000] * 10), headers=SHOWN)  # no length is given
    assert pieces.status_code == 413
    assert answered(url, retriever)


def test_unknown_requests(url: str):
    for method, path in (("GET", "/retrieve"), ("POST", "/nothing"), ("GET", "/docs"), ("DELETE", "/version")):
        found = httpx.request(method, url + path, headers=SHOWN)
        assert found.status_code in (404, 405) and found.json()["error"] == "unknown"


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=600)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [
    b"", b"POST /retrieve HTTP/1.1\r\nHost: x\r\n",
    b"POST /retrieve HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token of the tests\r\nContent-Length: 999\r\n\r\n{",
])  # fmt: skip
def test_half_open_connections_end(url: str, retriever: PartitionRetriever, sent: bytes):
    with connected(url) as half:
        half.sendall(sent)
        rest = b"".join(iter(lambda: half.recv(4096), b""))
        assert rest == b"" or b" 408 " in rest
    assert answered(url, retriever)


def test_silent_connections_make_room(url: str, retriever: PartitionRetriever):
    crowd = [connected(url) for _ in range(60)]
    try:
        assert answered(url, retriever)
    finally:
        for one in crowd:
            one.close()


@pytest.mark.slow
def test_a_long_list_delays_no_short_one():
    """Without turns, the short one would wait for 400 requests."""
    echo = Echo(seconds=0.02)
    batcher = MicroBatcher(echo, batch=4, wait=0.0)

    async def ask() -> tuple[list[str], int]:
        run = asyncio.create_task(batcher.run())
        long = asyncio.create_task(batcher.ask(wishes(*map(str, range(400)))))
        await asyncio.sleep(0.05)
        short = texts(await batcher.ask(wishes("short")))
        batches = len(echo.sizes)
        assert not long.done()
        assert texts(await long) == [str(i) for i in range(400)]
        run.cancel()
        return short, batches

    short, batches = asyncio.run(asyncio.wait_for(ask(), 600))
    assert short == ["short"] and batches < 30


def test_there_is_an_end_to_waiting():
    batcher = MicroBatcher(lambda requests: [Evidence()] * len(requests), batch=4, room=10)

    async def ask() -> None:
        first = asyncio.create_task(batcher.ask(wishes(*"abcdefgh")))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await batcher.ask(wishes(*"abc"))
        first.cancel()

    asyncio.run(ask())


def test_a_fault_of_the_index_keeps_its_words_for_itself(retriever: PartitionRetriever, monkeypatch):
    monkeypatch.setenv(TOKEN, "token of the tests")

    class Broken(PartitionRetriever):
        def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
            raise RuntimeError(f"no luck with {requests[0].query}")

    with serving(Broken(**{field.name: getattr(retriever, field.name) for field in fields(retriever)})) as own:
        found = httpx.post(f"{own}/retrieve", content=body(retriever, {"query": SECRET}), headers=SHOWN)
    assert (found.status_code, found.json()["error"]) == (500, "failed") and "SECRET" not in found.text


def test_the_token_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(TOKEN, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    token = own_token()
    path = tmp_path / "ghar" / "retrieval-token"
    assert own_token() == token == path.read_text() and len(token) > 30 and path.stat().st_mode & 0o077 == 0
    assert [file.name for file in path.parent.iterdir()] == ["retrieval-token"]
    path.chmod(0o644)
    with pytest.raises(BadInput, match="can be read by others"):
        own_token()
    monkeypatch.setenv(TOKEN, "given")
    assert own_token() == "given"


def test_other_machines_need_a_token_that_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv(TOKEN, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(BadInput, match=f"reached from other machines: set the environment variable {TOKEN}"):
        serve("http://0.0.0.0:0", ServiceSettings("", "tfidf", "", None), 1)


@pytest.mark.slow
def test_40_clients_and_all_hostile_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """4% of `python benchmarks/run.py service`, for a few seconds: nothing fails, nothing is wrong."""
    monkeypatch.setattr(bench, "THINK", 1.0)
    monkeypatch.setattr(bench, "GRAPH", 0.002)
    found = bench.service(tmp_path, share=0.04, seed=1, seconds=8.0)
    assert found["clients"] == 40 and found["of them hostile"] == 7
    assert found["answered"] > 0 and not found["failed"] and not found["wrong answers"] and not found["health failed"]
    assert len(found["hostile exchanges"]) == len(bench.HOSTILE)
    assert found["memory at most, MB"] < found["memory at the start, MB"] + 500
    assert access_control.OPEN_PATHS == {"/health"}
