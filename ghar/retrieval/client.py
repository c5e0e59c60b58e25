"""A retriever that asks a retrieval service (service.py): the Corpus of envs/rollout.py, over HTTP."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from ghar.episode import Evidence, Retrieve
from ghar.errors import BadInput
from ghar.exchange import Answer, Connections, NoAnswer
from ghar.interrupt import map_in_threads
from ghar.privacy import LOG, check_url, masked
from ghar.retrieval.service_token import own_token
from ghar.retrieval.wire import ServiceVersion, answers_from_json, requests_to_json

T = TypeVar("T")
TIMEOUT = 30.0  # seconds one try may take, as a whole
SIZE = 32_000_000  # bytes of an answer
TRIES = 3
PAUSE = 0.2  # seconds before the second try, doubled for the next
SHARE = 32  # requests of one call that go to one worker
CONNECTIONS = 8


class ServiceFailure(RuntimeError):
    """The service gave no answer; the rollout makes it the typed failure of the episodes that wait."""


class RemoteRetriever:
    """Answers like the `PartitionRetriever` behind the service. May be used from several threads.

    allow: privacy.allow. Every request is asked its mark before it is sent; BadInput for a credentialed one.
    """

    def __init__(
        self, url: str, graph: str, *, timeout: float = TIMEOUT, tries: int = TRIES, allow: Sequence[str] = ()
    ):
        self.url = url.rstrip("/")
        self._allow = tuple(allow)
        self._graph = graph
        self._tries = tries
        self._timeout = timeout
        headers = {"Authorization": f"Bearer {own_token()}"}
        self._connections = Connections(2 * CONNECTIONS, SIZE, headers)
        self._pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="retrieval-service")

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One `Evidence` per request, in order. `ServiceFailure` when a part of them got none after all tries."""
        check_url(any(request.credentialed for request in requests), self.url, self._allow)
        parts = [requests[i : i + SHARE] for i in range(0, len(requests), SHARE)]
        return [evidence for answers in map_in_threads(self._pool, self._ask, parts) for evidence in answers]

    def version(self) -> ServiceVersion:
        """What the service holds."""
        return self._call("GET", "/version", _version)

    def close(self) -> None:
        """Give the connections back."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._connections.close()

    def _ask(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        body = {"graph": self._graph, "requests": requests_to_json(requests)}
        return self._call("POST", "/retrieve", partial(_answers, requests), body)

    def _call(self, method: str, path: str, read: Callable[[Any], T], body: dict[str, Any] | None = None) -> T:
        """What `read` makes of the answer.

        What may pass is tried again: no connection, no answer in time, a status of 500 and above, and an answer that
        cannot be read (`read` raises ValueError).
        """
        reason, content = "", None if body is None else json.dumps(body).encode()
        for attempt in range(self._tries):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            LOG.add(urlsplit(self.url).hostname or self.url, "queries", len(content or b""))
            try:
                answer = self._connections.ask(method, self.url + path, content, self._timeout)
            except NoAnswer as error:
                reason = f"does not answer ({error}); see whether launch/serve_retrieval.py still runs there"
                continue
            if answer.status >= 500:
                reason = f"does not answer (status {answer.status}); see whether launch/serve_retrieval.py runs there"
            elif answer.status != 200:
                raise ServiceFailure(f"the retrieval service {masked(self.url)} refused: {_refusal(answer)}")
            else:
                try:
                    return read(answer.json())
                except ValueError as error:
                    reason = str(error) if type(error) is ValueError else "sent an answer that cannot be read"
        raise ServiceFailure(f"the retrieval service {masked(self.url)} {reason}")


def _refusal(answer: Answer) -> str:
    try:
        body = answer.json()
    except ValueError:
        body = None
    detail = body.get("detail") if isinstance(body, dict) else None
    return detail if isinstance(detail, str) else f"status {answer.status}"


def _version(body: Any) -> ServiceVersion:
    """ValueError for the answer of another service."""
    try:
        return ServiceVersion(**body)
    except TypeError:
        raise ValueError("is no retrieval service of this version of GHAR") from None


def _answers(requests: Sequence[Retrieve], body: Any) -> list[Evidence]:
    """ValueError for what is no answer to these requests."""
    try:
        answers = answers_from_json(body["answers"])
    except (KeyError, TypeError, ValueError):
        raise ValueError("sent an answer that cannot be read") from None
    if len(answers) != len(requests):
        raise ValueError(f"sent {len(answers)} answers to {len(requests)} requests")
    if not all(map(_asked_for, requests, answers)):
        raise ValueError("sent an answer to something else than it was asked")
    return answers


def _asked_for(request: Retrieve, answer: Evidence) -> bool:
    """Whether an answer has the form of this request's: nodes and edges of its partitions, no more than it wants."""
    partitions = {-1} if request.partitions is None else set(request.partitions)
    return len(answer.passages) <= 2 * request.top_n * len(partitions) and all(
        isinstance(p.text, str) and p.kind in ("node", "edge") and p.partition in partitions
        and isinstance(p.score, int | float) and math.isfinite(p.score) and isinstance(p.ident, int)
        for p in answer.passages
    )  # fmt: skip


def connect(
    url: str, expected: ServiceVersion, *, credentialed: bool, allow: Sequence[str], timeout: float = TIMEOUT
) -> RemoteRetriever:
    """A client of the service at `url`. `BadInput` when the queries must not go there (credentialed patients, unless
    privacy.allow names the host), when nothing answers, or when the service holds another graph or index."""
    if not url.startswith("http://") and not url.startswith("https://"):
        raise BadInput(f"retriever.service={url} is no address: write http://127.0.0.1:8077.")
    check_url(credentialed, url, allow)
    client = RemoteRetriever(url, expected.graph, timeout=timeout, allow=allow)
    try:
        actual = client.version()
    except (ServiceFailure, httpx.InvalidURL) as error:
        client.close()
        raise BadInput(f"retriever.service={masked(url)}: {error}.") from None
    if actual != expected:
        client.close()
        raise BadInput(
            f"retriever.service={masked(url)} serves {_words(actual)}, this run needs {_words(expected)}: start it "
            "with the same kg and retriever settings."
        )
    return client


def _words(version: ServiceVersion) -> str:
    probes = "all lists" if version.probes is None else f"{version.probes} probes"
    return f"graph {version.graph[:12]} by {version.kind} ({probes}, protocol {version.protocol})"
