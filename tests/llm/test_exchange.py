"""Exchanges with servers that misbehave: each ends within its time and its size, and a broken reply is one try."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import ghar.llm.api as api
from ghar.episode import Retrieve
from ghar.errors import BadInput
from ghar.exchange import Connections, NoAnswer
from ghar.llm.api import ApiEngine, ApiSettings
from ghar.llm.api_wire import read_answer
from ghar.llm.engine import Request
from ghar.retrieval.client import RemoteRetriever, ServiceFailure
from tests.llm.api_server import chat, echo, listening, prompt_of

Speak = Callable[[socket.socket], None]


@contextmanager
def speaking(speak: Speak) -> Iterator[str]:
    """A server that reads a request and then does as `speak` wants; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(peer,), daemon=True).start()

        def answer(peer: socket.socket) -> None:
            with peer, suppress(OSError):
                came = b""
                while not came.endswith(b"}"):  # what is left unread would reset the connection
                    came += peer.recv(1 << 16)
                speak(peer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def head(*more: str, status: str = "200 OK") -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", "content-type: application/json", *more, "", "")).encode()


def dripping(before: bytes, drop: bytes) -> Speak:
    def speak(peer: socket.socket) -> None:
        peer.sendall(before)
        while True:
            peer.sendall(drop)
            time.sleep(0.02)

    return speak


def sending(*pieces: bytes) -> Speak:
    return lambda peer: [peer.sendall(piece) for piece in pieces] and None


def endless(before: bytes, piece: bytes) -> Speak:
    def speak(peer: socket.socket) -> None:
        peer.sendall(before)
        while True:
            peer.sendall(piece)

    return speak


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return b"".join(packer.compress(b" " * 1_000_000) for _ in range(size)) + packer.flush()


BOMB = bomb(800)
LATE, LARGE = "no answer in time", "more than"
MISBEHAVIOURS: dict[str, tuple[Speak, str]] = {
    "silence": (lambda peer: time.sleep(60), LATE),
    "a header that drips": (dripping(b"HTTP/1.1 200 OK\r\nx: ", b"y"), LATE),
    "headers that drip": (dripping(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"), LATE),
    "a status line that drips": (dripping(b"", b"H"), "."),
    "a body that drips": (dripping(head("content-length: 100000"), b" "), LATE),
    "chunks that drip": (dripping(head("transfer-encoding: chunked"), b"1\r\n \r\n"), LATE),
    "a body without an end that drips": (dripping(head("connection: close"), b" "), LATE),
    "chunk extensions that drip": (dripping(head("transfer-encoding: chunked") + b"1;x=", b"y"), LATE),
    "endless interim responses": (endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n"), LATE),
    "interim responses that drip": (dripping(b"", b"HTTP/1.1 102 Processing\r\n\r\n"), LATE),
    "an endless body": (endless(head("connection: close"), b" " * 65536), LARGE),
    "endless chunks": (endless(head("transfer-encoding: chunked"), b"10000\r\n" + b" " * 65536 + b"\r\n"), LARGE),
    "a long body": (sending(head("content-length: 3000000"), b" " * 3_000_000), LARGE),
    "endless headers": (endless(b"HTTP/1.1 200 OK\r\n", b"x: " + b"y" * 9000 + b"\r\n"), "."),
    "a packed body of 800 MB": (
        sending(head("content-encoding: gzip", f"content-length: {len(BOMB)}"), BOMB), LARGE,
    ),
    "another packing": (sending(head("content-encoding: br", "content-length: 2"), b"{}"), "packed by"),
    "a packing that is none": (sending(head("content-encoding: gzip", "content-length: 2"), b"{}"), "no gzip"),
    "nothing": (lambda peer: None, "disconnected"),
    "half a body": (sending(head("content-length: 100"), b"{"), "without sending complete"),
    "half a chunk": (sending(head("transfer-encoding: chunked"), b"ff\r\n{"), "without sending complete"),
    "another protocol": (sending(b"220 smtp ready\r\n\r\n"), "."),
    "a length below 0": (sending(head("content-length: -1"), b"{}"), "."),
    "two lengths": (sending(head("content-length: 1", "content-length: 2"), b"{}"), "."),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_try_ends_in_its_time_and_size(name: str):
    speak, reason = MISBEHAVIOURS[name]
    tracemalloc.start()
    with speaking(speak) as url:
        connections = Connections(1, 2_000_000, {})
        with pytest.raises(NoAnswer, match=reason):
            connections.ask("POST", f"{url}/v1/x", b"{}", 0.4)
        connections.close()
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_answers_that_are_packed_after_all_are_read():
    packed = gzip.compress(json.dumps(chat("yes")).encode())
    with speaking(sending(head("content-encoding: gzip", f"content-length: {len(packed)}"), packed)) as url:
        connections = Connections(1, 2_000_000, {})
        assert connections.ask("POST", url, b"{}", 9).json() == chat("yes")
        connections.close()


BAD_LOGPROBS = [float("nan"), float("inf"), float("-inf"), 5, 0.01, True, "-1", None, [1], {}, 10**400]
BAD_USAGE = [-5, "5", float("nan"), float("inf"), [5], {"a": 1}, 10**12, 10**400]
BAD_ANSWERS: list[Any] = [
    [], {}, 7, None, "text", {"choices": []}, {"choices": {}}, {"choices": [7]}, {"choices": [{"message": "yes"}]},
    {"choices": [{"message": {"content": ["yes"]}}]}, {"choices": [{"message": {"content": 7}}]},
    *({"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{"logprob": x}]}}]} for x in BAD_LOGPROBS),
    *(chat("a") | {"usage": {"completion_tokens": number}} for number in BAD_USAGE), chat("a") | {"usage": [1]},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD_ANSWERS)))
def test_numbers_that_no_reply_has_are_no_answer(number: int):
    with pytest.raises(ValueError):
        read_answer(BAD_ANSWERS[number], chat=True)


def test_a_broken_answer_is_one_try_and_ends_no_job(monkeypatch: pytest.MonkeyPatch):
    """One malformed reply among hundreds used to end the job."""
    monkeypatch.setattr(api, "PAUSE", 0.001)
    seen: set[str] = set()

    def stumbling(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        asked = prompt_of(body)
        if asked not in seen:
            seen.add(asked)
            return 200, BAD_ANSWERS[int(asked) % len(BAD_ANSWERS)] if int(asked) % 3 else "{" * 3000
        return echo(body, headers)

    with listening(stumbling) as (url, server):
        engine = ApiEngine(ApiSettings(url, "m", None, True, 4), credentialed=True, allow=())
        replies = engine.generate([Request(str(number), 4) for number in range(60)])
        engine.close()
    assert [reply.text for reply in replies] == [f"re: {number}" for number in range(60)]
    assert len(server.came) == 120


def test_a_refusal_is_shown_without_what_it_quotes():
    """Servers repeat the prompt in their refusals; a screen and a log are no place for a record."""
    prompt = "Patient 17, sepsis; chronic kidney disease, stage 4; metformin 500 mg"
    for quoted in (prompt, repr(prompt), json.dumps({"got": prompt}), prompt.upper()):
        with listening(lambda b, h, quoted=quoted: (400, {"error": f"too long: {quoted} (limit 5)"})) as (url, _):
            engine = ApiEngine(ApiSettings(url, "m", None, True, 1), credentialed=True, allow=())
            with pytest.raises(BadInput, match=r"refused \(400: too long: .*limit 5") as found:
                engine.generate([Request(prompt, 4)])
            engine.close()
        assert not any(word in str(found.value).lower() for word in ("sepsis", "kidney", "metformin", "patient 17"))


@pytest.mark.slow
def test_an_engine_gives_up_after_its_tries(monkeypatch: pytest.MonkeyPatch):
    for name, value in (("PAUSE", 0.001), ("TRIES", 3), ("TIMEOUT", 0.3)):
        monkeypatch.setattr(api, name, value)
    with speaking(dripping(head("content-length: 100000"), b" ")) as url:
        engine = ApiEngine(ApiSettings(url, "m", None, True, 1), credentialed=True, allow=())
        with pytest.raises(BadInput, match=r"does not answer \(no answer in time\)"):
            engine.generate([Request("q", 1)])
        engine.close()


@pytest.mark.slow
def test_the_retrieval_client_tries_again(monkeypatch: pytest.MonkeyPatch):
    """A score that is no number, a dripping body and a packed one are tries, and end in a sentence."""
    answers: list[Any] = [{"answers": [[["gout", "node", -1, float("nan"), 7]]]}, "{", []]

    def stumbling(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        return 200, answers.pop(0) if answers else {"answers": [[["gout", "node", -1, 0.5, 7]]]}

    with listening(stumbling) as (url, server):
        client = RemoteRetriever(url.removesuffix("/v1"), "g", tries=4)
        assert client.retrieve([Retrieve("gout")])[0].text == "gout" and len(server.came) == 4
        client.close()
    with speaking(dripping(head("content-length: 100000"), b" ")) as url:
        client = RemoteRetriever(url, "g", tries=2, timeout=0.3)
        with pytest.raises(ServiceFailure, match="no answer in time"):
            client.retrieve([Retrieve("gout")])
        client.close()
