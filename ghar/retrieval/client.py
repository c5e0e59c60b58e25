"""A retriever that asks a retrieval service (service.py): the Corpus of envs/rollout.py, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from ghar.episode import Evidence, Retrieve
from ghar.errors import BadInput
from ghar.privacy import LOG, check_url
from ghar.retrieval.service_token import own_token
from ghar.retrieval.wire import ServiceVersion, answers_from_json, requests_to_json

TIMEOUT = 30.0  # seconds one try may take
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
        # No proxy and no redirect: queries go to the host that was checked, and nowhere else.
        limits = httpx.Limits(max_connections=2 * CONNECTIONS)
        headers = {"Authorization": f"Bearer {own_token()}"}
        self._client = httpx.Client(
            timeout=timeout, limits=limits, headers=headers, trust_env=False, follow_redirects=False
        )
        self._pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="retrieval-service")

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One `Evidence` per request, in order. `ServiceFailure` when a part of them got none after all tries."""
        check_url(any(request.credentialed for request in requests), self.url, self._allow)
        parts = [requests[i : i + SHARE] for i in range(0, len(requests), SHARE)]
        return [evidence for answers in self._pool.map(self._ask, parts) for evidence in answers]

    def version(self) -> ServiceVersion:
        """What the service holds."""
        try:
            return ServiceVersion(**self._call("GET", "/version"))
        except TypeError:
            raise ServiceFailure(f"{self.url} is no retrieval service of this version of GHAR") from None

    def close(self) -> None:
        """Give the connections back."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _ask(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        found = self._call("POST", "/retrieve", {"graph": self._graph, "requests": requests_to_json(requests)})
        try:
            answers = answers_from_json(found["answers"])
        except (KeyError, TypeError, ValueError):
            raise ServiceFailure(f"{self.url} sent an answer that cannot be read") from None
        if len(answers) != len(requests):
            raise ServiceFailure(f"{self.url} sent {len(answers)} answers to {len(requests)} requests")
        if not all(map(_asked_for, requests, answers)):
            raise ServiceFailure(f"{self.url} sent an answer to something else than it was asked")
        return answers

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One exchange. What may pass (no connection, no answer in time, a status of 500 and above) is tried again."""
        reason = ""
        for attempt in range(self._tries):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            try:
                request = self._client.build_request(method, self.url + path, json=body)
                LOG.add(request.url.host, "queries", len(request.content))
                response = self._client.send(request)
            except httpx.TimeoutException:
                reason = "no answer in time"
            except httpx.HTTPError as error:
                reason = str(error) or type(error).__name__
            else:
                if response.status_code < 500:
                    return self._read(response)
                reason = f"status {response.status_code}"
        advice = "see whether launch/serve_retrieval.py still runs there"
        raise ServiceFailure(f"the retrieval service {self.url} does not answer ({reason}); {advice}")

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        try:
            found = response.json()
        except (ValueError, RecursionError):
            found = None
        if response.status_code != 200:
            detail = found.get("detail") if isinstance(found, dict) else None
            said = detail if isinstance(detail, str) else f"status {response.status_code}"
            raise ServiceFailure(f"the retrieval service {self.url} refused: {said}")
        if not isinstance(found, dict):
            raise ServiceFailure(f"{self.url} is no retrieval service of this version of GHAR")
        return found


def _asked_for(request: Retrieve, answer: Evidence) -> bool:
    """Whether an answer has the form of this request's: nodes and edges of its partitions, no more than it wants."""
    partitions = {-1} if request.partitions is None else set(request.partitions)
    return len(answer.passages) <= 2 * request.top_n * len(partitions) and all(
        isinstance(p.text, str) and p.kind in ("node", "edge") and p.partition in partitions
        and isinstance(p.score, int | float) and isinstance(p.ident, int)
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
        found = client.version()
    except (ServiceFailure, httpx.InvalidURL) as error:
        client.close()
        raise BadInput(f"retriever.service={url}: {error}.") from None
    if found != expected:
        client.close()
        raise BadInput(
            f"retriever.service={url} serves {_words(found)}, this run needs {_words(expected)}: start it with the "
            "same kg and retriever settings."
        )
    return client


def _words(version: ServiceVersion) -> str:
    probes = "all lists" if version.probes is None else f"{version.probes} probes"
    return f"graph {version.graph[:12]} by {version.kind} ({probes}, protocol {version.protocol})"
