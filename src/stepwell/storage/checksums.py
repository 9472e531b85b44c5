"""Checksums: each stored body carries one, over itself and its address."""

from __future__ import annotations

from hashlib import sha256

from stepwell.errors import CheckpointCorrupt

# Half of SHA-256, in hexadecimal: 128 bits detect every accident, and each record pays for them.
_DIGITS = 32
_BEGIN, _END, _CLOSE = b'{"sum":"', b'",', b'"}'
_SIZE = len(_BEGIN) + _DIGITS + len(_END)


def add_checksum(text: bytes, address: bytes) -> bytes:
    """Return a JSON object with a checksum of itself and of its address as its first member.

    The bytes are spliced in, because parsing and writing the object again would cost more than the
    checksum.
    """
    more = _CLOSE if text == b"{}" else _END + text[1:]  # an empty object takes no comma
    return _BEGIN + _checksum(text, address) + more


def verify_checksum(text: bytes, address: bytes, what: str) -> bytes:
    """Return the object without its checksum.

    Raises CheckpointCorrupt, naming `what`, unless the body is unchanged and at its address.
    """
    plain = b"{}" if text[_SIZE - len(_END) :] == _CLOSE else b"{" + text[_SIZE:]
    # Comparing whole bodies, not only the digits, also catches damage in the bytes around them.
    if text != add_checksum(plain, address):
        raise CheckpointCorrupt(
            f"{what} is damaged or in the wrong place: its checksum does not match; restore it from a backup"
        )
    return plain


def has_checksum(text: bytes) -> bool:
    """Return whether a body starts with a checksum; a sealed body has none."""
    return text.startswith(_BEGIN)


def _checksum(text: bytes, address: bytes) -> bytes:
    digest = sha256(address + b"\0")
    digest.update(text)
    return digest.hexdigest()[:_DIGITS].encode()
