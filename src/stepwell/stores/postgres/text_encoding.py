"""Texts as PostgreSQL stores them: it cannot hold a NUL, which is shown as DLE, "data link escape", and 0."""

from __future__ import annotations

from typing import Any


class Escaped(str):
    """A text that is as it is stored already."""

    __slots__ = ()


def escape(text: str) -> str:
    """The text as it is stored; never the same for two texts."""
    if isinstance(text, Escaped):
        return str(text)
    return text.replace("\x10", "\x101").replace("\0", "\x100") if "\0" in text or "\x10" in text else text


def unescape(text: str) -> str:
    """The text that was stored."""
    return text.replace("\x100", "\0").replace("\x101", "\x10") if "\x10" in text else text


def unescape_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(unescape(value) if isinstance(value, str) else value for value in row)
