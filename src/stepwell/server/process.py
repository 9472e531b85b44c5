"""Serves the application with uvicorn, in this process."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from stepwell.errors import DefinitionError
from stepwell.server.gate import is_loopback
from stepwell.server.identity import Anyone
from stepwell.server.services import Services

_GRACE = 5  # seconds that answers under way have when the server stops


def bind(host: str, port: int, services: Services) -> socket.socket:
    """Return a socket that listens; port 0 is a free one.

    Raises DefinitionError if others than this machine could reach a server that lets anyone in.
    """
    if isinstance(services.auth, Anyone) and not is_loopback(host):
        raise DefinitionError(
            f"a server without a token must not be reached from other machines, and {host!r} can be; "
            f"give it a token, or an auth= of your own, or bind it to 127.0.0.1"
        )
    config = uvicorn.Config(_no_app, host=host, port=port, log_level="warning")
    listener = config.bind_socket()
    # Connections inherit it. Without it the end of each answer waits 40 ms for the client to confirm its beginning:
    # asyncio sets it only for sockets that were made for TCP by name, and this one was not.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def serve(application: Starlette, listener: socket.socket, on_start: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT. Streams are cut off then, and come back with their cursors."""
    services: Services = application.state.services
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=_GRACE,
        # Clients connect to this process; a proxy in front is believed if it runs on this machine.
        proxy_headers=False,
    )
    await _Server(config, services, on_start).serve([listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, services: Services, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._services, self._on_start = services, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not that of uvicorn: it raises the signal again when all is done, and a good end looks like a crash.
        self.force_exit = self.should_exit
        self.should_exit = True
        # Otherwise the server would wait for them: they never end by themselves.
        self._services.streams.end_all()


async def _no_app(*_: object) -> None:
    raise AssertionError("only the address of this configuration is used")
