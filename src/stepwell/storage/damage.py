"""What is stored and cannot be what was written: named, and never believed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from stepwell.errors import CheckpointCorrupt

T = TypeVar("T")

_SHOWN = 200  # characters of what is wrong: a text made to attack may be of any length


def damage_error(what: str, why: object) -> CheckpointCorrupt:
    """The error for something that is damaged, in words."""
    reason = str(why)
    return CheckpointCorrupt(f"{what} is damaged: {reason if len(reason) <= _SHOWN else reason[:_SHOWN] + '…'}")


def decode_stored(decode: Callable[[bytes], T], text: bytes, what: str) -> T:
    """What a text says. Raises CheckpointCorrupt, saying what it is, if it is not of the shape that `decode` reads."""
    try:
        return decode(text)
    except RecursionError:
        raise damage_error(what, "it is nested too deep") from None  # the way down there is long, and tells nothing
    except ValueError as error:  # of msgspec, too, and of what is no UTF-8
        raise damage_error(what, error) from error


def read_moment(text: str, what: str) -> datetime:
    """A stored moment. Raises CheckpointCorrupt, saying what it is, if it is none with a time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise damage_error(what, error) from error
    if moment.tzinfo is None:
        raise damage_error(what, f"{text!r} has no time zone")
    return moment
