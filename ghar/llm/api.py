"""Engine `api`: any server that speaks OpenAI's protocol, chat or plain completions (vLLM's, a cloud's, llama.cpp's).

The key comes from an environment variable that is named, and is never written anywhere. Replies have no token ids, so
nothing is trained on them; texts cannot be scored and no weights are taken. Choices are asked as structured output, and
where the server has none, as a sentence whose reply is read and asked for again if need be. A parameter that a server
refuses is left out from then on, and stderr says what is lost by it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import Any
from urllib.parse import urlsplit

from ghar.episode import Completion
from ghar.errors import BadInput
from ghar.exchange import Answer, Connections, NoAnswer
from ghar.interrupt import first_done, map_in_threads
from ghar.llm.api_wire import LOSSES, quote_refusal, read_answer, read_choice, refused_parameter, request_body
from ghar.llm.engine import Pair, Request
from ghar.privacy import HIDDEN, LOG, check_url, masked
from ghar.sanitize import count_marks

TIMEOUT = 300.0  # seconds one try may take, as a whole
SIZE = 2_000_000  # bytes of an answer: 4,096 tokens with their log-probabilities take a quarter of it
TRIES = 6  # of a request that meets a busy server, or one whose answer cannot be read
CHOICE_TRIES = 3  # until a reply names one of the choices
PAUSE = 1.0  # seconds before the second try, doubled for the next
LONGEST_PAUSE = 60.0
BUSY = (408, 409, 429)  # and every status from 500
KEY = "GHAR_API_KEY"  # environment variable that holds the key of the server that a configuration names


@dataclass(frozen=True)
class ApiSettings:
    """url: the base address, such as https://api.openai.com/v1 or http://127.0.0.1:8000/v1. model: its name there.

    key: name of the environment variable that holds the key; None for a server that asks for none. chat: the chat
    endpoint; else plain completions, for models without a chat template. concurrency: requests under way at once.
    """

    url: str
    model: str
    key: str | None
    chat: bool
    concurrency: int


def api_settings(address: str, concurrency: int) -> ApiSettings:
    """Settings of "model@https://host/v1", which is asked by chat; by plain completions when it ends in /completions.

    The key is taken from the environment variable GHAR_API_KEY where that is set. BadInput for any other text.
    """
    model, _, rest = address.rpartition("@http")
    url = f"http{rest}"
    if f"/{HIDDEN}" in url or f"{HIDDEN}/" in url:
        raise BadInput(
            f"The address {url} is kept without the key in its path: give the whole address again on the command line."
        )
    if not model or not url.startswith(("http://", "https://")):
        raise BadInput(f"{address!r} names no model at a server: write it as model@https://host/v1.")
    base = url.rstrip("/").removesuffix("/completions")
    chat = base == url.rstrip("/") or base.endswith("/chat")
    return ApiSettings(base.removesuffix("/chat"), model, KEY if os.environ.get(KEY) else None, chat, concurrency)


class ApiEngine:
    """A `StreamingEngine` that asks the server of `settings`. May be used from several threads.

    credentialed: the mark of the job that opens it; every request has a mark of its own, which is asked again.
    BadInput: before the first byte leaves, when patients are credentialed and privacy.allow (`allow`) does not name
    the host, and when the key is missing; later when the server refuses a request or does not answer after all tries.
    """

    scores = False

    def __init__(self, settings: ApiSettings, *, credentialed: bool, allow: Sequence[str]):
        check_url(credentialed, settings.url, allow)
        headers = {} if settings.key is None else {"Authorization": f"Bearer {_key(settings.key)}"}
        self.settings = settings
        self.credentialed = credentialed is not False
        self.allow = tuple(allow)
        self.version = 0
        self._path = settings.url.rstrip("/") + ("/chat/completions" if settings.chat else "/completions")
        self._host = urlsplit(settings.url).hostname or settings.url
        self._refused: set[str] = set()
        self._closed = Event()
        self._connections = Connections(settings.concurrency, SIZE, headers)
        self._pool = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="api")
        self._open: dict[Future[Completion], Callable[[Completion], None]] = {}

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Replies in the order of `requests`."""
        return map_in_threads(self._pool, self._answer, requests)

    def submit(self, request: Request, done: Callable[[Completion], None]) -> None:
        """Send a request as soon as one of `concurrency` places is free; `step` hands its reply to `done`."""
        self._open[self._pool.submit(self._answer, request)] = done

    def step(self) -> None:
        """Wait until a reply is there and hand out all that are; then raise what asking for another one raised."""
        failed: list[BaseException] = []
        for future in first_done(self._open):  # each try ends after TIMEOUT
            done, error = self._open.pop(future), future.exception()
            if error is None:
                done(future.result())
            else:
                failed.append(error)
        if failed:
            raise failed[0]

    def cancel(self) -> None:
        """Forget every open request; replies to those already sent are not read."""
        for future in self._open:
            future.cancel()
        self._open.clear()

    def score(self, pairs: Sequence[Pair]) -> list[tuple[float, ...]]:
        raise BadInput("engine=api cannot score given texts, its protocol has no way to ask: use engine=hf or vllm.")

    def sync(self, model: Any, version: int) -> None:
        raise BadInput("engine=api serves its own weights and takes no others: train with engine=hf or engine=vllm.")

    def close(self) -> None:
        """Give the connections back; what is still under way ends."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._connections.close()

    def _answer(self, request: Request) -> Completion:
        """The reply; of choices those that it names, or its own words when no try named any (a format error)."""
        if not request.choices:
            return self._ask(request, 0)
        used, reply, marks = (0, 0), Completion(""), count_marks(request.prompt)
        for attempt in range(CHOICE_TRIES):
            reply = self._ask(request, attempt)
            used = (used[0] + reply.usage[0], used[1] + reply.usage[1])
            if (choice := read_choice(reply.text, request)) is not None:
                return Completion(choice, usage=used, neutralised=marks)
        return Completion(reply.text, finish_reason=reply.finish_reason, usage=used, neutralised=marks)

    def _ask(self, request: Request, attempt: int) -> Completion:
        """One reply, without the parameters that the server turns out to refuse."""
        settings = self.settings
        check_url(request.credentialed, settings.url, self.allow)
        while True:
            body = request_body(
                request, settings.model, chat=settings.chat, attempt=attempt, without=frozenset(self._refused)
            )
            answer = self._post(body, request.prompt)
            if isinstance(answer, Completion):
                return replace(answer, neutralised=count_marks(request.prompt))
            refusal = _content(answer)
            refused = refused_parameter(body, refusal) if answer.status in (400, 422) else None
            if refused is None:
                reason = f"{answer.status}: {quote_refusal(refusal, request.prompt)}"
                raise BadInput(f"{masked(self._path)} refused ({reason}): {self._advice(answer)}")
            if refused not in self._refused:
                print(f"{settings.model} takes no {refused}: {LOSSES[refused]}.", file=sys.stderr)
                self._refused.add(refused)

    def _post(self, body: dict[str, Any], prompt: str) -> Completion | Answer:
        """The reply to one request, or the server's refusal. Asked again while the server is busy, out of reach, or
        sends what is no reply: one broken answer among thousands ends no job."""
        reason, pause, content = "", 0.0, json.dumps(body).encode()
        for attempt in range(TRIES):
            if self._closed.wait(pause):
                reason = "does not answer (the engine was closed)"
                break
            pause = min(PAUSE * 2**attempt, LONGEST_PAUSE)
            LOG.add(self._host, "prompts", len(content))
            try:
                answer = self._connections.ask("POST", self._path, content, TIMEOUT)
            except NoAnswer as error:
                reason = f"does not answer ({error})"
                continue
            if answer.status == 200:
                try:
                    return read_answer(answer.json(), chat=self.settings.chat)
                except ValueError as error:
                    reason = f"sent what is no answer of OpenAI's protocol ({str(error)[:200]})"
            elif answer.status not in BUSY and answer.status < 500:
                return answer
            else:
                reason = f"does not answer (status {answer.status}: {quote_refusal(_content(answer), prompt)})"
                pause = max(pause, _asked_pause(answer))
        raise BadInput(f"{masked(self._path)} {reason}: see whether it runs and takes more requests, then start again.")

    def _advice(self, response: Answer) -> str:
        settings = self.settings
        if response.status in (401, 403):
            return f"put a valid key into the environment variable {settings.key or KEY}."
        if response.status == 404:
            return f"see whether it serves a model {settings.model!r} and speaks OpenAI's protocol at that address."
        return "correct that, then start again."


def _key(variable: str) -> str:
    try:
        return os.environ[variable]
    except KeyError:
        raise BadInput(f"The environment variable {variable} is not set: put the server's key into it.") from None


def _content(response: Answer) -> Any:
    try:
        return response.json()
    except ValueError:
        return response.text


def _asked_pause(response: Answer) -> float:
    """Seconds that a busy server asks to be left alone, at most LONGEST_PAUSE."""
    try:
        return min(max(0.0, float(response.headers.get("retry-after", 0))), LONGEST_PAUSE)
    except ValueError:  # a date
        return 0.0
