"""One HTTP exchange with a service: it ends in time and in size, whatever the other side does.

Time: `seconds` are of the whole try, connecting, sending and every read of it together; a server that sends a byte now
and then gains nothing. Size: an answer is cut off at so many bytes, as sent and as unpacked. No proxy, no redirect: a
request goes to the host that the gate (ghar/privacy.py) was asked about, and nowhere else. Needs httpx.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

PIECE = 1 << 16  # bytes of a request that are handed over at a time
LATE = "no answer in time"
PACKED = {"": None, "identity": None, "gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}  # zlib's wbits


class NoAnswer(Exception):
    """Nothing came that could be read; its text says why, and quotes nothing that was sent."""


@dataclass(frozen=True)
class Answer:
    """What came back, whole. headers: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON. ValueError where it is none."""
        try:
            return json.loads(self.body)
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


class Connections:
    """Kept-alive connections to one service. May be used from several threads.

    most: connections at once. size: bytes of an answer. headers: of every request.
    """

    def __init__(self, most: int, size: int, headers: Mapping[str, str]):
        self.size = size
        # not packed: what is small on its way cannot be large here
        own = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "ghar", **headers}
        self._headers = [(name.encode(), value.encode()) for name, value in own.items()]
        self._pool = httpcore.ConnectionPool(max_connections=most, network_backend=_Backend())

    def ask(self, method: str, url: str, body: bytes | None, seconds: float) -> Answer:
        """One try. NoAnswer when it does not end well; httpx.InvalidURL for an address that is none."""
        at = httpx.URL(url)
        target = httpcore.URL(scheme=at.raw_scheme, host=at.raw_host, port=at.port, target=at.raw_path)
        headers = [*self._headers, *([(b"content-type", b"application/json")] if body is not None else [])]
        _TRY.until = time.monotonic() + seconds
        waits = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), seconds)}
        try:
            with self._pool.stream(method, target, headers=headers, content=body, extensions=waits) as response:
                own = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                return Answer(response.status, own, _read(response.iter_stream(), own, self.size))
        except httpcore.TimeoutException:
            raise NoAnswer(LATE) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
            raise NoAnswer(str(error) or type(error).__name__) from None
        except (RuntimeError, OSError, httpcore.ConnectionNotAvailable) as error:  # closed meanwhile
            raise NoAnswer(str(error) or type(error).__name__) from None

    def close(self) -> None:
        """Give the connections back."""
        with suppress(RuntimeError):  # of a request under way, which ends by this
            self._pool.close()


def _read(pieces: Iterable[bytes], headers: Mapping[str, str], size: int) -> bytes:
    """The body, unpacked. NoAnswer above `size` bytes or for a packing that was not asked for and is not known."""
    packing = headers.get("content-encoding", "").strip().lower()
    if packing not in PACKED:
        raise NoAnswer(f"an answer packed by {packing[:20]!r}")
    bits = PACKED[packing]
    unpacker = None if bits is None else zlib.decompressobj(bits)
    data, came = bytearray(), 0
    for piece in pieces:
        came += len(piece)
        try:
            data += piece if unpacker is None else unpacker.decompress(piece, size + 1 - len(data))
        except zlib.error:
            raise NoAnswer(f"an answer that is no {packing}") from None
        if len(data) > size or came > size:
            raise NoAnswer(f"an answer of more than {size / 1e6:g} MB")
        if time.monotonic() > _TRY.until:
            raise NoAnswer(LATE)
    return bytes(data)


class _Try(threading.local):
    """When the try of this thread must have ended."""

    until = float("inf")

    def left(self) -> float:
        return self.until - time.monotonic()


_TRY = _Try()


class _Backend(httpcore.SyncBackend):
    """Connections whose every wait ends with the try of the thread that waits."""

    def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
        if _TRY.left() <= 0:
            raise httpcore.ConnectTimeout(LATE)
        return _Stream(super().connect_tcp(*arguments, **options))


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream):
        self.inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if (left := _TRY.left()) <= 0:
            raise httpcore.ReadTimeout(LATE)
        return self.inner.read(max_bytes, left)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE):
            if (left := _TRY.left()) <= 0:
                raise httpcore.WriteTimeout(LATE)
            self.inner.write(buffer[start : start + PIECE], left)

    def close(self) -> None:
        self.inner.close()

    def start_tls(self, *arguments: Any, **options: Any) -> httpcore.NetworkStream:
        return _Stream(self.inner.start_tls(*arguments, **options))

    def get_extra_info(self, info: str) -> object:
        return self.inner.get_extra_info(info)
