"""The retrieval service under 1,000 clients, hostile ones among them (benchmarks/run.py service).

The service runs in a process of its own, on a generated graph; the clients are tasks of this one, on this machine. Nine
in ten are honest: each asks for one to four look-ups and waits for the answer, then for `THINK` seconds on average, as
an agent's model needs before it asks again; every answer is compared with the retriever's own. One in ten is hostile,
each in its way (`HOSTILE`), without a pause. Beside them /health is asked twice a second. An honest client that gets no
answer asks again twice, as `RemoteRetriever` does; a failure is a look-up that three tries did not answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.graph import primekg_sized
from benchmarks.retrieval import KIND, open_retriever
from ghar.episode import Retrieve
from ghar.launch.entry import load
from ghar.retrieval.partition import PartitionRetriever
from ghar.retrieval.service_token import TOKEN
from ghar.retrieval.wire import answers_to_json, requests_to_json

CLIENTS, THINK, GRAPH = 1000, 10.0, 0.01
TRIES, PATIENCE, READY = 3, 30.0, 300.0
Exchange = tuple[int, bytes]


@dataclass
class Site:
    """A running service, as its clients know it. asks: bodies of calls and what they are answered with."""

    port: int
    graph: str
    token: str
    asks: list[tuple[bytes, Any]]
    times: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def call(self, body: bytes, token: str | None = None, path: str = "/retrieve", length: int | None = None) -> bytes:
        """A request as bytes. length: what it says it has, where that is a lie."""
        bearer = self.token if token is None else token
        head = f"POST {path} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {bearer}\r\n"
        return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


def service(folder: Path, *, share: float, seed: int, seconds: float = 60.0) -> dict[str, Any]:
    """Numbers of `share` of 1,000 clients over `seconds`."""
    graph_folder, cache = folder / f"graph-{GRAPH:g}-seed{seed}", folder / "indexes"
    if not graph_folder.exists():
        graph_folder.parent.mkdir(parents=True, exist_ok=True)
        primekg_sized(seed, GRAPH).save(graph_folder)
    retriever = open_retriever(graph_folder, cache)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    site = Site(port, retriever.graph.fingerprint, "of the benchmark", _asks(retriever, seed))
    about = {"graph": str(graph_folder), "kind": KIND, "cache": str(cache), "probes": load().retriever.probes}
    settings = f"ServiceSettings(**{about!r})"
    imports = "from ghar.retrieval.service import ServiceSettings, serve"
    start = f"{imports}; serve('http://127.0.0.1:{port}', {settings}, 1)"
    environment = {**os.environ, TOKEN: site.token}
    process = subprocess.Popen([sys.executable, "-c", start], env=environment, stdout=subprocess.DEVNULL)
    try:
        return asyncio.run(_measure(site, psutil.Process(process.pid), round(CLIENTS * share), seconds, seed))
    finally:
        process.terminate()
        process.wait(30)


def _asks(retriever: PartitionRetriever, seed: int) -> list[tuple[bytes, Any]]:
    """Calls of one to four look-ups over the graph's own names, with the retriever's answers."""
    rng, made = np.random.default_rng(seed), []
    names = retriever.graph.names
    for _ in range(100):
        wanted = [
            Retrieve(f"what about {names[int(rng.integers(len(names)))]}", tuple(rng.choice(30, 2).tolist()), 1)
            for _ in range(int(rng.integers(1, 5)))
        ]
        answers = json.loads(json.dumps(answers_to_json(retriever.retrieve(wanted))))
        body = {"graph": retriever.graph.fingerprint, "requests": requests_to_json(wanted)}
        made.append((json.dumps(body).encode(), answers))
    return made


async def _measure(site: Site, service: psutil.Process, clients: int, seconds: float, seed: int) -> dict[str, Any]:
    await _ready(site)
    before, memory = service.memory_info().rss, [service.memory_info().rss]
    spent, own = sum(service.cpu_times()[:2]), time.process_time()
    end, hostile = time.monotonic() + seconds, max(len(HOSTILE), clients // 10)
    honest = [_honest(site, end, random.Random(f"{seed} {n}")) for n in range(clients - hostile)]
    foes = [_foe(site, end, HOSTILE[n % len(HOSTILE)], random.Random(n)) for n in range(hostile)]
    await asyncio.gather(*honest, *foes, _ask_health(site, end), _watch(service, memory, end))
    times = np.array(site.times or [float("nan")])
    return {
        "clients": clients, "of them hostile": hostile, "seconds": seconds, "answered": len(site.times),
        "failed": site.counts["failed"], "wrong answers": site.counts["wrong"], "tried again": site.counts["again"],
        **{f"answer, p{q} s": float(np.percentile(times, q)) for q in (50, 99, 100)},
        "health, p99 s": float(np.percentile(site.health, 99)), "health failed": site.counts["unhealthy"],
        "hostile exchanges": {k: n for k, n in sorted(site.counts.items()) if k.startswith("hostile")},
        "processor seconds, service": sum(service.cpu_times()[:2]) - spent,
        "processor seconds, clients": time.process_time() - own,
        "memory at the start, MB": before / 1e6, "memory at most, MB": max(memory) / 1e6,
        "load average": os.getloadavg()[0],
    }  # fmt: skip


async def _ready(site: Site) -> None:
    end = time.monotonic() + READY
    while True:
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            reader, writer = await _connect(site)
            if (await _exchange(reader, writer, b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"))[0] == 200:
                writer.close()
                return
        if time.monotonic() > end:
            raise TimeoutError("the service did not start")
        await asyncio.sleep(0.2)


async def _honest(site: Site, end: float, rng: random.Random) -> None:
    """Ask, think, ask again."""
    await asyncio.sleep(rng.random() * THINK)
    pair: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while time.monotonic() < end:
        body, expected = rng.choice(site.asks)
        begin = time.monotonic()
        for _ in range(TRIES):
            try:
                if pair is None or pair[0].at_eof() or pair[1].is_closing():
                    pair = await _connect(site)
                status, answer = await _exchange(pair[0], pair[1], site.call(body))
            except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
                pair, status, answer = None, 0, b""
            if status == 200:
                break
            site.counts["again"] += 1
            await asyncio.sleep(0.2)
        else:
            site.counts["failed"] += 1
            continue
        site.times.append(time.monotonic() - begin)
        site.counts["wrong"] += json.loads(answer)["answers"] != expected
        await asyncio.sleep(rng.expovariate(1 / THINK))


async def _ask_health(site: Site, end: float) -> None:
    while time.monotonic() < end:
        begin = time.monotonic()
        try:
            reader, writer = await _connect(site)
            status, _ = await _exchange(reader, writer, b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n")
            writer.close()
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            status = 0
        site.counts["unhealthy"] += status != 200
        site.health.append(time.monotonic() - begin)
        await asyncio.sleep(0.5)


async def _watch(service: psutil.Process, memory: list[int], end: float) -> None:
    while time.monotonic() < end:
        memory.append(service.memory_info().rss)
        await asyncio.sleep(0.5)


async def _connect(site: Site) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", site.port), PATIENCE)


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> Exchange:
    writer.write(request)
    async with asyncio.timeout(PATIENCE):
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((line for line in lines if line.startswith(b"content-length:")), b":0")
        return int(head.split(b" ", 2)[1]), await reader.readexactly(int(length.partition(b":")[2]))


# ---------------------------------------------------------------- hostile clients


async def _foe(site: Site, end: float, how: Foe, rng: random.Random) -> None:
    while time.monotonic() < end:
        try:
            async with asyncio.timeout(min(PATIENCE, max(0.1, end - time.monotonic()))):
                reader, writer = await _connect(site)
                try:
                    await how(site, reader, writer, rng)
                finally:
                    writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            pass
        site.counts[f"hostile: {how.__name__.strip('_')}"] += 1
        await asyncio.sleep(0.05)


async def _silent(site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    """Half a request, and then nothing."""
    writer.write(b"POST /retrieve HTTP/1.1\r\nHost: here\r\n")
    await reader.read()


async def _trickle(site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    """A body that comes byte by byte."""
    writer.write(site.call(b"", length=100_000))
    while not reader.at_eof():
        writer.write(b"{")
        await asyncio.sleep(0.5)


async def _deaf(site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    """The largest answers, which it never reads."""
    for _ in range(20):
        writer.write(_greed(site, rng))
    await asyncio.sleep(PATIENCE)


async def _greedy(site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    """The largest calls that are allowed, one after the other."""
    while True:
        await _exchange(reader, writer, _greed(site, rng))


async def _huge(site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    """Bodies of 50 MB, announced or not."""
    writer.write(site.call(b"", length=rng.choice((50_000_000, 10**30))))
    for _ in range(50):
        writer.write(b"x" * 1_000_000)
        await writer.drain()


async def _many(site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    """100,000 queries in one body, top_n of a billion, numbers that are none, brackets without end."""
    about = {"graph": site.graph}
    bodies = (
        json.dumps(about | {"requests": [{"query": ""}] * 100_000}).encode(),
        json.dumps(about | {"requests": [{"query": "", "top_n": 10**9}]}).encode(),
        json.dumps(about | {"requests": [{"query": "", "top_n": float("nan")}]}).encode(),
        b'{"graph": ' + b"[" * 500_000, b"\xff" * 1000, b'{"graph": "\\ud800", "requests": []}', b"",
    )  # fmt: skip
    await _exchange(reader, writer, site.call(rng.choice(bodies)))


async def _stranger(site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    """No token, a wrong one, or no HTTP at all."""
    body, _ = rng.choice(site.asks)
    lines = site.call(body, token=rng.choice(("", "wrong", "x" * 5000))), bytes(rng.randrange(256) for _ in range(2000))
    await _exchange(reader, writer, rng.choice(lines))


def _greed(site: Site, rng: random.Random) -> bytes:
    wish = asdict(Retrieve("a" * 200 + str(rng.random()), tuple(range(30)), 5))
    return site.call(json.dumps({"graph": site.graph, "requests": [wish] * 64}).encode())


Foe = Callable[[Site, asyncio.StreamReader, asyncio.StreamWriter, random.Random], Awaitable[None]]
HOSTILE: tuple[Foe, ...] = (_silent, _trickle, _deaf, _greedy, _huge, _many, _stranger)
