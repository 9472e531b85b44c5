"""Classes that changed: the version a class is stored as, and how older versions are upgraded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepwell.codec.traversal import Refused, shorten

Upcast = Callable[[Any], Any]
"""Turns what one version stored (the fields; for an enum, its name or number) into that of the next."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The current version of a class in this program, and the upcasts that lead to it."""

    current: int = 1
    upcast: Mapping[int, Upcast] = field(default_factory=dict)

    def head(self, tag: str) -> dict[str, Any]:
        """Return the first keys of an instance's object; version 1 is left out to keep most objects short."""
        return {"$": tag} if self.current == 1 else {"$": tag, "n": self.current}

    def upgrade(self, tree: dict[str, Any], stored: Any, name: str) -> Any:
        """Return the stored data in the shape of the current version, or raise Refused."""
        version = tree.get("n", 1)
        # the type is part of the check because True == 1 and 1.0 == 1
        if version == self.current and type(version) is int:
            return stored
        if type(version) is not int or version < 1:
            raise Refused(f"`n`, the stored version of `{name}`, is not a positive integer")
        if version > self.current:
            raise Refused(
                f"`{name}` was stored as version {shorten(version)}, but this program knows it only up to version "
                f"{self.current}: read it with the newer program"
            )
        for step in range(version, self.current):
            stored = self._upgrade_once(step, stored, name)
        return stored

    def _upgrade_once(self, version: int, stored: Any, name: str) -> Any:
        upcast = self.upcast.get(version)
        if upcast is None:
            raise Refused(
                f"version {version} of `{name}` is stored, but it has no upcast to version {version + 1}: "
                f"register `{name}` with upcast={{{version}: ...}}"
            )
        kind = type(stored)
        try:
            upgraded = upcast(stored)
        except Exception as error:  # a user's function may raise anything
            raise Refused(
                f"the upcast of `{name}` from version {version} to {version + 1} failed: "
                f"{type(error).__name__}: {shorten(error)}"
            ) from error
        if type(upgraded) is not kind:
            raise Refused(
                f"the upcast of `{name}` from version {version} to {version + 1} must return "
                f"a `{kind.__name__}`, but returned a `{type(upgraded).__name__}`"
            )
        return upgraded


FIRST = Versions()
"""The versions of a class that was registered without any, or not at all. Compared by identity."""
