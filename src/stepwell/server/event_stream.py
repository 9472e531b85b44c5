"""Event streams (server-sent events): history from a cursor, then what any process commits.

A stream pulls: the next commit is read when the one before it is sent, so nothing piles up here. A
client that does not read fills the buffers of the connection, and is cut off; one that comes back
with the id of the last event that it saw (`Last-Event-ID`) gets those that follow, without gap and
without repeat, from any server on the same store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stepwell.server.open_streams import OpenStreams
from stepwell.server.services import ServerLimits


@dataclass(frozen=True, slots=True)
class StreamItem:
    """One event of a stream. Live ones have no id: they cannot be asked for again."""

    name: str
    data: dict[str, Any]
    id: str | None

    def encode(self) -> bytes:
        # JSON on one line: encoded strings hold no line break. Names of live events come from handlers, and
        # another line of such a name would be another field, or another event.
        name = " ".join(self.name.splitlines())
        lines = [f"event: {name}".encode(), b"data: " + msgspec.json.encode(self.data)]
        if self.id is not None:
            lines.insert(0, f"id: {self.id}".encode())
        return b"\n".join((*lines, b"", b""))


class EventStream(Response):
    """The answer that sends events as they come, with a sign of life while there are none."""

    media_type = "text/event-stream"

    def __init__(
        self, items: AsyncGenerator[StreamItem, None], caller: str, streams: OpenStreams, limits: ServerLimits
    ) -> None:
        self._items, self._caller, self._streams, self._limits = items, caller, streams, limits
        # A proxy must neither keep nor hold back what is sent.
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._items):
            sending = asyncio.create_task(self._send_all(send))
            leaving = asyncio.create_task(_wait_for_disconnect(receive))
            with self._streams.counting(self._caller, sending):
                try:
                    await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in (sending, leaving):
                        task.cancel()
                    await asyncio.wait((sending, leaving))
        # Cut off: the server stops, or the client does not read. Its cursor is in its hands.
        if not sending.cancelled() and (error := sending.exception()) is not None and not isinstance(error, OSError):
            raise error

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        # Without a first byte some clients do not know that they are connected.
        await self._send(send, b": connected\n\n")
        async with aclosing(with_heartbeats(self._items, self._limits.heartbeat)) as items:
            async for item in items:
                await self._send(send, b": still here\n\n" if item is None else item.encode())
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, chunk: bytes) -> None:
        # TimeoutError is an OSError: a client that is too slow is one that has left.
        async with asyncio.timeout(self._limits.patience):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def with_heartbeats(
    items: AsyncGenerator[StreamItem, None], every: float
) -> AsyncGenerator[StreamItem | None, None]:
    """Yield items as they come; None whenever there was none for so many seconds."""
    coming: asyncio.Future[StreamItem] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(items))
            await asyncio.wait((coming,), timeout=every)
            if not coming.done():
                yield None
                continue
            done, coming = coming, None
            try:
                item = done.result()
            except StopAsyncIteration:
                return
            yield item
    finally:
        if coming is not None:
            coming.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await coming


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
