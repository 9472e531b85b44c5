"""A sub-workflow run as its caller knows it."""

from __future__ import annotations

import msgspec


class Child(msgspec.Struct, frozen=True):
    """A sub-workflow run that waits for responses or for a timer, and the commit at which it waits."""

    run_id: str
    executor: str
    checkpoint_id: str
    number: int
    # The run, and its epoch, that started it. A fork of that run, or the same run after a restore,
    # must not move this one, so it makes a fork of it.
    caller: str
    wake: str | None = None  # when its next timer is due

    @staticmethod
    def caller_of(run_id: str, epoch: int) -> str:
        return f"{epoch}/{run_id}"
