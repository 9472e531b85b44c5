"""Ids that leave a run: derived from run, epoch and place, so that a retry finds the same and no two runs share one."""

from __future__ import annotations

import uuid

_HOUSE = uuid.UUID("6f1d7a52-94c6-5d0e-8a3b-2f0c61d5e7a4")


def checkpoint_id(run_id: str, epoch: int, number: int) -> str:
    return str(uuid.uuid5(_HOUSE, f"checkpoint/{epoch}/{number}/{run_id}"))


def idempotency_key(run_id: str, epoch: int, delivery: str) -> str:
    return str(uuid.uuid5(_HOUSE, f"delivery/{epoch}/{delivery}/{run_id}"))


def request_id(run_id: str, epoch: int, delivery: str, number: int) -> str:
    return str(uuid.uuid5(_HOUSE, f"request/{epoch}/{delivery}/{number}/{run_id}"))


def child_run_id(run_id: str, epoch: int, delivery: str) -> str:
    """The run that a delivery to a sub-workflow begins: a repetition of the delivery finds it again."""
    return str(uuid.uuid5(_HOUSE, f"child/{epoch}/{delivery}/{run_id}"))


def forked_child_id(run_id: str, epoch: int, child: str) -> str:
    """The fork of a run inside a run, in a fork of that run."""
    return str(uuid.uuid5(_HOUSE, f"forked child/{epoch}/{child}/{run_id}"))


def new_run_id() -> str:
    return str(uuid.uuid4())
