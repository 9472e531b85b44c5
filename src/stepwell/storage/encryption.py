"""Encryption at rest: a sealed text can be read only with its key, and only in its own place."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell.errors import CannotUnseal

_NONCE = 12  # bytes, the size that AES-GCM is made for


class _Body(msgspec.Struct):
    key: str
    nonce: str
    text: str


class _SealedEnvelope(msgspec.Struct):
    sealed: _Body


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_SealedEnvelope).decode


class Seal:
    """Keys for a storage: its runs are encrypted with AES-GCM, and bound to their address.

    `keys` maps names to keys of 16, 24 or 32 random bytes. New records are sealed with the key
    named `current`; the others read older records, so keys can be rotated. What a storage lists
    without reading runs (names, ids, states, times, and the types and schemas of open requests) is
    not sealed. Needs the package `cryptography`: pip install stepwell[seal].
    """

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        # An optional dependency, imported when a key is used: programs without one need not have
        # it.
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # lazy: cryptography may not be installed
        except ImportError as error:
            raise ImportError("sealing needs the package `cryptography`: pip install stepwell[seal]") from error
        if current not in keys:
            raise ValueError(
                f"the current key {current!r} is not among the keys: {', '.join(map(repr, keys)) or 'none'}"
            )
        for name, key in keys.items():
            if not isinstance(key, bytes) or len(key) not in (16, 24, 32):
                raise ValueError(f"the key {name!r} must be 16, 24 or 32 bytes, such as os.urandom(32)")
        self._ciphers: dict[str, Any] = {name: AESGCM(key) for name, key in keys.items()}
        self._current = current

    def encrypt(self, text: bytes, address: bytes) -> bytes:
        """Return a JSON object with the encrypted text. `address` is authenticated with it."""
        # Random, because several processes encrypt with one key and cannot share a counter.
        nonce = os.urandom(_NONCE)
        closed = self._ciphers[self._current].encrypt(nonce, text, address)
        return _encode(_SealedEnvelope(_Body(self._current, _text(nonce), _text(closed))))

    def decrypt(self, text: bytes, address: bytes, what: object) -> bytes:
        """Return the decrypted text.

        Raises CannotUnseal, naming `what`, unless it was sealed for this address.
        """
        # Loaded already: `__init__` has needed the package.
        from cryptography.exceptions import InvalidTag  # lazy: cryptography may not be installed

        try:
            body = _decode(text).sealed
            nonce, closed = (base64.b64decode(part, validate=True) for part in (body.nonce, body.text))
        except (ValueError, RecursionError) as error:  # includes errors of msgspec and base64
            raise CannotUnseal(
                f"{what} is not sealed, or is damaged; a storage with a seal reads only sealed data"
            ) from error
        if body.key not in self._ciphers:
            raise CannotUnseal(f"{what} was sealed with the key {body.key!r}, which is not among the keys of this Seal")
        try:
            opened: bytes = self._ciphers[body.key].decrypt(nonce, closed, address)
        except (InvalidTag, ValueError) as error:
            raise CannotUnseal(
                f"{what} cannot be decrypted: it is damaged, in the wrong place, or was sealed with another key"
            ) from error
        return opened

    def __repr__(self) -> str:  # without the keys, which must not end up in a log
        return f"<Seal, keys {sorted(self._ciphers)}, current {self._current!r}>"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
