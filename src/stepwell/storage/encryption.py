"""Sealing: what is stored can be read only with a key, and only where it was written."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell.errors import CannotUnseal

_NONCE = 12  # bytes


class _Body(msgspec.Struct):
    key: str
    nonce: str
    text: str


class _SealedEnvelope(msgspec.Struct):
    sealed: _Body


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_SealedEnvelope).decode


class Seal:
    """Keys for a storage: everything in its runs is encrypted with AES-GCM, bound to its run and place.

    `keys` maps names to keys of 16, 24 or 32 random bytes. New records are sealed with the key called `current`;
    the others are there to read what was sealed before, so that a key can be changed. What a storage lists without
    reading runs (names, ids, states, times, and the types and schemas of open questions) is not sealed.
    Needs the package `cryptography`: pip install stepwell[seal].
    """

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
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

    def close(self, text: bytes, place: bytes) -> bytes:
        """A JSON object that says the text to whoever has the key."""
        nonce = os.urandom(_NONCE)
        closed = self._ciphers[self._current].encrypt(nonce, text, place)
        return _encode(_SealedEnvelope(_Body(self._current, _text(nonce), _text(closed))))

    def open(self, text: bytes, place: bytes, what: str) -> bytes:
        """The text. Raises CannotUnseal, saying what it is, unless it was sealed for this place."""
        from cryptography.exceptions import InvalidTag

        try:
            body = _decode(text).sealed
            nonce, closed = (base64.b64decode(part, validate=True) for part in (body.nonce, body.text))
        except (ValueError, RecursionError) as error:  # of msgspec and of base64, too
            raise CannotUnseal(f"{what} is not sealed, or is damaged, and this storage reads only what is") from error
        if body.key not in self._ciphers:
            raise CannotUnseal(f"{what} was sealed with the key {body.key!r}, which was not given")
        try:
            opened: bytes = self._ciphers[body.key].decrypt(nonce, closed, place)
        except (InvalidTag, ValueError) as error:
            raise CannotUnseal(
                f"{what} cannot be opened: it is damaged, was sealed for another place, or with another key"
            ) from error
        return opened

    def __repr__(self) -> str:  # a key must not end up in a log
        return f"<Seal, keys {sorted(self._ciphers)}, current {self._current!r}>"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
