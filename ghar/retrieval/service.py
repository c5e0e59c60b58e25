"""The retriever as an HTTP service: FastAPI under uvicorn, several worker processes, micro-batching in each.

All workers map the same index and graph, so memory is shared. Queries are neither logged nor kept, and never repeated
in an answer. What guards it against its callers stands in guard.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from ghar.episode import Retrieve
from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.retrieval.access_control import AccessControl, RefusedRequest, TimedProtocol
from ghar.retrieval.batching import BATCH, Busy, MicroBatcher
from ghar.retrieval.build import build_retriever
from ghar.retrieval.partition import PartitionRetriever
from ghar.retrieval.service_token import TOKEN, own_token
from ghar.retrieval.wire import (
    MOST_ITEMS,
    MOST_QUERY,
    MOST_REQUESTS,
    MOST_TOP_N,
    ServiceVersion,
    answers_to_json,
    requests_from_json,
)

ENVIRONMENT = "GHAR_RETRIEVAL_SERVICE"  # a worker process finds its `ServiceSettings` here, as JSON
SWITCH = 0.0001  # seconds a search keeps the interpreter from the thread that talks to callers; Python's own are 0.005
LONGEST = 60.0  # seconds an answer may take before its caller gets an error
FIELDS = {"graph", "requests", "query", "partitions", "top_n"}
KINDS = {  # of pydantic's errors, in words
    "json_invalid": "no JSON", "missing": "is missing", "extra_forbidden": "no such field",
    "int_type": "no whole number", "string_type": "no text", "list_type": "no list", "model_type": "no object",
    "too_long": "too many items", "string_too_long": "too long", "less_than_equal": "too large",
    "greater_than_equal": "too small",
}  # fmt: skip


@dataclass(frozen=True)
class ServiceSettings:
    """graph: folder of a saved graph. kind, probes, cache: as for `build_retriever`."""

    graph: str
    kind: str
    cache: str
    probes: int | None


class RequestItem(BaseModel):
    """A `Retrieve` on its way."""

    model_config = ConfigDict(strict=True, extra="forbid")
    query: Annotated[str, Field(max_length=MOST_QUERY)]
    partitions: Annotated[list[int], Field(max_length=1000)] | None = None
    top_n: Annotated[int, Field(ge=1, le=MOST_TOP_N)] = 1


class RequestBody(BaseModel):
    """Body of POST /retrieve. graph: fingerprint of the graph whose partitions are meant."""

    model_config = ConfigDict(strict=True, extra="forbid")
    graph: Annotated[str, Field(max_length=200)]
    requests: Annotated[list[RequestItem], Field(max_length=MOST_REQUESTS)]


def create_app(
    retriever: PartitionRetriever, version: ServiceVersion, *, token: str, batch: int = BATCH
) -> AccessControl:
    """The application around a retriever. token: what callers must show."""

    def search(requests: Sequence[Retrieve]) -> list[bytes]:
        """Answers as JSON: made where the searches are, or a long one would hold up everyone else's."""
        return [json.dumps(answer).encode() for answer in answers_to_json(retriever.retrieve(requests))]

    batcher = MicroBatcher(search, batch)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(batcher.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    app = FastAPI(title="GHAR retrieval", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(RefusedRequest)
    async def refuse(_: Request, refusal: RefusedRequest) -> JSONResponse:
        return JSONResponse({"error": refusal.error, "detail": refusal.detail}, refusal.status)

    @app.exception_handler(StarletteHTTPException)
    async def unknown(_: Request, error: StarletteHTTPException) -> JSONResponse:
        return JSONResponse({"error": "unknown", "detail": "there is no such request"}, error.status_code)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/version")
    async def show_version() -> dict[str, Any]:
        return asdict(version)

    @app.post("/retrieve")
    async def retrieve(request: Request) -> Response:
        wanted = _read(await request.body())
        if wanted.graph != version.graph:
            raise RefusedRequest(
                409, "other_graph", f"the service holds graph {version.graph[:12]}, not the one asked about"
            )
        requests = requests_from_json([wish.model_dump() for wish in wanted.requests])
        if sum(wish.top_n * max(1, len(wish.partitions or ())) for wish in requests) > MOST_ITEMS:
            raise RefusedRequest(
                422, "invalid", f"a call may ask for {MOST_ITEMS:,} items in all its partitions together"
            )
        try:
            for wish in requests:  # before it is batched: others must not fail with it
                retriever.check(wish)
        except ValueError as error:
            raise RefusedRequest(422, "invalid", str(error)) from None
        answers = b", ".join(await _answered(batcher, requests))
        return Response(b'{"answers": [' + answers + b"]}", media_type="application/json")

    return AccessControl(app, token, TimedProtocol.limits)


def _read(body: bytes) -> RequestBody:
    """The body of /retrieve; what is wrong with another one is named without repeating any of it."""
    try:
        return RequestBody.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or part in FIELDS)
        raise RefusedRequest(
            422, "invalid", f"{place or 'the body'}: {KINDS.get(first['type'], first['type'])}"
        ) from None


async def _answered(batcher: MicroBatcher[bytes], requests: list[Retrieve]) -> list[bytes]:
    try:
        return await asyncio.wait_for(batcher.ask(requests), LONGEST)
    except TimeoutError:
        raise RefusedRequest(504, "too_late", f"no answer within {LONGEST:g} s") from None
    except Busy:
        raise RefusedRequest(503, "busy", "more requests wait than there is room for: come again") from None
    except Exception as error:  # a fault of the index; its own words may hold a query
        raise RefusedRequest(500, "failed", f"the search failed ({type(error).__name__})") from None


def worker_app() -> AccessControl:
    """What uvicorn calls in each worker process."""
    sys.setswitchinterval(SWITCH)
    settings = ServiceSettings(**json.loads(os.environ[ENVIRONMENT]))
    retriever = _open(settings)
    version = ServiceVersion(retriever.graph.fingerprint, settings.kind, settings.probes)
    retriever.retrieve(
        [Retrieve("ready"), Retrieve("ready", (0,))]
    )  # libraries load with the first search: not a caller's
    return create_app(retriever, version, token=own_token())


def serve(url: str, settings: ServiceSettings, workers: int) -> None:
    """Serve at `url` (http://HOST:PORT) until interrupted. `BadInput` when the address cannot be taken, or is no
    address of this machine alone and no token is set for those who ask from others.

    The index is built first where there is none; only then do workers start.
    """
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    own_token()  # before workers start, so that one of them makes it
    _open_files()
    with _bound(url) as listener:
        index = _open(settings)
        edges = index.graph.num_edges
        os.environ[ENVIRONMENT] = json.dumps(asdict(settings))
        print(f"Retrieval ({settings.kind}, {edges:,} edges, {workers} workers) at {url}; Ctrl-C ends it.", flush=True)
        del index
        # A worker that maps a large index, or waits for a busy machine, is not dead.
        options = {"log_level": "error", "access_log": False, "timeout_worker_healthcheck": 60, "http": TimedProtocol}
        options |= {"ws": "none", "server_header": False, "backlog": 4096, "timeout_graceful_shutdown": 10}
        config = uvicorn.Config("ghar.retrieval.service:worker_app", factory=True, workers=workers, **options)
        if workers == 1:
            uvicorn.Server(config).run(sockets=[listener])
        else:
            Multiprocess(config, sockets=[listener]).run()


def _open_files() -> None:
    """Let this process and its workers hold as many connections as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _open(settings: ServiceSettings) -> PartitionRetriever:
    graph = KnowledgeGraph.load(Path(settings.graph))
    return build_retriever(graph, settings.kind, cache=Path(settings.cache), probes=settings.probes)


def _bound(url: str) -> socket.socket:
    """A socket bound to the address of `url`; nothing can connect until a server listens on it."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme != "http" or host is None or port is None:
        raise BadInput(f"retriever.service={url} is no address to serve at: write http://127.0.0.1:8077.")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise BadInput(
            f"retriever.service={url}: the address cannot be taken ({error.strerror}); end the program that uses it, "
            "or choose another port."
        ) from None
    if not ip_address(listener.getsockname()[0]).is_loopback and not os.environ.get(TOKEN):
        listener.close()
        raise BadInput(
            f"retriever.service={url} can be reached from other machines: set the environment variable {TOKEN} here "
            "and where runs ask, or serve at http://127.0.0.1:PORT."
        )
    listener.set_inheritable(True)
    return listener
