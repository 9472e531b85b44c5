"""Runs that are due to be resumed, as users see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from stepwell.storage.checked_reads import read_moment
from stepwell.storage.stored_values import Wake


@dataclass(frozen=True, slots=True)
class DueRun:
    """A run to be resumed at a certain time: its wait is over, or a deadline is reached."""

    run_id: str
    workflow_name: str
    due_at: datetime


def due_run(stored: Wake) -> DueRun:
    return DueRun(stored.run_id, stored.workflow, read_moment(stored.at, f"the wake-up time of run {stored.run_id!r}"))


def stored_moment(at: datetime) -> str:
    """Return a time as stores compare it: UTC, ISO 8601. Raises ValueError if it has no time zone.

    As strings, such times sort chronologically. A time at a full second lacks the fraction, but the
    `+` that follows the seconds instead sorts before the point.
    """
    if at.tzinfo is None:
        raise ValueError(f"{at} has no time zone; pass an aware time such as datetime.now(UTC)")
    return at.astimezone(UTC).isoformat()
