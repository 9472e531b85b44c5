"""Timers: which are set, which are due, and when the next is.

A sub-workflow run that rests with a timer counts as one of its caller, which resumes it then.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from stepwell.model.checkpoint import Checkpoint
from stepwell.model.child import Child

Timers = Mapping[str, Mapping[str, str]]
"""By executor and name: when it is due."""

TimerChanges = Mapping[str, Mapping[str, str | None]]
"""By executor and name: when it is due; None: it is not set any more."""


class DueTimer(msgspec.Struct, frozen=True):
    """A timer that is set; or a sub-workflow run with one, under the key of that run."""

    executor: str
    name: str
    due: str


def change_timers(before: Timers, changes: TimerChanges) -> dict[str, dict[str, str]]:
    """Return the timers that are set after some changes."""
    timers = {executor: dict(by_name) for executor, by_name in before.items()}
    for executor, by_name in changes.items():
        changed = {**timers.get(executor, {}), **by_name}
        timers[executor] = {name: due for name, due in changed.items() if due is not None}
    return {executor: by_name for executor, by_name in timers.items() if by_name}


def next_timer(timers: Timers, children: Mapping[str, Child]) -> str | None:
    """Return when the first timer is due, those of sub-workflow runs included; None if none is set."""
    times = [due for by_name in timers.values() for due in by_name.values()]
    times += [child.wake for child in children.values() if child.wake is not None]
    return min(times, key=datetime.fromisoformat, default=None)


def find_due(at: Checkpoint, now: str) -> list[DueTimer]:
    """Return the timers that are due, the earliest first."""
    moment = datetime.fromisoformat(now)
    return [timer for timer in list_timers(at) if datetime.fromisoformat(timer.due) <= moment]


def list_timers(at: Checkpoint) -> list[DueTimer]:
    """Return the timers that are set, the earliest first."""
    timers = [DueTimer(executor, name, due) for executor, by_name in at.timers.items() for name, due in by_name.items()]
    timers += [DueTimer(c.executor, key, c.wake) for key, c in at.children.items() if c.wake is not None]
    return sorted(timers, key=lambda timer: (datetime.fromisoformat(timer.due), timer.executor, timer.name))
