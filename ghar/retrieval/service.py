"""The retriever as an HTTP service: FastAPI under uvicorn, several worker processes, micro-batching in each.

All workers map the same index and graph, so memory is shared. Queries are neither logged nor kept.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.retrieval.batching import MicroBatcher
from ghar.retrieval.build import build_retriever
from ghar.retrieval.partition import PartitionRetriever
from ghar.retrieval.wire import Version, answers_to_json, requests_from_json

ENVIRONMENT = "GHAR_RETRIEVAL_SERVICE"  # a worker process finds its `Settings` here, as JSON
LONGEST = 60.0  # seconds an answer may take before its caller gets an error


@dataclass(frozen=True)
class Settings:
    """graph: folder of a saved graph. kind, probes, cache: as for `build_retriever`. batch: `MicroBatcher`."""

    graph: str
    kind: str
    cache: str
    probes: int | None
    batch: int


class Wish(BaseModel):
    """A `Retrieve` on its way."""

    query: str
    partitions: list[int] | None = None
    top_n: Annotated[int, Field(ge=1)] = 1


class Wishes(BaseModel):
    """Body of POST /retrieve. graph: fingerprint of the graph whose partitions are meant."""

    graph: str
    requests: list[Wish]


def create_app(retriever: PartitionRetriever, version: Version, *, batch: int) -> FastAPI:
    """The application around a retriever."""
    batcher = MicroBatcher(retriever.retrieve, batch)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(batcher.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    app = FastAPI(title="GHAR retrieval", lifespan=lifespan)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/version")
    async def show_version() -> dict[str, Any]:
        return asdict(version)

    @app.post("/retrieve")
    async def retrieve(body: Wishes) -> dict[str, Any]:
        if body.graph != version.graph:
            raise HTTPException(409, f"the service holds graph {version.graph[:12]}, not {body.graph[:12]}")
        requests = requests_from_json([wish.model_dump() for wish in body.requests])
        try:
            for request in requests:  # before it is batched: others shall not fail with it
                retriever.check(request)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        try:
            return {"answers": answers_to_json(await asyncio.wait_for(batcher.ask(requests), LONGEST))}
        except TimeoutError:
            raise HTTPException(503, f"no answer within {LONGEST:g} s") from None

    return app


def worker_app() -> FastAPI:
    """What uvicorn calls in each worker process."""
    settings = Settings(**json.loads(os.environ[ENVIRONMENT]))
    retriever = _open(settings)
    version = Version(retriever.graph.fingerprint, settings.kind, settings.probes)
    return create_app(retriever, version, batch=settings.batch)


def serve(url: str, settings: Settings, workers: int) -> None:
    """Serve at `url` (http://HOST:PORT) until interrupted. `BadInput` when the address cannot be taken.

    The index is built first where there is none; only then do workers start.
    """
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    with _bound(url) as listener:
        index = _open(settings)
        edges = index.graph.num_edges
        os.environ[ENVIRONMENT] = json.dumps(asdict(settings))
        print(f"Retrieval ({settings.kind}, {edges:,} edges, {workers} workers) at {url}; Ctrl-C ends it.", flush=True)
        del index
        # A worker that maps a large index, or waits for a busy machine, is not dead.
        options = {"log_level": "warning", "access_log": False, "timeout_worker_healthcheck": 60}
        config = uvicorn.Config("ghar.retrieval.service:worker_app", factory=True, workers=workers, **options)
        if workers == 1:
            uvicorn.Server(config).run(sockets=[listener])
        else:
            Multiprocess(config, sockets=[listener]).run()


def _open(settings: Settings) -> PartitionRetriever:
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
    listener.set_inheritable(True)
    return listener
