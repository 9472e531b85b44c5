"""What a response link says, signed: which request, for whom, until when. Pure."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from http import HTTPStatus

import msgspec

from stepwell.server.problems import RequestRefused


class ResponseLink(msgspec.Struct, frozen=True, array_like=True):
    """Permission to answer one request, as it was asked at one time."""

    run_id: str
    request_id: str
    asked_at: str  # tells it from a later request with the same id
    by: str  # who answers with it
    expires: int  # seconds since 1970


def sign(link: ResponseLink, key: bytes) -> str:
    """Return a link as a token for an address."""
    body = msgspec.json.encode(link)
    return f"{_encode(body)}.{_encode(_signature(body, key))}"


def verify(token: str, key: bytes, now: float) -> ResponseLink:
    """Return what a token says. Raises RequestRefused if it is not ours, or too old."""
    body, _, signature = token.partition(".")
    try:
        signed, given = _decode(body), _decode(signature)
        if not hmac.compare_digest(_signature(signed, key), given):
            raise ValueError
        link = msgspec.json.decode(signed, type=ResponseLink)
    except ValueError:  # also what base64 and msgspec raise
        raise RequestRefused(
            HTTPStatus.NOT_FOUND, "this link is not one of this server", "ask for another link"
        ) from None
    if link.expires < now:
        raise RequestRefused(HTTPStatus.GONE, "this link has expired", "ask for another link")
    return link


def _signature(body: bytes, key: bytes) -> bytes:
    return hmac.digest(key, b"response link\0" + body, "sha256")


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
