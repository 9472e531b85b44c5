"""Waiting inside a superstep: noted first, so that after a restart only the rest is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from ..core.model import Checkpoint, Note, attempt_key
from ..durable import clock
from ..durable.archive import Archive

WAITS_HERE = 60.0  # seconds; whoever has to wait longer is put aside, and holds neither memory nor task
NOT_WORTH_A_NOTE = 1.0  # seconds; after a restart so much may be waited for again


class Parked(BaseException):
    """Nothing can be done before a certain time: the handler is left, and called again then.

    Not an Exception: a handler that catches what goes wrong must not catch this.
    """

    def __init__(self, due: str) -> None:
        self.due = due
        super().__init__(due)


class Notes:
    """The timers and failed attempts of one superstep: those recalled, and those made now."""

    def __init__(self, archive: Archive | None, at: Checkpoint, recalled: Mapping[str, Note]) -> None:
        self._archive, self._at = archive, at
        self._known = dict(recalled)

    def __getitem__(self, key: str) -> Note | None:
        return self._known.get(key)

    def failed(self, delivery: str) -> list[Note]:
        """The attempts at a delivery that failed, oldest first."""
        found: list[Note] = []
        while (note := self._known.get(attempt_key(delivery, len(found) + 1))) is not None:
            found.append(note)
        return found

    async def put(self, key: str, note: Note) -> None:
        """Note something; durable when it returns, if the run is stored."""
        self._known[key] = note
        if self._archive is not None:
            await self._archive.note(self._at.run_id, self._at.place, key, note)

    async def wait(self, due: str) -> None:
        """Wait until a moment. Raises Parked if that is far away and the run can be put aside until then."""
        may_park = self._archive is not None and self._archive.remembers
        while (left := clock.until(due).total_seconds()) > 0:
            if may_park and is_far(due):
                raise Parked(due)
            await asyncio.sleep(min(left, WAITS_HERE))


def is_far(due: str) -> bool:
    """True if a moment is too far away to wait for it with everything in hand."""
    return clock.until(due).total_seconds() > WAITS_HERE


def in_future(seconds: float) -> str:
    return (clock.now() + timedelta(seconds=seconds)).isoformat()
