"""Each stored text carries a sum of itself and of the place it belongs to: damaged or misplaced, it is refused."""

from __future__ import annotations

from hashlib import sha256

from stepwell.errors import CheckpointCorrupt

_LETTERS = 32  # of the sum, in hexadecimal
_BEGIN, _END, _CLOSE = b'{"sum":"', b'",', b'"}'
_SIZE = len(_BEGIN) + _LETTERS + len(_END)


def add_checksum(text: bytes, place: bytes) -> bytes:
    """A JSON object with the sum of it, and of its place, as its first member."""
    more = _CLOSE if text == b"{}" else _END + text[1:]  # no comma before nothing
    return _BEGIN + _sum(text, place) + more


def verify_checksum(text: bytes, place: bytes, what: str) -> bytes:
    """The object without its sum. Raises CheckpointCorrupt, saying what it is, unless it is as it was written, where
    it was written."""
    plain = b"{}" if text[_SIZE - len(_END) :] == _CLOSE else b"{" + text[_SIZE:]
    if text != add_checksum(plain, place):
        raise CheckpointCorrupt(
            f"{what} is damaged, or was written somewhere else: its sum does not fit; restore it from a backup"
        )
    return plain


def is_summed(text: bytes) -> bool:
    """False for what was written before there were sums."""
    return text.startswith(_BEGIN)


def _sum(text: bytes, place: bytes) -> bytes:
    digest = sha256(place + b"\0")
    digest.update(text)
    return digest.hexdigest()[:_LETTERS].encode()
