"""Asks the store for the runs that a worker could drive."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import NamedTuple

from msgspec.structs import replace

from stepwell.model.status_words import SIGNALLED
from stepwell.storage import clock
from stepwell.storage.filters import ReadyFilter
from stepwell.storage.port import Store
from stepwell.storage.stored_values import RunEntry

_LOOKED_AT = 200  # ready runs, in search of workflows that nobody here has


class ReadyRuns(NamedTuple):
    """The runs that can be driven now, by priority and then oldest first, and when the next one can be."""

    now: list[RunEntry]
    seconds_to_next: float


async def find_ready(
    store: Store, workflows: Iterable[str], limit: int, horizon: float, *, orphans: bool = True
) -> ReadyRuns:
    """Return the ready runs of these workflows, at most `limit` of each.

    `seconds_to_next` is how long it takes until another run of them becomes due, at most `horizon`.
    """
    now = clock.now()
    moment, until = clock.stored_moment(now), clock.stored_moment(now + timedelta(seconds=horizon))

    async def look(workflow: str) -> tuple[list[RunEntry], list[str]]:
        due_now = ReadyFilter(moment, workflow, resting=SIGNALLED, orphans=orphans)
        soon = await store.ready(replace(due_now, by=until), limit=limit)
        now_ready = list(filter(due_now.matches, soon))
        if len(now_ready) < len(soon) == limit:
            # Runs with a higher priority that are due in a moment may hide others that are due now.
            now_ready = await store.ready(due_now, limit=limit)
        return now_ready, [run.wake for run in soon if run.wake is not None and run.wake > moment]

    looks = await asyncio.gather(*map(look, workflows))
    ready = sorted((run for runs, _ in looks for run in runs), key=ReadyFilter(moment).sort_key)
    next_wake = min((wake for _, later in looks for wake in later), default=until)
    return ReadyRuns(ready, max(0.0, clock.until(next_wake).total_seconds()))


async def find_unserved(store: Store, workflows: Collection[str]) -> list[RunEntry]:
    """Return some of the ready runs that belong to other workflows than these."""
    ready = await store.ready(ReadyFilter(clock.stamp(), resting=SIGNALLED), limit=_LOOKED_AT)
    return [run for run in ready if run.workflow not in workflows]
