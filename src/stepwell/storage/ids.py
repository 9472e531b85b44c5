"""Ids that are visible outside a run.

A checkpoint id is derived from the run, its epoch and the number of the commit. Idempotency keys, and
the ids of requests and child runs, are derived from the run, its epoch and the delivery that causes
them. So a retry gets the same ids, and no two runs share one.

A checkpoint id also says where it is: it is a UUID (version 8) made of a hash of the run id, the
number of the commit and a check. So a store finds it by the hash of its run, which is indexed once
per run, and needs no index over all checkpoints that every commit would have to update:

    3fa80007-91c2-8d5e-8000-b7f05e21a9c4
    rrrrnnnn-rrrr-8rrr-vnnn-rrrrcccccccc    r: run, n: number (low digits first), c: check
"""

from __future__ import annotations

import re
import uuid
from functools import lru_cache
from hashlib import sha1
from typing import NamedTuple

from stepwell.model.commit import Stamp
from stepwell.storage import clock
from stepwell.storage.stored_values import Entry

# Part of the format: another namespace would give every stored run new ids and idempotency keys.
_NAMESPACE = uuid.UUID("6f1d7a52-94c6-5d0e-8a3b-2f0c61d5e7a4")
_NAMESPACE_BYTES = _NAMESPACE.bytes


def _derive_id(name: str) -> str:
    """Return `str(uuid.uuid5(_NAMESPACE, name))`, only faster: every commit needs it."""
    h = sha1(_NAMESPACE_BYTES + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(h[16], 16) & 3]
    return f"{h[:8]}-{h[8:12]}-5{h[13:16]}-{variant}{h[17:20]}-{h[20:32]}"


# The run id comes last in every name: it may contain slashes, and what is before it has a fixed
# form, so no two names are equal by accident.


def new_stamp(run_id: str, epoch: int, number: int) -> Stamp:
    """Return the id and the time of a commit that is made now."""
    return Stamp(checkpoint_id(run_id, epoch, number), clock.stamp())


def checkpoint_id(run_id: str, epoch: int, number: int) -> str:
    name = f"checkpoint/{epoch}/{number}/{run_id}"
    check = sha1(_NAMESPACE_BYTES + name.encode(), usedforsecurity=False).hexdigest()
    return _location_digits(run_id, number) + check[:8]


class CheckpointLocation(NamedTuple):
    """Where a checkpoint is, as its id says."""

    run_hash: int
    number: int


_CHECKPOINT_ID = re.compile(
    "([0-9a-f]{4})([0-9a-f]{4})-([0-9a-f]{4})-8([0-9a-f]{3})-8([0-9a-f]{3})-([0-9a-f]{4})[0-9a-f]{8}"
)

_CHECK_DIGITS = re.compile("[0-9a-f]{8}")
_NUMBERS = 1 << 28  # as many as the digits of an id can tell apart


def location_of(checkpoint_id: str) -> CheckpointLocation | None:
    """Return where a checkpoint must be if it is stored; None if its id was not made here."""
    match = _CHECKPOINT_ID.fullmatch(checkpoint_id)
    if match is None:
        return None
    r1, low, r2, r3, high, r4 = match.groups()
    return CheckpointLocation(int(r1 + r2 + r3 + r4, 16), int(high + low, 16))


def says_its_location(entry: Entry) -> bool:
    """Return whether the id of a checkpoint leads to it: not one that was saved by hand or renamed."""
    id, digits = entry.checkpoint_id, _location_digits(entry.run_id, entry.number)
    return entry.number < _NUMBERS and id.startswith(digits) and _CHECK_DIGITS.fullmatch(id, len(digits)) is not None


@lru_cache(maxsize=64)  # a commit needs it twice: its id is made, and looked at when it is stored
def _location_digits(run_id: str, number: int) -> str:
    """Return the part of a checkpoint id that says where the checkpoint is: all but the check."""
    h = _run_digits(run_id)
    # The variant bits of a UUID leave two bits of the digit free; they are not used.
    return f"{h[:4]}{number & 0xFFFF:04x}-{h[4:8]}-8{h[8:11]}-8{number >> 16 & 0xFFF:03x}-{h[11:15]}"


def run_hash(run_id: str) -> int:
    """Return the hash of a run id that is part of the ids of its checkpoints: 60 bits."""
    return int(_run_digits(run_id), 16)


_LEADING_DIGITS = 4  # of the hash, at the start of a checkpoint id


def run_hashes_for(prefix: str) -> tuple[int, int] | None:
    """Return the range [from, to) of the hashes of runs whose checkpoint ids may start with `prefix`.

    None if no id that was made here starts with it.
    """
    digits = prefix[:_LEADING_DIGITS]
    if not re.fullmatch("[0-9a-f]*", digits):
        return None
    free = 4 * (15 - len(digits))  # bits of the hash that the prefix leaves open
    first = int(digits or "0", 16)
    return first << free, first + 1 << free


@lru_cache(maxsize=1024)  # every commit of a run needs it
def _run_digits(run_id: str) -> str:
    return sha1(_NAMESPACE_BYTES + b"run/" + run_id.encode(), usedforsecurity=False).hexdigest()[:15]


def idempotency_key(run_id: str, epoch: int, delivery: str) -> str:
    return _derive_id(f"delivery/{epoch}/{delivery}/{run_id}")


def request_id(run_id: str, epoch: int, delivery: str, number: int) -> str:
    return _derive_id(f"request/{epoch}/{delivery}/{number}/{run_id}")


def child_run_id(run_id: str, epoch: int, delivery: str) -> str:
    """Return the id of the run that a delivery starts; a repeated delivery finds it again."""
    return _derive_id(f"child/{epoch}/{delivery}/{run_id}")


def forked_child_id(run_id: str, epoch: int, child: str) -> str:
    """Return the id of the copy of a child run that belongs to a fork of its caller."""
    return _derive_id(f"forked child/{epoch}/{child}/{run_id}")


def new_run_id() -> str:
    return str(uuid.uuid4())
