"""The service from outside: started, asked, in the way of another, ended."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

pytest.importorskip("fastapi", reason="the service needs ghar[service]")

from ghar.episode import Retrieve
from ghar.errors import BadInput
from ghar.retrieval.build import build_retriever
from ghar.retrieval.client import RemoteRetriever, connect
from ghar.retrieval.wire import ServiceVersion
from tests.kg.graphs import TINY, graph_of
from tests.running import ends, run_command, started, wait_until

ROOT = Path(__file__).resolve().parents[2]


def command(folder: Path, *arguments: str) -> list[str]:
    script = str(ROOT / "launch" / "serve_retrieval.py")
    return [sys.executable, script, f"kg.path={folder / 'kg.csv'}", f"data.cache={folder / 'cache'}", *arguments]


def connected(url: str, expected: ServiceVersion) -> RemoteRetriever | None:
    """A client of the service; None while there is none."""
    try:
        return connect(url, expected, credentialed=True, allow=())
    except BadInput:
        return None


def workers_of(service: subprocess.Popen) -> dict[int, psutil.Process]:
    """The processes that answer, by id (multiprocessing keeps one of its own beside them)."""
    found = {}
    for child in psutil.Process(service.pid).children():
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile
            if "spawn_main" in " ".join(child.cmdline()):
                found[child.pid] = child
    return found


@pytest.mark.slow
def test_two_workers_serve_one_index_until_they_are_ended(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, TINY)
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    own = command(tmp_path, f"retriever.service={url}", "retriever.workers=2")
    version = ServiceVersion(graph.fingerprint, "tfidf", None)
    with started(own, cwd=tmp_path, env=env, stdout=subprocess.PIPE) as process:
        remote = wait_until(lambda: connected(url, version), process, "service")
        asked = [Retrieve("metformin", (3,)), Retrieve("SOD1", None, 2)] * 40
        expected = build_retriever(graph, "tfidf").retrieve(asked)
        assert remote.retrieve(asked) == expected
        number, worker = next(iter(workers_of(process).items()))
        worker.kill()  # the other one answers, and a new one takes its place
        assert remote.retrieve(asked) == expected

        def replaced() -> bool | None:
            now = workers_of(process)
            return (number not in now and len(now) == 2) or None

        wait_until(replaced, process, "new worker")
        assert remote.retrieve(asked) == expected
        second = run_command(own, cwd=tmp_path, env=env)
        assert second.returncode == 2 and "cannot be taken" in second.stderr and "Traceback" not in second.stderr
        process.send_signal(signal.SIGTERM)
        assert ends(process.pid, lambda: process.poll() is None), "the service goes on after SIGTERM"
    assert process.stdout is not None and f"2 workers) at {url}" in process.stdout.read()


@pytest.mark.slow
def test_no_address_no_service(tmp_path: Path) -> None:
    done = run_command(command(tmp_path), cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("retriever.service is null") and done.stderr.count("\n") == 1
