"""Which addresses a webhook may send to."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Destination:
    """The parts of an address that a request is made from."""

    host: str
    port: int
    path: str  # with the query
    is_encrypted: bool


def parse_destination(url: str, *, allow_http: bool = False) -> Destination:
    """Return the parts of an address.

    Raises ValueError unless it is an https address, or an http one of this machine; any http one, with
    `allow_http`.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is not an address: {error}") from error
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or any(c.isspace() for c in url):
        raise ValueError(f"{url!r} is not an address of the form https://host/path, in ASCII")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"the address of a webhook on {host!r} holds a user or password, which would be sent in plain text; the "
            f"receiver knows us by the signature"
        )
    if parts.scheme == "http" and not allow_http and not _is_loopback(host):
        raise ValueError(
            f"{url!r} is not encrypted: anybody on the way could read the questions of your runs; use https, or allow "
            f"http (--allow-http)"
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    is_encrypted = parts.scheme == "https"
    return Destination(host, port or (443 if is_encrypted else 80), path, is_encrypted)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
