"""Ids that are visible outside a run.

A checkpoint id is derived from the run, its epoch and the number of the commit. Idempotency keys, and
the ids of requests and child runs, are derived from the run, its epoch and the delivery that causes
them. So a retry gets the same ids, and no two runs share one.
"""

from __future__ import annotations

import uuid
from hashlib import sha1

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


def checkpoint_id(run_id: str, epoch: int, number: int) -> str:
    return _derive_id(f"checkpoint/{epoch}/{number}/{run_id}")


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
