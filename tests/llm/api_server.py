"""A local server that speaks OpenAI's protocol as it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[dict[str, Any], dict[str, str]], tuple[int, Any]]


class Server:
    """Answers POSTs by `reply(body, headers) -> (status, answer)` and keeps what came."""

    def __init__(self, reply: Reply):
        self.reply = reply
        self.came: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.now = self.most = 0
        self.lock = threading.Lock()


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with server.lock:
                server.came.append((self.path, body, dict(self.headers)))
                server.now += 1
                server.most = max(server.most, server.now)
            status, answer = server.reply(body, dict(self.headers))
            with server.lock:
                server.now -= 1
            data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    return Handler


@contextmanager
def listening(reply: Reply) -> Iterator[tuple[str, Server]]:
    """The server and its base address; gone when the block ends."""
    server = Server(reply)
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler(server))
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1", server
    finally:
        http.shutdown()
        http.server_close()


def chat(text: str, finish: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish, **more}
    return {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}


def prompt_of(body: dict[str, Any]) -> str:
    return body["messages"][0]["content"] if "messages" in body else body["prompt"]


def echo(body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
    return 200, chat(f"re: {prompt_of(body)}")
