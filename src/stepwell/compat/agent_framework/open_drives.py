"""The drives of this process that are not over: a program may have left a stream, and resume its run elsewhere.

That framework lets a program leave a stream in the middle and resume from the latest checkpoint at once, with another
workflow object. The drive that was left still has the lease of the run until its generator is closed, so the new one
takes it over. A drive that somebody waits for is not touched, nor is one of another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from stepwell.engine.drive.drive import Drive
from stepwell.model.event import WorkflowEvent

_LOOKS, _LOOK_EVERY = 25, 0.01  # in seconds
_OPEN: dict[str, AsyncGenerator[WorkflowEvent, None]] = {}  # by run


async def read_events(drive: Drive) -> AsyncGenerator[WorkflowEvent, None]:
    """Yield the events of a drive."""
    async with aclosing(drive.events()) as events:
        try:
            async for event in events:
                if drive.run_id is not None:
                    _OPEN[drive.run_id] = events
                yield event
        finally:
            if drive.run_id is not None and _OPEN.get(drive.run_id) is events:
                del _OPEN[drive.run_id]


async def was_left(run_id: str) -> bool:
    """Return whether a drive of this run was open in this process, and nobody waits for its next event."""
    if run_id not in _OPEN:
        return False
    # One that is being closed ends soon.
    for _ in range(_LOOKS):
        events: Any = _OPEN.get(run_id)
        if events is None or not events.ag_running:
            return True
        await asyncio.sleep(_LOOK_EVERY)
    return False
