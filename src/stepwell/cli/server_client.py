"""A client of `stepwell serve`: what commands use with --server instead of a store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from time import monotonic, sleep
from typing import Any
from urllib.parse import parse_qs, quote, quote_plus, urlencode, urlsplit

import msgspec

from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.secrets import hide
from stepwell.cli.server_errors import TOKEN, make_error
from stepwell.cli.settings import Settings
from stepwell.error_ids import ErrorId

_PATIENCE = 30.0  # seconds
_AWAY = 60.0  # seconds for which a server may be away while a run is followed
_AGAIN = 0.5


class ServerClient:
    """Calls the HTTP API of a server. The address may be the one that `stepwell serve` prints, with its token."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise CommandFailed(
                ErrorId.WRONG_USAGE, "the address of a server is of the form http://HOST:PORT", code=USAGE
            )
        self._base = f"{parts.scheme}://{parts.netloc}{parts.path.removesuffix('/login').rstrip('/')}/api/v1"
        self._token = (parse_qs(parts.query).get("token") or [os.environ.get(TOKEN, "")])[0]
        # In every form in which it may be quoted.
        hide(self._token, quote(self._token), quote_plus(self._token), parts.query)

    def get(self, *path: str, **query: Any) -> dict[str, Any]:
        """Return what an operation answers; parameters that are None are left out."""
        return msgspec.json.decode(self.read(*path, **query), type=dict[str, Any])

    def read(self, *path: str, **query: Any) -> bytes:
        """Return the bytes that an operation answers with."""
        return self._call("GET", path, _query(query), None)

    def post(self, *path: str, query: Mapping[str, Any] | None = None, **body: Any) -> dict[str, Any]:
        """Return what an operation answers that changes something; None is left out, except of `value`."""
        present = {name: value for name, value in body.items() if value is not None or name == "value"}
        return msgspec.json.decode(self._call("POST", path, _query(query or {}), present), type=dict[str, Any])

    def stream(self, *path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the events of a stream; the last, named `end`, says how the run stands.

        A connection that is lost is made again, from the last event on.
        """
        from http.client import HTTPException  # lazy: few commands use a server
        from urllib.error import URLError  # lazy: for the same reason

        last, since = None, monotonic()
        while True:
            try:
                with self._open("GET", path, _query(query), None, last) as answer:
                    for id, name, document in _read_events(answer):
                        last, since = id or last, monotonic()
                        yield {"event": name, **document}
                        if name == "end":
                            return
            except (URLError, OSError, HTTPException) as error:
                if monotonic() - since > _AWAY:
                    raise _no_answer(error) from None
            sleep(_AGAIN)

    def _call(self, method: str, path: tuple[str, ...], query: str, body: Mapping[str, Any] | None) -> bytes:
        from urllib.error import URLError  # lazy: 30 ms, and few commands use a server

        try:
            with self._open(method, path, query, body) as answer:
                content: bytes = answer.read()
                return content
        except (URLError, TimeoutError, ConnectionError) as error:
            raise _no_answer(error) from None

    def _open(
        self, method: str, path: tuple[str, ...], query: str, body: Mapping[str, Any] | None, last: str | None = None
    ) -> Any:
        from urllib.error import HTTPError  # lazy: 30 ms, and few commands use a server
        from urllib.request import Request, urlopen  # lazy: 30 ms, and few commands use a server

        address = f"{self._base}/{'/'.join(quote(part, safe='') for part in path)}{query}"
        request = Request(address, None if body is None else msgspec.json.encode(body), method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", "application/json")
        if last is not None:
            request.add_header("Last-Event-ID", last)
        try:
            return urlopen(request, timeout=_PATIENCE)
        except HTTPError as error:
            raise make_error(error.code, error.read()) from None


def _query(parameters: Mapping[str, Any]) -> str:
    present = {
        # As in JSON, not as in Python.
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in parameters.items()
        if value is not None
    }
    return f"?{urlencode(present, doseq=True)}" if present else ""


def _no_answer(error: Exception) -> CommandFailed:
    return CommandFailed(ErrorId.NO_SERVER, f"the server does not answer: {error}", "is `stepwell serve` running?")


def _read_events(lines: Iterable[bytes]) -> Iterator[tuple[str | None, str, dict[str, Any]]]:
    """Yield the server-sent events of an answer: the id, the name and the data of each."""
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.rstrip(b"\r\n").partition(b": ")
        if name:
            fields[name] = value
        elif b"data" in fields:
            id = fields.get(b"id")
            document = msgspec.json.decode(fields[b"data"], type=dict[str, Any])
            yield None if id is None else id.decode(), fields.get(b"event", b"").decode(), document
            fields = {}


def find_server(*, by: str | None = None) -> ServerClient | None:
    """Return the server that --server names; None if a store is meant.

    Raises CommandFailed if `by` names who does it, too: the server knows who calls.
    """
    address = Settings.current().server
    if address is None:
        return None
    server = ServerClient(address)
    if by is not None:
        raise CommandFailed(
            ErrorId.WRONG_USAGE, "with --server, who does it is the holder of the token", "leave --by out", USAGE
        )
    return server
