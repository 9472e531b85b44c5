"""The writes of a handler to the shared state, one for each key."""

from __future__ import annotations

from typing import Protocol

import msgspec

from stepwell.model.payload import Payload


class Assigned(msgspec.Struct, frozen=True):
    """A write that replaces the value of a state key."""

    value: Payload


class Deleted(msgspec.Struct, frozen=True):
    """A write that removes a state key."""


class Appended(msgspec.Struct, frozen=True):
    """A write that extends the list of a state key."""

    items: tuple[Payload, ...]


Write = Assigned | Deleted | Appended


class Edit(Protocol):
    """A change to part of a value, as `storage` reads it from a delta."""

    def apply_to(self, before: Payload | None) -> Payload:
        """Return the value after the change."""


class Edited(msgspec.Struct, frozen=True):
    """A value of which only the changed part is stored. Handlers never write it; reading a delta gives it."""

    edit: Edit
