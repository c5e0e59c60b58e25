"""Bytes that leave this machine, counted by the kernel (benchmarks/run.py silence).

Every command runs in a network of its own (`unshare --net`), in which loopback works and everything else goes out by
one device that leads nowhere; what it was given to send is the number. Of every system: trainings on generated patients
with W&B offline and on Ray, and of GHAR with a retrieval service of this machine, which have nothing to send; and
trainings whose tables count as credentialed (a generated world with a file that no one signed) towards W&B, a service,
an engine, an expert and a Ray cluster elsewhere, which must be refused before the first byte. A connection on purpose
shows that the device counts. Needs Linux and the right to make a network.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ghar.errors import BadInput
from ghar.progress import track

ROOT = Path(__file__).resolve().parents[1]
SYSTEMS = ("ghar", "kare", "graphwalker", "ehr_rag", "exprag")
ELSEWHERE, LIMIT = "10.9.9.2", 1800.0  # beyond the device; LIMIT: seconds of a command
NETWORK = (
    "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; ip link set lo up && "
    "ip link add out type veth peer name far && ip addr add 10.9.9.1/24 dev out && "
    "ip link set out arp off up && ip link set far up && "
    'ip route add default dev out && exec "$@"'
)
SMALL = (
    "task=read", "threads=1", "data.patients=120", "model.hidden=32", "model.layers=2",
    "model.vocab=1600", "trainer.base.steps=1", "trainer.base.batch=16", "trainer.warmup.samples=24",
    "trainer.warmup.epochs=1", "trainer.rl.updates=1", "trainer.rl.episodes=8", "trainer.rl.eval_every=1",
    "trainer.rl.eval_samples=6", "task.max_train=60", "task.max_valid=8", "task.max_test=8", "eval.bootstrap=20",
)  # fmt: skip
OWN = {"kare": ("system.leiden_runs=2", "system.concepts=4", "system.path_count=4", "system.chains=1")}
RAY = ("ray=cluster", "ray.workers=1", "ray.rollout_actors=1", "ray.retrieval_actors=1")
AWAY = {
    "W&B": ("logger.wandb=online",),
    "W&B's files": ("logger.wandb=offline",),
    "service": (f"retriever.service=http://{ELSEWHERE}:8077",),
    "engine": ("engine=api", "model=pretrained", f"model.path=m@http://{ELSEWHERE}:8000/v1", "trainer.base.steps=0"),
    "Ray": RAY,
    "expert": (f"system.expert=m@http://{ELSEWHERE}:8000/v1",),
}


def silence(folder: Path, *, systems: Sequence[str] = SYSTEMS, trained: bool = True) -> dict[str, Any]:
    """Bytes of every command; trained: of the trainings too, which take a minute each."""
    _check()
    folder = folder.resolve() / "silence"
    shutil.rmtree(folder, ignore_errors=True)
    control = counted(["-c", f"import socket; socket.socket().connect_ex(({ELSEWHERE!r}, 9))"], stop=5.0)
    if not control["bytes"]:
        raise RuntimeError("the device counts nothing: a connection on purpose was not seen")
    tables = _tables(folder)
    results: dict[str, dict[str, Any]] = {}
    steps = list(_steps(folder, tables, systems, trained))
    for name, wanted, command, beside, more in track(steps, "Listen to commands", len(steps)):
        results[name] = counted(command, beside=beside, more=more) | {"wanted": wanted}
    other = {name: one["said"] for name, one in results.items() if one["code"] != one["wanted"]}
    return {
        "commands": len(results),
        "of them refused": sum(one["code"] == 2 for one in results.values()),
        "bytes": sum(one["bytes"] for one in results.values()),
        "bytes of a connection on purpose": control["bytes"],
        "commands that ended otherwise than they should": len(other),
        "others": [other],
        "by command": {name: one["bytes"] for name, one in results.items()},
    }


def _check() -> None:
    done = subprocess.run(["unshare", "--net", "bash", "-c", NETWORK, "-", "true"], capture_output=True, text=True)
    if done.returncode:
        raise BadInput(f"This system does not let a network be made (unshare --net): {done.stderr.strip()}")


def _steps(folder: Path, tables: Path, systems: Sequence[str], trained: bool) -> Any:
    """(name, exit code, command, what runs beside it, environment) of each."""
    for system in systems:
        own = [f"system={system}", *SMALL, *OWN.get(system, ())]
        away = [f"system={system}", "task=read", "data=mimic4", f"data.root={tables}", f"data.cache={folder / 'none'}"]
        away += ["retriever=hashing"] if system == "kare" else []
        for where, words in AWAY.items():
            if where != "expert" or system == "kare":
                script = "launch/train_ray.py" if where == "Ray" else "launch/train.py"
                more = {"RAY_ADDRESS": f"{ELSEWHERE}:6379"} if where == "Ray" else {}
                command = [script, *away, *words, f"run_dir={folder / 'refused'}"]
                yield f"{system}: credentialed patients to {where}", 2, command, None, more
        if not trained:
            continue
        cache = [f"data.cache={folder / 'cache'}"]
        at = f"retriever.service=http://127.0.0.1:{8077 + len(system)}"
        run = [f"run_dir={folder / system}"]
        offline = ["launch/train.py", *own, *cache, *run, "logger.wandb=offline"]
        yield f"{system}: training, W&B offline", 0, offline, None, {}
        if system == "ghar":  # the one that asks the service, and the retriever's actors
            beside = ["launch/serve_retrieval.py", *own, *cache, at]
            run = [f"run_dir={folder / 'served'}"]
            yield f"{system}: training, a service here", 0, ["launch/train.py", *own, *cache, *run, at], beside, {}
        run = [f"run_dir={folder / f'{system}-ray'}"]
        yield f"{system}: training, Ray here", 0, ["launch/train_ray.py", *own, *cache, *run, *RAY], None, {}


def _tables(folder: Path) -> Path:
    """A generated world that counts as credentialed, since one of its files is signed by no one."""
    from ghar.envs.records import Records
    from ghar.launch.entry import load

    root = Records(load([*SMALL, f"data.cache={folder / 'cache'}"])).root
    assert root is not None  # the demo's
    shutil.copytree(root, folder / "tables")
    (folder / "tables" / "hosp" / "unsigned.csv").write_text("subject_id\n")
    return folder / "tables"


def counted(
    command: Sequence[str], *, beside: Sequence[str] | None = None, more: dict[str, str] | None = None,
    stop: float = LIMIT,
) -> dict[str, Any]:  # fmt: skip
    """Exit code of `python *command` in a network of its own, bytes that it gave to the way out, and its last words.

    beside: a service that is started before it; more: of the environment."""
    about = json.dumps({"command": list(command), "beside": list(beside or ()), "stop": stop})
    code = f"from benchmarks.silence import within; within({about!r})"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | (more or {})
    inside = ["unshare", "--net", "bash", "-c", NETWORK, "-", sys.executable, "-c", code]
    done = subprocess.run(inside, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=stop + LIMIT)
    try:
        counts = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise RuntimeError(f"nothing was counted: {done.stderr[-2000:]}") from None
    return counts


def within(about: str) -> None:
    """Inside of the network: run what `counted` was given, and print what it led to."""
    given = json.loads(about)
    service = None
    if given["beside"]:
        service = subprocess.Popen([sys.executable, *given["beside"]], stdout=subprocess.DEVNULL)
        _wait_for(int(given["beside"][-1].rpartition(":")[2]), service)
    try:
        done = subprocess.run(
            [sys.executable, *given["command"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=given["stop"],
        )  # fmt: skip
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        code, output = None, f"no end after {given['stop']:.0f} s"
    finally:
        if service is not None:
            service.terminate()
            service.wait(30)
    print("\n" + json.dumps({"code": code, "bytes": _sent(), "said": output[-1500:]}))


def _wait_for(port: int, service: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and service.poll() is None:
        with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 1)):
            return
        time.sleep(0.2)
    raise RuntimeError("the service beside it did not start")


def _sent() -> int:
    """Bytes that the device has been given to send."""
    rows = (line.partition(":") for line in Path("/proc/self/net/dev").read_text().splitlines())
    return next(int(numbers.split()[8]) for name, _, numbers in rows if name.strip() == "out")
