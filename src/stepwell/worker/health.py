"""Answers those who watch over a worker: is it alive, is it at work, what does it do. Plain HTTP, three addresses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from stepwell.errors import DurabilityError
from stepwell.worker.metrics import Metric, to_prometheus

_PATIENCE = 5.0  # seconds for a request to arrive, and for an answer to leave
_LONGEST = 8192  # bytes of a request


@asynccontextmanager
async def answering(
    host: str, port: int, *, is_ready: Callable[[], bool], metrics: Callable[[], Awaitable[list[Metric]]]
) -> AsyncIterator[int]:
    """Answer GET /live, /ready and /metrics inside the block; yield the port.

    /live says that the event loop works, /ready that the worker looks for runs and reaches its store.
    """

    async def answer(path: str) -> tuple[HTTPStatus, str]:
        match path:
            case "/live":
                return HTTPStatus.OK, "alive\n"
            case "/ready":
                return (HTTPStatus.OK, "ready\n") if is_ready() else (HTTPStatus.SERVICE_UNAVAILABLE, "not ready\n")
            case "/metrics":
                try:
                    return HTTPStatus.OK, to_prometheus(await metrics())
                except DurabilityError as error:
                    return HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n"
        return HTTPStatus.NOT_FOUND, "there are /live, /ready and /metrics\n"

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that is slow, leaves, or sends no HTTP is its own affair.
        with suppress(TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
                status, text = await answer(target.partition("?")[0])
                if method not in ("GET", "HEAD"):
                    status, text = HTTPStatus.METHOD_NOT_ALLOWED, "only GET\n"
                body = text.encode()
                lines = (
                    f"HTTP/1.1 {status.value} {status.phrase}",
                    "Content-Type: text/plain; version=0.0.4; charset=utf-8",
                    f"Content-Length: {len(body)}",
                    "Connection: close",
                )
                writer.write("\r\n".join((*lines, "", "")).encode() + (b"" if method == "HEAD" else body))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, host, port, limit=_LONGEST)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
