"""Texts as PostgreSQL stores them: it cannot hold a NUL, which is shown as DLE, "data link escape", and 0."""

from __future__ import annotations

from typing import Any


class Shown(str):
    """A text that is as it is stored already."""

    __slots__ = ()


def shown(text: str) -> str:
    """The text as it is stored; never the same for two texts."""
    if isinstance(text, Shown):
        return str(text)
    return text.replace("\x10", "\x101").replace("\0", "\x100") if "\0" in text or "\x10" in text else text


def meant(text: str) -> str:
    """The text that was stored."""
    return text.replace("\x100", "\0").replace("\x101", "\x10") if "\x10" in text else text


def all_meant(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(meant(value) if isinstance(value, str) else value for value in row)
