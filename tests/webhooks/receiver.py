"""A receiver of webhooks: a real HTTP server that can fail, hang, go away and come back."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stepwell.webhooks import verify_signature


class Receiver:
    """What was received, and how the next requests are answered."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []  # those that were accepted
        self.attempts: list[dict[str, Any]] = []  # all
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.answer: Callable[[dict[str, Any]], int] = lambda message: 200
        self.extra: dict[str, str] = {}
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?from=stepwell"

    def wait_for(self, count: int, seconds: float = 20) -> list[dict[str, Any]]:
        until = time.monotonic() + seconds
        while len(self.messages) < count and time.monotonic() < until:
            time.sleep(0.02)
        return self.messages

    def types(self) -> list[str]:
        return [message["type"] for message in self.messages]

    def verify_all(self, *secrets: str) -> None:
        for headers, body in zip(self.headers, self.bodies, strict=True):
            assert verify_signature(body, headers, secrets) == json.loads(body)["id"]


@contextmanager
def receiving(receiver: Receiver) -> Iterator[Receiver]:
    """Receive inside the block, at the same port each time."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            message = json.loads(body)
            receiver.attempts.append(message)
            receiver.headers.append(dict(self.headers.items()))
            receiver.bodies.append(body)
            status = receiver.answer(message)
            if status == 200:
                receiver.messages.append(message)
            self.send_response(status)
            for name, value in receiver.extra.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"what happened \x1b[31m here")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", receiver.port), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
