"""A run that wants to be moved on, as whoever moves runs on sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from stepwell.storage.damage import read_moment
from stepwell.storage.port import Wake


@dataclass(frozen=True, slots=True)
class DueRun:
    """A run that wants to be moved on at a certain time: to work again, or because a question runs out of time."""

    run_id: str
    workflow_name: str
    due_at: datetime


def due_run(stored: Wake) -> DueRun:
    return DueRun(stored.run_id, stored.workflow, read_moment(stored.at, f"when to wake run {stored.run_id!r}"))


def stored_moment(at: datetime) -> str:
    """A moment as stores compare it: UTC, ISO 8601.

    As text such moments sort as in time. Those of a full second lack the fraction, but what comes instead of
    its point is a `+`, which sorts before it.
    """
    if at.tzinfo is None:
        raise ValueError(f"{at} has no time zone; use datetime.now(UTC) + ...")
    return at.astimezone(UTC).isoformat()
