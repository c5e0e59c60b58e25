"""The api engine against a real local server that speaks, or refuses to speak, OpenAI's protocol."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ghar.llm.api as api
from ghar.errors import BadInput
from ghar.llm.api import ApiEngine, ApiSettings, api_settings
from ghar.llm.api_wire import named_choice, read_choice
from ghar.llm.cached_llm import CachedQuestion, ask
from ghar.llm.engine import Request, StreamingEngine
from tests.llm.api_server import Reply, Server, chat, echo, listening, prompt_of


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PAUSE", 0.01)


@contextmanager
def serving(reply: Reply, **changes: Any) -> Iterator[tuple[ApiEngine, Server]]:
    """An engine of a server that replies so; changes: of its settings."""
    with listening(reply) as (url, server):
        settings = {"url": url, "model": "m", "key": None, "chat": True, "concurrency": 4}
        engine = ApiEngine(ApiSettings(**{**settings, **changes}), credentialed=True, allow=())
        try:
            yield engine, server
        finally:
            engine.close()


def test_chat_in_order_with_all_that_was_asked():
    with serving(echo) as (engine, server):
        replies = engine.generate([Request(f"q{i}", 5, (), seed=2**40 + i, temperature=0.5) for i in range(9)])
    assert [reply.text for reply in replies] == [f"re: q{i}" for i in range(9)]
    assert {reply.tokens for reply in replies} == {(7, 2)} and all(not reply.token_ids for reply in replies)
    path, body, headers = next(c for c in server.came if prompt_of(c[1]) == "q3")
    assert path == "/v1/chat/completions" and "Authorization" not in headers
    assert (body["model"], body["max_tokens"], body["temperature"], body["seed"]) == ("m", 5, 0.5, 3)
    assert isinstance(engine, StreamingEngine)


def test_plain_completions_with_log_probabilities():
    def complete(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        return 200, {"choices": [{"text": "a b", "finish_reason": "length", "logprobs": {"token_logprobs": [-1, -2]}}]}

    with serving(complete, chat=False) as (engine, server):
        (reply,) = engine.generate([Request("once", 2)])
    assert (reply.text, reply.finish_reason, reply.logprobs) == ("a b", "length", (-1.0, -2.0))
    assert server.came[0][0] == "/v1/completions" and server.came[0][1]["prompt"] == "once"


def test_log_probabilities_of_chat():
    told = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]}
    with serving(lambda b, h: (200, chat("ab", logprobs=told))) as (engine, _):
        assert engine.generate([Request("x", 2)])[0].logprobs == (-0.5, -0.25)


def test_choices_as_structured_output():
    def choose(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        options = body["response_format"]["json_schema"]["schema"]["properties"]["answer"]["enum"]
        return 200, chat(json.dumps({"answer": options[1]}))

    with serving(choose) as (engine, server):
        (reply,) = engine.generate([Request("which?", 1, ("less than a day", "more than a week"))])
    assert reply.text == "more than a week" and prompt_of(server.came[0][1]) == "which?"


def test_choices_are_read_from_words_where_the_server_has_no_structured_output(capsys: pytest.CaptureFixture[str]):
    words = iter(["Hm, yes or no, hard to say.", "I cannot tell.", "The answer: no."])

    def talk(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        if "response_format" in body:
            return 400, {"error": {"message": "json_schema is not supported here"}}
        assert "Reply with exactly one of these and nothing else: yes | no" in prompt_of(body)
        return 200, chat(next(words))

    with serving(talk) as (engine, server):
        (reply,) = engine.generate([Request("well?", 1, ("yes", "no"), temperature=0)])
        assert reply.text == "no" and reply.tokens == (21, 6)
        assert [body["temperature"] for _, body, _ in server.came] == [0, 0, 1, 1]
        assert len({body["seed"] for _, body, _ in server.came}) == 3
        words = iter(["neither"] * 3)
        assert engine.generate([Request("well?", 1, ("yes", "no"))])[0].text == "neither"
    assert "takes no response_format: choices are read from free text" in capsys.readouterr().err


def test_a_list_of_choices_is_asked_for_and_kept_whole():
    def several(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        answer = body["response_format"]["json_schema"]["schema"]["properties"]["answer"]
        assert answer["type"] == "array"
        options = answer["items"]["enum"]
        return 200, chat(json.dumps({"answer": [options[2], options[0], options[2], options[3], options[1]]}))

    names = ("renal failure, acute", "sepsis", "anaemia", "gout")
    with serving(several) as (engine, _):
        paths, events = engine.generate([
            Request("which?", 1, ("0", "1", "2", "3"), most=3, separator=" "),
            Request("which?", 1, names, most=2, separator="\n"),
        ])  # fmt: skip
    assert (paths.text, events.text) == ("2 0 3", "anaemia\nrenal failure, acute")


@pytest.mark.parametrize(
    ("words", "separator", "read"),
    [("2, 0 and more", " ", None), ("2 0", " ", "2 0"), ("0,1", " ", "0 1"), ("2, 1", ", ", "2, 1"), ("7", " ", None),
     ('{"answer": []}', " ", None), ('{"answer": "1 2"}', " ", "1 2"), ("1", " ", "1"), ("2\n1", "\n", "2\n1")],
)  # fmt: skip
def test_a_list_of_choices_in_words(words: str, separator: str, read: str | None):
    assert read_choice(words, Request("which?", 1, ("0", "1", "2"), most=2, separator=separator)) == read


def test_refused_parameters_are_left_out_and_told_once(capsys: pytest.CaptureFixture[str]):
    def picky(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        if "seed" in body:
            return 400, {"error": {"message": "Unrecognized request argument supplied: seed"}}
        if "max_tokens" in body:
            said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
            return 400, {"error": {"message": said}}
        if "logprobs" in body:
            return 422, {"detail": "logprobs: extra fields not permitted"}
        return 200, chat(str(body["max_completion_tokens"]))

    with serving(picky) as (engine, server):
        assert [reply.text for reply in engine.generate([Request("q", 9)] * 6)] == ["9"] * 6
        before = len(server.came)
        engine.generate([Request("q", 9)])
        assert len(server.came) == before + 1
    told = capsys.readouterr().err.splitlines()
    assert len([line for line in told if line.startswith("m takes no")]) == 3


def test_a_busy_server_is_asked_again():
    tries: dict[str, int] = {}

    def busy(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        tries[prompt_of(body)] = tries.get(prompt_of(body), 0) + 1
        return [(429, "slow down"), (503, {}), (200, chat("at last"))][tries[prompt_of(body)] - 1]

    with serving(busy) as (engine, _):
        assert {reply.text for reply in engine.generate([Request("a", 1), Request("b", 1)])} == {"at last"}


@pytest.mark.parametrize(("status", "answer", "sentence"), [
    (500, {"error": {"message": "out of memory"}}, r"does not answer \(status 500: out of memory\): see whether"),
    (401, {"error": "no"}, r"refused \(401: no\): put a valid key into .* GHAR_TEST_KEY"),
    (404, "not here", r"refused \(404: not here\): see whether it serves a model 'm'"),
    (400, {"error": {"message": "too long " * 100}}, r"refused \(400: too long"),
    (200, {"hello": 1}, r"sent what is no answer of OpenAI's protocol"),
    (200, "<html>", r"sent what is no answer of OpenAI's protocol"),
])
def test_what_cannot_be_used_is_a_sentence(monkeypatch, status: int, answer: Any, sentence: str):
    monkeypatch.setenv("GHAR_TEST_KEY", "secret-1")
    with serving(lambda b, h: (status, answer), key="GHAR_TEST_KEY") as (engine, server):
        with pytest.raises(BadInput, match=sentence) as raised:
            engine.generate([Request("q", 1)])
        assert server.came[0][2]["Authorization"] == "Bearer secret-1"
    assert "secret-1" not in str(raised.value) and len(str(raised.value)) < 400


def test_nobody_there():
    with serving(echo) as (engine, _):
        pass
    settings = engine.settings
    gone = ApiEngine(settings, credentialed=False, allow=())
    with pytest.raises(BadInput, match="does not answer"):
        gone.generate([Request("q", 1)])
    gone.close()


def test_an_answer_that_does_not_come(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(api, "TIMEOUT", 0.1)
    monkeypatch.setattr(api, "TRIES", 2)

    def slow(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        time.sleep(0.3)
        return 200, chat("late")

    with serving(slow) as (engine, _), pytest.raises(BadInput, match="no answer in time"):
        engine.generate([Request("q", 1)])


def test_text_of_credentialed_patients_goes_only_where_it_may():
    def settings(url: str) -> ApiSettings:
        return ApiSettings(url, "m", None, True, 1)

    with pytest.raises(BadInput, match=r"'api\.example\.org', which privacy\.allow does not name"):
        ApiEngine(settings("https://api.example.org/v1"), credentialed=True, allow=("example.org",))
    for credentialed, allow in ((False, ()), (True, ("api.example.org",))):
        ApiEngine(settings("https://api.example.org/v1"), credentialed=credentialed, allow=allow).close()


def test_a_key_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GHAR_TEST_KEY", raising=False)
    with pytest.raises(BadInput, match="GHAR_TEST_KEY is not set"):
        ApiEngine(ApiSettings("http://127.0.0.1:1", "m", "GHAR_TEST_KEY", True, 1), credentialed=True, allow=())


def test_it_neither_scores_nor_takes_weights():
    engine = ApiEngine(ApiSettings("http://127.0.0.1:1", "m", None, True, 1), credentialed=True, allow=())
    with pytest.raises(BadInput, match="cannot score"):
        engine.score([([1], [2])])
    with pytest.raises(BadInput, match="takes no others"):
        engine.sync(None, 1)
    engine.close()


def test_no_more_than_concurrency_at_a_time():
    def slow(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        time.sleep(0.02)
        return echo(body, headers)

    with serving(slow, concurrency=3) as (engine, server):
        engine.generate([Request(str(i), 1) for i in range(12)])
    assert server.most == 3


def test_asking_through_it_keeps_each_answer_and_a_failure_loses_none(tmp_path: Path):
    def until_seven(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        return (401, {"error": "quota"}) if prompt_of(body) == "7" else echo(body, headers)

    asked = [CachedQuestion(str(i), str(i), 4) for i in range(12)]
    store = tmp_path / "store.jsonl"
    with serving(until_seven, concurrency=1) as (engine, _), pytest.raises(BadInput, match="quota"):
        ask(engine, asked, store, str, seed=0, title="", batch=4)
    kept = {json.loads(line)["key"] for line in store.read_text().splitlines()}
    assert {*map(str, range(7))} <= kept and "7" not in kept  # later ones may have been under way
    with serving(echo) as (engine, server):
        answers = ask(engine, asked, store, str, seed=0, title="")
    assert answers.values == {str(i): f"re: {i}" for i in range(12)} and len(server.came) == 12 - len(kept)
    assert (answers.cost.prompt_tokens, answers.cost.completion_tokens) == (84, 24)


def test_replies_that_came_with_a_failure_are_handed_out_first():
    with serving(lambda b, h: (400, "no") if prompt_of(b) == "2" else echo(b, h)) as (engine, _):
        came: list[str] = []
        for i in range(4):
            engine.submit(Request(str(i), 1), lambda reply: came.append(reply.text))
        wait(engine._open)
        with pytest.raises(BadInput, match="refused"):
            engine.step()
        assert sorted(came) == ["re: 0", "re: 1", "re: 3"]


@pytest.mark.parametrize(("reply", "choice"), [
    ('{"answer": "yes"}', "yes"), (' {"answer": "YES"} ', "yes"), ("No.", "no"), ("answer: no", "no"),
    ("yes and no", None), ("", None), ('{"answer": "maybe"}', None), ("[1]", None), ("{}", None),
])
def test_naming_a_choice(reply: str, choice: str | None):
    assert named_choice(reply, ("yes", "no")) == choice


def test_addresses(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GHAR_API_KEY", raising=False)
    assert api_settings("org/m@v2@http://h:1/v1/", 3) == ApiSettings("http://h:1/v1", "org/m@v2", None, True, 3)
    assert api_settings("m@https://h/v1/completions", 3) == ApiSettings("https://h/v1", "m", None, False, 3)
    monkeypatch.setenv("GHAR_API_KEY", "k")
    assert api_settings("m@https://h/chat/completions", 3) == ApiSettings("https://h", "m", "GHAR_API_KEY", True, 3)
    for wrong in ("gpt", "http://h/v1", "m@h/v1", ""):
        with pytest.raises(BadInput, match="write it as model@https://host/v1"):
            api_settings(wrong, 1)
