"""The timers of a run, in words. Pure."""

from __future__ import annotations

from stepwell.kernel.timers import list_timers
from stepwell.model.checkpoint import Checkpoint


def timers_of(at: Checkpoint) -> list[tuple[str, str]]:
    """Return each timer in words, with the time at which it is due; the earliest first."""
    timers = []
    for timer in list_timers(at):
        is_own = timer.name in at.timers.get(timer.executor, {})
        words = f"timer {timer.name!r}" if is_own else f"a timer of sub-workflow run {at.children[timer.name].run_id}"
        timers.append((f"{words} of {timer.executor}", timer.due))
    return timers
