"""Timers that handlers set: checks them, and finds those that are due."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta

from stepwell import kernel
from stepwell.engine.durability.superstep_log import time_after
from stepwell.errors import DefinitionError
from stepwell.graph.executor import Executor
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.valid_text import is_text
from stepwell.storage import clock
from stepwell.storage.archive import Archive


def check_timer(executor: Executor, name: object) -> None:
    """Raise unless an executor can have a timer of that name: ValueError, or DefinitionError if nothing handles it."""
    if not isinstance(name, str) or not name or not is_text(name):
        raise ValueError(f"the name of a timer is a non-empty string of valid Unicode, not {name!r}")
    table = executor._handler_table
    if table.choose_timer_handler(name) is not None:
        return
    if executor._is_durable_function:
        raise DefinitionError(
            f"{executor.id!r} is a durable function, which has no timer handlers: wait with ctx.sleep(...), beside a "
            f"question in a task of its own, or pass deadline=... and default=... to ctx.ask"
        )
    named = [repr(handled) for spec in table.timer_specs for handled in spec.timers or ()]
    raise DefinitionError(
        f"{executor.id!r} has no timer handler for {name!r}: it handles {', '.join(named) or 'no timers'}; add a "
        f"@timer_handler({name!r})"
    )


def time_after_delay(delay: float | timedelta) -> str:
    """Return the time a delay from now, as it is stored. Raises ValueError for a delay that is not one."""
    is_number = isinstance(delay, int | float) and not isinstance(delay, bool)
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not (is_number or isinstance(delay, timedelta)) or not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"the delay of a timer is a number of seconds or a timedelta, not below 0; not {delay!r}")
    return time_after(seconds)


def find_due(at: Checkpoint, until: str | None) -> list[kernel.DueTimer]:
    """Return the timers that are due. `until`: of a sub-workflow run, up to which time its caller has woken it.

    A sub-workflow run has no time of its own: its caller decides when it continues, so that a repetition of the call
    finds it in the same place.
    """
    if not at.timers and not at.children:
        return []
    now = until if at.header.caller is not None else clock.stamp()
    return [] if now is None else kernel.find_due(at, now)


async def wait_for_timer(at: Checkpoint, archive: Archive) -> bool:
    """Wait for the next timer of a run that is not stored and has nothing else open: nobody could resume it.

    Returns False if that is not so.
    """
    if at.wake is None or at.requests or archive.is_durable or at.header.caller is not None:
        return False
    await asyncio.sleep(max(0.0, clock.until(at.wake).total_seconds()))
    return True
