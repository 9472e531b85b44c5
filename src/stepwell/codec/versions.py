"""A class that changed: the version it is stored as, and how what an older one stored becomes today's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepwell.codec.traversal import Refused, shorten

Upcast = Callable[[Any], Any]
"""From what one version stored (the fields; of an enum, its name or number) to what the next would have."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The version of a class in this program, and the way to it from each before."""

    current: int = 1
    upcast: Mapping[int, Upcast] = field(default_factory=dict)

    def head(self, tag: str) -> dict[str, Any]:
        """How the object of an instance begins. The first version is not said, so most objects are short."""
        return {"$": tag} if self.current == 1 else {"$": tag, "n": self.current}

    def upgrade(self, tree: dict[str, Any], stored: Any, name: str) -> Any:
        """What was stored, as the version of today would have stored it; or refuse."""
        version = tree.get("n", 1)
        if version == self.current and type(version) is int:
            return stored
        if type(version) is not int or version < 1:
            raise Refused(f"`n` should be the version of `{name}` that was stored, and is something else")
        if version > self.current:
            raise Refused(
                f"version {shorten(version)} of `{name}` is stored, and this program knows it up to version "
                f"{self.current}: read it with the newer program"
            )
        for step in range(version, self.current):
            stored = self._upgrade_once(step, stored, name)
        return stored

    def _upgrade_once(self, version: int, stored: Any, name: str) -> Any:
        upcast = self.upcast.get(version)
        if upcast is None:
            raise Refused(
                f"version {version} of `{name}` is stored, and nothing says how it becomes version {version + 1}: "
                f"register `{name}` with upcast={{{version}: ...}}"
            )
        kind = type(stored)
        try:
            upgraded = upcast(stored)
        except Exception as error:  # whatever the function of a user raises
            raise Refused(
                f"version {version} of `{name}` could not be made version {version + 1}: "
                f"{type(error).__name__}: {shorten(error)}"
            ) from error
        if type(upgraded) is not kind:
            raise Refused(
                f"version {version} of `{name}` could not be made version {version + 1}: the function should give "
                f"a `{kind.__name__}`, and gave a `{type(upgraded).__name__}`"
            )
        return upgraded


FIRST = Versions()
"""Of a class that nobody gave a version."""
