"""Starting Ray on this machine, or joining the cluster that RAY_ADDRESS names. Needs the extra `ray`."""

# pyright: reportMissingImports=false
# ray is an extra that the linters' environment need not have

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import ray

import ghar
from ghar import scratch
from ghar.config import Config, RayConfig
from ghar.errors import BadInput

TRIES = 3
PATIENCE = "300"  # seconds for Ray's own processes to come up, 30 by default: on a busy machine they need more
PROXY = "http_proxy"
NOWHERE = "http://127.0.0.1:9"  # no one listens there
NO_NAMES = "attempts:0"  # of RES_OPTIONS (resolv.conf(5)): names come from this machine's files alone
ROOT = Path(ghar.__file__).resolve().parents[1]  # of the clone, or site-packages
INSTALLED = Path(ray.__file__).parent
RAY_TMPDIR = "RAY_TMPDIR"
ROOM = 36  # characters of a temporary folder in which Ray's sockets have names of at most 107


def on_ray(config: Config) -> RayConfig:
    """The section `ray`. BadInput where it is null."""
    if config.ray is None:
        raise BadInput("The section ray is null: choose ray=cluster.")
    return config.ray


def joins_cluster() -> bool:
    """Whether Ray runs already: RAY_ADDRESS says where (`ray job submit` sets it)."""
    return bool(os.environ.get("RAY_ADDRESS"))


def start_ray(cores: int | None = None, quiet: bool = True, names: bool = True) -> None:
    """Start Ray with `cores` (None: all there are) unless it runs already. quiet: do not show what its processes print.
    names: whether its workers may ask a name server, as they must where they send anything to another machine;
    torch.distributed asks it what this machine is called, and waits for the answer.

    What a failed try has started is ended before the next one. BadInput when Ray does not start.
    """
    variables = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}  # who asks for no GPU sees none
    options: dict[str, Any] = {"log_to_driver": not quiet, "ignore_reinit_error": True}
    if not quiet:  # what the run prints, without Ray's own news
        options["logging_config"] = ray.LoggingConfig(log_level="ERROR")
    if not joins_cluster():  # elsewhere the job's working directory brings this code, and others have set up the rest
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", PATIENCE)
        os.environ.setdefault("RAY_worker_niceness", "0")  # its own 15 would put this run behind everything else
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        options |= {
            "address": "local",
            "num_cpus": cores,
            "include_dashboard": False,
        }
        if len(tempfile.gettempdir()) > ROOM and RAY_TMPDIR not in os.environ:
            options["_temp_dir"] = str(scratch.hold_folder(Path("/tmp")))
        _end(_orphans())
        variables["PYTHONPATH"] = path
        if not names:
            variables["RES_OPTIONS"] = NO_NAMES
        variables[PROXY] = os.environ.get(PROXY, os.environ.get("HTTP_PROXY", ""))
    options["runtime_env"] = {"env_vars": variables}
    for tried in range(1, TRIES + 1):
        before = {child.pid for child in _own_processes()}
        try:
            with _keeps_to_itself():
                ray.init(**options)
            return
        except Exception as error:  # ray raises nothing narrower
            ray.shutdown()
            _end([child for child in _own_processes() if child.pid not in before])
            if tried == TRIES:
                where = os.environ["RAY_ADDRESS"] if joins_cluster() else "this machine"
                raise BadInput(
                    f"Ray did not start on {where} in {TRIES} tries ({error}): see whether it runs."
                ) from error


def _orphans() -> list[psutil.Process]:
    """Return the processes of Ray whose driver was killed: the agents look only now and then whether it lives."""
    orphans = []
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # gone by now, or of another user
            if _is_rays(one) and _sees_our_files(one) and scratch.is_abandoned(Path(one.environ().get("TMPDIR", ""))):
                orphans.append(one)
    return orphans


def _sees_our_files(process: psutil.Process) -> bool:
    """Whether a process has this one's file systems: to one of another container its folder is there, and not to us."""
    return os.readlink(f"/proc/{process.pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")


def _own_processes() -> list[psutil.Process]:
    """Return the processes of Ray below this one: gcs_server, raylet, monitor, dashboard, workers."""
    processes = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # gone by now
            if _is_rays(child):
                processes.append(child)
    return processes


def _is_rays(process: psutil.Process) -> bool:
    return any(str(INSTALLED) in word or word.startswith("ray::") for word in process.cmdline())


def _end(processes: Sequence[psutil.Process]) -> None:
    """Kill processes and wait until they are gone. `ray.shutdown` knows none of those that a failed start began."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=30)


@contextmanager
def _keeps_to_itself() -> Iterator[None]:
    """Ray's own processes begin with an HTTP proxy that does not exist; its workers get the user's.

    Usage statistics switched off or not, its dashboard's process asks 169.254.169.254 and metadata.google.internal in
    which cloud it runs (get_cloud_from_metadata_requests of Ray 2.60).
    """
    before = os.environ.get(PROXY)
    if not joins_cluster():
        os.environ[PROXY] = NOWHERE
    try:
        yield
    finally:
        os.environ.pop(PROXY, None)
        if before is not None:
            os.environ[PROXY] = before


def check_resources(wanted: Mapping[str, float], advice: str) -> None:
    """BadInput where the cluster has less than `wanted` (as Ray counts: "CPU", "GPU"), which Ray would wait for."""
    there = ray.cluster_resources()
    if short := {name: count for name, count in wanted.items() if there.get(name, 0) < count}:
        need = " and ".join(f"{count:g} {name}s where Ray has {there.get(name, 0):g}" for name, count in short.items())
        raise BadInput(f"This run needs {need}: {advice}.")
