"""Signatures of messages, as the specification Standard Webhooks has them.

A message is signed with every secret of its webhook, so a receiver that knows one of two accepts it
while a secret is replaced.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence

from stepwell.errors import StepwellError
from stepwell.storage import clock

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TOLERANCE = 300.0  # seconds between the clocks of sender and receiver
_PREFIX, _VERSION = "whsec_", "v1,"
_LEAST, _MOST = 24, 64  # bytes of a secret


class BadSignature(StepwellError):
    """The signature of a message is wrong, or was not made just now."""


def make_secret() -> str:
    """Return a new secret."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def read_secret(secret: str) -> bytes:
    """Return the key in a secret. Raises ValueError, without showing it, if it is not one."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not _LEAST <= len(key) <= _MOST:
        raise ValueError(f"a secret is {_LEAST} to {_MOST} random bytes in base64, after {_PREFIX!r}")
    return key


def sign(message_id: str, body: bytes, keys: Sequence[str], at: int) -> dict[str, str]:
    """Return the headers of a message, with a signature by each secret."""
    signatures = [_VERSION + _sign(message_id, body, secret, str(at)) for secret in keys]
    return {ID: message_id, TIMESTAMP: str(at), SIGNATURE: " ".join(signatures)}


def verify_signature(
    body: bytes, headers: Mapping[str, str], keys: str | Sequence[str], *, tolerance: float = TOLERANCE
) -> str:
    """Return the id of a message that was signed with one of these secrets, for a receiver.

    Pass two secrets while you replace one. A message may come again: its id is then the same. Raises
    BadSignature if the signature is wrong, or was made more than `tolerance` seconds ago.
    """
    lowercase = {name.lower(): value for name, value in headers.items()}
    message_id, at = lowercase.get(ID, ""), lowercase.get(TIMESTAMP, "")
    if not at.isascii() or not at.isdigit() or abs(int(at[:20]) - clock.seconds()) > tolerance:
        raise BadSignature(f"the message {message_id!r} has no time, or one that is too far from now: {at!r}")
    # As bytes: `compare_digest` raises for strings that are not ASCII.
    signatures = lowercase.get(SIGNATURE, "").encode().split(b" ")
    for secret in [keys] if isinstance(keys, str) else keys:
        expected = (_VERSION + _sign(message_id, body, secret, at)).encode()
        if any(hmac.compare_digest(expected, signature) for signature in signatures):
            return message_id
    raise BadSignature(f"the signature of the message {message_id!r} does not match; is the secret the right one?")


def _sign(message_id: str, body: bytes, secret: str, at: str) -> str:
    content = f"{message_id}.{at}.".encode() + body
    return base64.b64encode(hmac.digest(read_secret(secret), content, hashlib.sha256)).decode()
