"""Readers for stored data: damaged data raises an error that names it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from stepwell.errors import CheckpointCorrupt

T = TypeVar("T")

_SHOWN = 200  # characters of the reason: a hostile text may be of any length


def damage_error(what: object, why: object) -> CheckpointCorrupt:
    """The error for damaged data: what it is, and what is wrong with it."""
    reason = str(why)
    return CheckpointCorrupt(f"{what} is damaged: {reason if len(reason) <= _SHOWN else reason[:_SHOWN] + '…'}")


def decode_stored(decode: Callable[[bytes], T], text: bytes, what: object) -> T:
    """Decode a stored body.

    Raises CheckpointCorrupt, naming `what`, if it does not have the expected shape.
    """
    try:
        return decode(text)
    except RecursionError:
        # The traceback is long and says nothing.
        raise damage_error(what, "it is nested too deep") from None
    except ValueError as error:  # includes msgspec's errors and invalid UTF-8
        raise damage_error(what, error) from error


def read_moment(text: str, what: object) -> datetime:
    """Parse a stored time.

    Raises CheckpointCorrupt, naming `what`, unless it is a time with a time zone.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise damage_error(what, error) from error
    if moment.tzinfo is None:
        raise damage_error(what, f"{text!r} has no time zone")
    return moment
