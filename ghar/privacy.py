"""The one gate: everything that leaves this machine is on one list, which is asked before any work; and the log of
what went where.

The list is computed from the configuration alone. Whatever value of it holds an address that is not this machine's is
on it, so a system of the user's own cannot be forgotten. The senders ask once more before their first byte.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from pathlib import Path
from threading import RLock
from typing import Any
from urllib.parse import urlsplit

from ghar.config import Config
from ghar.disk import whole
from ghar.errors import BadInput
from ghar.lock import lock
from ghar.sections import leaves

WANDB, HUB = "wandb", "huggingface.co"
WANDB_SERVER = "https://api.wandb.ai"  # `wandb` in privacy.allow means this one; any other must be named besides
HOW_TO_DOWNLOAD = f", or let it be downloaded with 'privacy.allow=[{HUB}]'"
SENT = "sent.json"  # in a run folder
ADDRESS = re.compile(r"https?://[^\s'\"]+", re.IGNORECASE)
PATH = re.compile(r"^(https?://[^/]*)(.*)$", re.IGNORECASE | re.DOTALL)
# 20 or more letters and digits in a row, some of both: no word, no name of a model, no date
KEY_LIKE = re.compile(r"(?<![a-z0-9])(?=[a-z]*[0-9])(?=[0-9]*[a-z])[a-z0-9]{20,}(?![a-z0-9])", re.IGNORECASE)
HIDDEN = "***"
EVERY = 1.0  # seconds between two writings of the log, at least
# Usage statistics and error reports of the libraries below, each by its own switch.
SILENT = {
    "RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1", "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1", "WANDB_ERROR_REPORTING": "false", "WANDB_DISABLE_SERVICE_TELEMETRY": "true",
}  # fmt: skip


@dataclass(frozen=True)
class Destination:
    """name: as privacy.allow has it, a host or wandb; key: what of the configuration leads there; what: goes there.

    patients: whether texts or numbers of patients do.
    """

    name: str
    key: str
    what: str
    patients: bool = True


def destinations(config: Config) -> list[Destination]:
    """Everything that may leave this machine in a run of this configuration."""
    targets = []
    if config.logger.wandb != "disabled":  # `wandb sync` would send offline files later
        targets.append(Destination(WANDB, "logger.wandb", "metrics, the configuration, episodes"))
        server = os.environ.get("WANDB_BASE_URL") or WANDB_SERVER
        if server.rstrip("/") != WANDB_SERVER and (host := host_of(server)) is not None:
            targets.append(Destination(host, "WANDB_BASE_URL", "metrics, the configuration, episodes"))
    for key, value in plain_values(asdict(config)):
        if isinstance(value, str):
            hosts = [host for address in ADDRESS.findall(value) if (host := host_of(address)) is not None]
            targets += [Destination(host, key, "prompts or queries") for host in hosts]
    cluster = os.environ.get("RAY_ADDRESS", "")
    if cluster and (config.ray is not None or config.rllib is not None):
        host = host_of(cluster if "://" in cluster else f"ray://{cluster}")
        if host is not None:
            targets.append(Destination(host, "RAY_ADDRESS", "cases, prompts and weights"))
    if (master := other_machine()) is not None:
        targets.append(Destination(master, "MASTER_ADDR", "episodes, prompts and weights"))
    if not hub_is_off():
        targets.append(Destination(HUB, "HF_HUB_OFFLINE", "names of models", patients=False))
    return targets


def other_machine() -> str | None:
    """The host that torchrun's processes meet at (MASTER_ADDR) where the run spans machines, which then exchange
    episodes; None where all of them are on this machine."""
    address = os.environ.get("MASTER_ADDR", "")
    host = host_of(address if "://" in address else f"tcp://{address}") if address else None
    if host is None:
        return None
    here = os.environ.get("LOCAL_WORLD_SIZE", "1") == os.environ.get("WORLD_SIZE", "1")
    return None if here and _is_own(host) else host


def _is_own(host: str) -> bool:
    """Whether a name or an address is of this machine, told without asking a name server."""
    if host in (socket.gethostname(), socket.getfqdn()):
        return True
    try:
        family = socket.AF_INET if ip_address(host).version == 4 else socket.AF_INET6
        with socket.socket(family) as tried:
            tried.bind((host, 0))
        return True
    except (ValueError, OSError):
        return False


def ask_gate(config: Config, credentialed: Callable[[], bool]) -> list[Destination]:
    """The destinations of a run; BadInput before any work when one of them is closed to its patients.

    credentialed: tells whether they are credentialed, asked only where it matters. Also switches the libraries' usage
    statistics off, keeps hubs out unless privacy.allow names huggingface.co, and opens the log of what is sent.
    """
    keep_quiet(config.privacy.allow)
    targets = destinations(config)
    closed = [one for one in targets if one.patients and one.name not in config.privacy.allow]
    if closed and credentialed():
        raise BadInput("\n".join(_refusal(one.name, f" ({one.key})") for one in closed))
    keep_log(config)
    return targets


def keep_log(config: Config) -> None:
    """Count what this process sends, in the log of its run."""
    LOG.open(Path(config.run_dir) / SENT, destinations(config), config.privacy.allow)


def keep_quiet(allow: Sequence[str]) -> None:
    """Set the libraries' switches. A variable that the user has set stays as it is."""
    for name, value in SILENT.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("HF_HUB_OFFLINE", "0" if HUB in allow else "1")


