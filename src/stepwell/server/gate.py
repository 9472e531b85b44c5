"""What every request passes before it reaches a route."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepwell.errors import StepwellError
from stepwell.server.identity import Anyone, identify
from stepwell.server.problems import RequestRefused, answer_problem
from stepwell.server.rate_limit import RateLimit
from stepwell.server.services import ServerLimits, Services

_SAFE = ("GET", "HEAD", "OPTIONS")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    # Not no-referrer: with it, browsers send forms of our own pages as if they came from nowhere.
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Gate:
    """Refuses requests for another host, from a foreign page, or too large; identifies callers.

    `hosts` are names, besides those of this machine, under which the server is reached; `origins`
    are other sites whose pages may use it.
    """

    def __init__(self, inner: ASGIApp, services: Services, hosts: Collection[str], origins: Collection[str]) -> None:
        self._inner, self._services = inner, services
        self._hosts, self._origins = frozenset((*LOOPBACK, *hosts)), frozenset(origins)
        self._rate = RateLimit(services.limits.writes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        connection = HTTPConnection(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check_host(connection)
            self._check_origin(connection)
            self._check_reach(connection)
            identity = await identify(self._services.auth, connection)
            scope["stepwell.identity"] = identity
            if scope["method"] not in _SAFE:
                self._rate.take(_address_of(connection) if identity is None else identity.name)
            await self._inner(scope, _limit(receive, connection, self._services.limits), send_with_headers)
        except ClientDisconnect:
            return  # in the middle of its request: there is nobody to answer
        except StepwellError as error:  # of a route, the exception handlers of its application answer first
            await answer_problem(error)(scope, receive, send_with_headers)

    def _check_host(self, connection: HTTPConnection) -> None:
        # Otherwise a page of an attacker could reach this server by a name of its own that leads here.
        host = _host_of(f"//{connection.headers.get('host', '')}")
        if host not in self._hosts and "*" not in self._hosts:
            raise RequestRefused(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this server does not answer for the host {host!r}",
                f"start it with --allow-host {host}, or pass hosts=[{host!r}] to app()",
            )

    def _check_origin(self, connection: HTTPConnection) -> None:
        origin = connection.headers.get("origin")
        if origin is None or origin in self._origins or connection.scope["method"] in _SAFE:
            return
        if origin.partition("://")[2] != connection.headers.get("host"):
            raise RequestRefused(
                HTTPStatus.FORBIDDEN,
                f"a page of {origin!r} may not change anything here",
                f"pass origins=[{origin!r}] to app() if it may",
            )

    def _check_reach(self, connection: HTTPConnection) -> None:
        if isinstance(self._services.auth, Anyone) and not is_loopback(_address_of(connection)):
            raise RequestRefused(
                HTTPStatus.FORBIDDEN,
                "this server has no token, so it answers this machine only",
                "start it with a token, or pass auth= to app()",
            )


def is_loopback(host: str) -> bool:
    """Return whether an address is that of this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host_of(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _address_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client is not None else ""


def _limit(receive: Receive, connection: HTTPConnection, limits: ServerLimits) -> Receive:
    """Return a `receive` that refuses a body of more bytes, and one that takes too long to arrive."""
    refused = RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {limits.body:,} bytes here")
    announced = connection.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limits.body:
        raise refused
    left, is_complete, until = limits.body, False, 0.0

    async def receive_some() -> Message:
        nonlocal left, is_complete, until
        until = until or time.monotonic() + limits.patience
        try:
            # What comes after the body is that the client leaves.
            async with asyncio.timeout(None if is_complete else max(until - time.monotonic(), 0)):
                message = await receive()
        except TimeoutError:
            raise RequestRefused(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the request did not arrive within {limits.patience:g} seconds",
                "send it again",
                headers={"connection": "close"},
            ) from None
        left -= len(message.get("body", b""))
        is_complete = not message.get("more_body", False)
        if left < 0:
            raise refused
        return message

    return receive_some
