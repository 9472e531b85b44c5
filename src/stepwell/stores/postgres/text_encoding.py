"""Escaping of strings for PostgreSQL, which cannot store a NUL.

A NUL becomes DLE ("data link escape", 0x10) and "0"; a DLE becomes DLE and "1".
"""

from __future__ import annotations

from typing import Any


class Escaped(str):
    """A string that is escaped already."""

    __slots__ = ()


def escape(text: str) -> str:
    """Return the string as it is stored, different for different strings."""
    if isinstance(text, Escaped):
        return str(text)
    return text.replace("\x10", "\x101").replace("\0", "\x100") if "\0" in text or "\x10" in text else text


def unescape(text: str) -> str:
    """Return the original of a stored string."""
    return text.replace("\x100", "\0").replace("\x101", "\x10") if "\x10" in text else text


def unescape_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row with all its strings unescaped."""
    return tuple(unescape(value) if isinstance(value, str) else value for value in row)