def hub_is_off() -> bool:
    """Whether models and data sets come from this machine's disks alone."""
    return os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE")


def check_destination(cohort_credentialed: bool, destination: str, allow: Sequence[str]) -> None:
    """Raise BadInput when text of a credentialed cohort would go to a destination that privacy.allow does not name.

    Call it before the first byte is sent. destination: "wandb", or the host of a service; compared exactly.
    """
    if cohort_credentialed is not False and destination not in tuple(allow):
        raise BadInput(_refusal(destination))


def check_url(cohort_credentialed: bool, url: str, allow: Sequence[str]) -> None:
    """`check_destination` for the host of `url`, unless that is this machine (localhost, 127.0.0.1, ::1)."""
    host = host_of(url)
    if host is not None:
        check_destination(cohort_credentialed, host, allow)


def check_wandb(cohort_credentialed: bool, server: str, allow: Sequence[str]) -> None:
    """`check_destination` for W&B, and for the host of its server where that is another one than W&B's own."""
    check_destination(cohort_credentialed, WANDB, allow)
    if server.rstrip("/") != WANDB_SERVER:
        check_url(cohort_credentialed, server, allow)


def host_of(url: str) -> str | None:
    """The host that an address leads to; None for this machine."""
    try:
        host = urlsplit(url).hostname or url
    except ValueError:  # no address at all: nothing that could be allowed
        return url
    try:
        return None if ip_address(host).is_loopback else host
    except ValueError:
        return None if host == "localhost" else host


def secret_in(value: str) -> bool:
    """Whether a text holds an address with a password or parameters, or what looks like a key of a service."""
    for address in ADDRESS.findall(value):
        try:
            parts = urlsplit(address)
        except ValueError:
            continue
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            return True
    return re.search(r"\b(sk-[\w-]{16,}|hf_\w{20,}|Bearer\s+\S{8,})", value) is not None


def masked(value: str) -> str:
    """A text whose addresses have no keys in their paths: what files, their names and messages show."""
    return ADDRESS.sub(lambda match: PATH.sub(_masked_path, match[0], count=1), value)


def _masked_path(match: re.Match[str]) -> str:
    return match[1] + KEY_LIKE.sub(HIDDEN, match[2])


def plain_values(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(full key, value) of nested sections; the items of a list one by one."""
    for key, value in leaves(values).items():
        yield from ((key, item) for item in (value if isinstance(value, list | tuple) else [value]))


def _refusal(destination: str, by: str = "") -> str:
    return (
        f"text of credentialed patients would be sent to {destination!r}{by}, which privacy.allow does not name: "
        f"add it there if your data use agreement permits it, or switch that destination off"
    )


@dataclass
class SentLog:
    """What a run has sent, by destination and kind: messages and bytes, never a word of them.

    sent: by this process and not written yet. The file <run_dir>/sent.json adds up what all processes of a run have
    sent, those of earlier starts among them.
    """

    path: Path | None = None
    about: dict[str, Any] = field(default_factory=dict)
    sent: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    written: float = 0.0
    lock: Any = field(default_factory=RLock, repr=False)  # an engine of a server sends from many threads

    def open(self, path: Path, targets: Sequence[Destination], allow: Sequence[str]) -> None:
        """Keep the log in `path` from now on; the file is made with the first message."""
        self.close()
        self.path, self.sent = path, {}
        self.about = {"allowed": list(allow), "destinations": [asdict(one) for one in targets]}

    def add(self, destination: str, what: str, size: int, messages: int = 1) -> None:
        """Count what is about to be sent. size: in bytes."""
        with self.lock:
            _count(self.sent, destination, what, messages, size)
            if time.monotonic() - self.written > EVERY:
                self.close()

    def close(self) -> None:
        """Add what there is to the file."""
        with self.lock:
            if self.path is None or not self.sent or not self.path.parent.is_dir():
                return
            self.written = time.monotonic()
            with _alone(self.path.parent):
                total = _written(self.path)
                for destination, kinds in self.sent.items():
                    for what, row in kinds.items():
                        _count(total, destination, what, row["messages"], row["bytes"])
                with whole(self.path) as half:
                    half.write_text(json.dumps({**self.about, "sent": total}, indent=1) + "\n")
            self.sent = {}


Sent = dict[str, dict[str, dict[str, int]]]  # destination -> kind -> messages, bytes


def _count(sent: Sent, destination: str, what: str, messages: int, size: int) -> None:
    row = sent.setdefault(destination, {}).setdefault(what, {"messages": 0, "bytes": 0})
    row["messages"] += messages
    row["bytes"] += size


def _written(path: Path) -> Sent:
    """What the file says by now; nothing where there is none, or one that is no log."""
    try:
        sent = json.loads(path.read_text())["sent"]
        return {host: {what: {k: int(row[k]) for k in ("messages", "bytes")} for what, row in kinds.items()}
                for host, kinds in sent.items()}  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process of the run writes its log meanwhile. A file is locked, which NFS wants open for writing, and
    not the folder."""
    with (folder / ".sent.lock").open("w") as file:
        lock(file, folder, wait=True)
        yield


LOG = SentLog()
atexit.register(LOG.close)
