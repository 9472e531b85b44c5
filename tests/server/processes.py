"""Servers in processes of their own, and clients that come back to them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

TOKEN = "a token of the tests"
HEADERS = {"authorization": f"Bearer {TOKEN}"}


class ServerProcess:
    """`stepwell serve`, which a test may kill and start again at the same port."""

    def __init__(self, store: str, *options: str) -> None:
        self._store, self._options, self._port = store, options, "0"
        self.address = ""
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "stepwell.cli", "serve", "--store", self._store, "--token", TOKEN]
        self._process = subprocess.Popen(
            [*command, "--port", self._port, *self._options], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "/login?token=" in line, "the server did not start"
        self.address = line.partition("/login")[0]
        self._port = self.address.rpartition(":")[2]

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def stop(self) -> int:
        """End it as a service manager does; return its exit code."""
        self._process.terminate()
        return self._end()

    def _end(self) -> int:
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._process.wait(20)


@contextmanager
def server(store: str, *options: str) -> Iterator[ServerProcess]:
    process = ServerProcess(store, *options)
    try:
        yield process
    finally:
        process.kill()


async def stream_once(address: str, path: str, last: str | None) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a stream until the connection ends, each with its id."""
    headers = HEADERS if last is None else {**HEADERS, "last-event-id": last}
    async with (
        httpx.AsyncClient(timeout=httpx.Timeout(20)) as client,
        client.stream("GET", address + path, headers=headers) as response,
    ):
        response.raise_for_status()
        event: dict[str, Any] = {}
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if not line and "data" in event:
                yield {**event, "data": msgspec.json.decode(event["data"])}
                event = {}
            elif line and name:
                event[name] = value


async def stream_to_the_end(addresses: list[str], path: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a run until its end; after each break, go to the next of the servers, with the cursor."""
    last, turn = None, 0
    while True:
        try:
            async for event in stream_once(addresses[turn % len(addresses)], path, last):
                yield event
                last = event["id"]
                if event["event"] == "end":
                    return
        except httpx.HTTPError:
            await asyncio.sleep(0.05)
        turn += 1
