"""One HTTP request to a receiver, with limits on time and on what is read.

It is written out: it follows no redirect and reads no more than it shows, which a library that is
made to read answers would have to be kept from.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress

import stepwell
from stepwell.errors import StepwellError
from stepwell.webhooks.destination import Destination

TIMEOUT = 10.0  # seconds for all of a request
_LONGEST_HEAD = 32 * 1024  # bytes
_SHOWN = 200  # characters of an answer in an error
_GONE = 410


class DeliveryFailed(StepwellError):
    """A receiver did not accept a message. `is_gone`: it wants no more of them."""

    def __init__(self, why: str, *, is_gone: bool = False) -> None:
        super().__init__(why)
        self.is_gone = is_gone


async def send(to: Destination, headers: Mapping[str, str], body: bytes, *, timeout: float = TIMEOUT) -> None:
    """Send a message. Raises DeliveryFailed unless the receiver answers with a 2xx in time."""
    try:
        async with asyncio.timeout(timeout):
            status, reason = await _exchange(to, _write_head(to, headers, len(body)) + body)
    except TimeoutError:
        raise DeliveryFailed(f"no answer within {timeout:g} s") from None
    except (OSError, ssl.SSLError) as error:
        raise DeliveryFailed(f"{type(error).__name__}: {error}"[:_SHOWN]) from error
    if 300 <= status < 400:
        reason = f"{reason} (redirects are not followed: change the address)"
    if not 200 <= status < 300:
        raise DeliveryFailed(f"HTTP {status} {reason}".strip(), is_gone=status == _GONE)


def _write_head(to: Destination, headers: Mapping[str, str], size: int) -> bytes:
    host = f"[{to.host}]" if ":" in to.host else to.host
    lines = {
        "Host": host if to.port in (80, 443) else f"{host}:{to.port}",
        "User-Agent": f"stepwell/{stepwell.__version__}",
        "Content-Type": "application/json",
        "Content-Length": str(size),
        "Connection": "close",
        **headers,
    }
    head = [f"POST {to.path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items())]
    return ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")


async def _exchange(to: Destination, request: bytes) -> tuple[int, str]:
    """Return the status of the answer, and a few of its words."""
    context = ssl.create_default_context() if to.is_encrypted else None
    reader, writer = await asyncio.open_connection(to.host, to.port, ssl=context, limit=_LONGEST_HEAD)
    try:
        writer.write(request)
        with suppress(ConnectionError):  # it may have answered before it has read everything
            await writer.drain()
        status = 100
        while 100 <= status < 200:  # those announce another answer
            status = _read_status(await _read_head(reader))
        return status, "" if 200 <= status < 300 else _one_line(await reader.read(4 * _SHOWN))
    finally:
        writer.transport.abort()  # the rest of the answer is not read, and nobody waits for it


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        raise DeliveryFailed("the receiver closed the connection without an answer") from None
    except asyncio.LimitOverrunError:
        raise DeliveryFailed(f"the head of the answer has more than {_LONGEST_HEAD} bytes") from None


def _read_status(head: bytes) -> int:
    version, _, rest = head.partition(b" ")
    digits = rest[:3]
    if not version.startswith(b"HTTP/1.") or len(digits) < 3 or not digits.isdigit():
        raise DeliveryFailed("the answer is not one of HTTP/1.1")
    return int(digits)


def _one_line(text: bytes) -> str:
    words = " ".join(text.decode("utf-8", "replace").split())
    return "".join(letter for letter in words if letter.isprintable())[:_SHOWN]
