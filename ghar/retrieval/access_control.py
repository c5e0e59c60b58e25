"""What stands between the retrieval service and its callers: a token, and limits on size, time and connections.

`AccessControl` wraps the application: a request must show the token, send its body soon and not too much of it, and
take its answer. `TimedProtocol` is uvicorn's HTTP protocol with two limits that uvicorn lacks: a connection on which no
request arrives is closed, and where there are too many, the one that has waited longest makes room. What a caller sent
is never repeated in an answer.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from ghar.retrieval.service_token import TOKEN

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
OPEN_PATHS = {"/health"}


@dataclass(frozen=True)
class Limits:
    """body: bytes of a request. arrive, leave: seconds its body may take to come, and each part of an answer to be
    taken. connections: open at once, of one worker."""

    body: int = 1_000_000
    arrive: float = 10.0
    leave: float = 10.0
    connections: int = 4096


class RefusedRequest(Exception):
    """A request that gets no answer. error: a short name, as in `ghar.retrieval.wire`; detail: a sentence."""

    def __init__(self, status: int, error: str, detail: str):
        super().__init__(detail)
        self.status, self.error, self.detail = status, error, detail


class AccessControl:
    """An ASGI application around another one."""

    def __init__(self, app: App, token: str, limits: Limits):
        self.app, self.token, self.limits = app, token.encode(), limits

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        taken = self._taken(send)
        try:
            self._check(scope)
            body = await self._body(scope, receive)
        except RefusedRequest as refusal:
            await answer(taken, refusal)
            return
        if body is not None:
            with suppress(TimeoutError):  # of `taken`: the server closes the connection of an answer that has no end
                await self.app(scope, _once(body, receive), taken)

    def _check(self, scope: Message) -> None:
        """Refuse a caller without the token; the comparison takes as long for any wrong one."""
        if scope["path"] in OPEN_PATHS:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, b"Bearer " + self.token):
            raise RefusedRequest(
                401, "unauthorized", f"this service asks for its token: set {TOKEN} to the one it runs with"
            )

    async def _body(self, scope: Message, receive: Receive) -> bytes | None:
        """The whole body; None where the caller has gone."""
        most, parts, size = self.limits.body, [], 0
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > most:
            raise RefusedRequest(413, "too_large", f"a request may have {most:,} bytes")
        try:
            async with asyncio.timeout(self.limits.arrive):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    size += len(message.get("body", b""))
                    if size > most:
                        raise RefusedRequest(413, "too_large", f"a request may have {most:,} bytes")
                    parts.append(message.get("body", b""))
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise RefusedRequest(408, "too_slow", f"a request must arrive within {self.limits.arrive:g} s") from None

    def _taken(self, send: Send) -> Send:
        async def timed(message: Message) -> None:
            async with asyncio.timeout(self.limits.leave):  # a caller who does not read his answer
                await send(message)

        return timed


def _once(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the whole body, and then what the server says."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Message:
        return left.pop() if left else await receive()

    return give


async def answer(send: Send, refusal: RefusedRequest) -> None:
    """Send a refusal and close the connection, whatever else is on its way on it."""
    body = json.dumps({"error": refusal.error, "detail": refusal.detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class TimedProtocol(H11Protocol):
    """uvicorn's protocol whose silent connections end. One service a process, as uvicorn runs it."""

    limits: ClassVar[Limits] = Limits()
    _by_age: ClassVar[dict[TimedProtocol, None]] = {}
    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._by_age[self] = None
        self._watch()
        if len(self._by_age) > self.limits.connections:
            next((open for open in self._by_age if open.silent), self).transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._by_age.pop(self, None)
        if self._alarm is not None:
            self._alarm.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    @property
    def silent(self) -> bool:
        """Whether no request is being answered on it."""
        return self.cycle is None or self.cycle.response_complete

    def _watch(self) -> None:
        if self.silent and self._alarm is None:
            self._alarm = self.loop.call_later(self.limits.arrive, self._expire)

    def _expire(self) -> None:
        self._alarm = None
        if self.silent:
            self.transport.close()
