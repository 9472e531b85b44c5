"""Lists of a store in which entries are damaged: those that can be read, and what is wrong with the others.

One damaged entry makes a store refuse the page it is on, and rightly so: a program must not take the
rest for the whole. A person who looks for what can be saved wants to see both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from stepwell.errors import CannotUnseal, CheckpointCorrupt
from stepwell.model.status_words import Standing
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import RunFilter
from stepwell.storage.pending_requests import PendingRequest, with_answers
from stepwell.storage.request_bodies import read_request_body
from stepwell.storage.run_list import RunInfo, run_info
from stepwell.storage.stored_values import RequestEntry, Survey

_SHOWN = 20  # damaged runs on a page: `stepwell doctor` lists all
_KEPT = 20  # times as long as a survey took, it is not repeated


class DamagedEntry(msgspec.Struct, frozen=True):
    """An entry that cannot be read. `run_id` is None if not even that can be."""

    run_id: str | None
    detail: str
    request_id: str | None = None


class KeptSurvey:
    """A survey of all runs of a damaged store, which costs more the more there are: it is kept for a while."""

    def __init__(self, storage: BuiltInStorage) -> None:
        self._storage = storage
        self._survey = Survey()
        self._until = 0.0  # monotonic
        self._surveying = asyncio.Lock()

    async def list_runs(
        self, run_filter: RunFilter, standing: Standing | None, *, past: RunInfo | None, limit: int
    ) -> tuple[list[RunInfo], list[DamagedEntry]]:
        """Return a page of the runs that match and can be read, and the first 20 of all that cannot."""
        survey = await self._read()
        damaged = [DamagedEntry(entry.run_id, entry.why) for entry in survey.damaged]
        runs: list[RunInfo] = []
        for entry in run_filter.page(survey.runs, None if past is None else past._entry, None):
            try:
                run = run_info(entry)
            except CheckpointCorrupt as error:
                damaged.append(DamagedEntry(entry.run_id, str(error)))
            else:
                runs += [run] if standing in (None, run.standing) else []
        return runs[:limit], damaged[:_SHOWN]

    async def _read(self) -> Survey:
        async with self._surveying:
            began = time.monotonic()
            if began >= self._until:
                self._survey = await self._storage._store.survey()
                ended = time.monotonic()
                self._until = ended + _KEPT * (ended - began)
            return self._survey


async def read_each_request(
    storage: BuiltInStorage, entries: Sequence[RequestEntry]
) -> tuple[list[PendingRequest], list[DamagedEntry]]:
    """Return the requests that can be read, and those that cannot."""
    readable: list[PendingRequest] = []
    damaged: list[DamagedEntry] = []
    for entry in entries:
        try:
            verified = storage._guard.verify_request(entry)
            with suppress(CannotUnseal):  # the list says that it is sealed
                read_request_body(verified)  # it is decoded when somebody asks for its data
            readable += await with_answers(storage._store, [verified])
        except CheckpointCorrupt as error:
            damaged.append(DamagedEntry(entry.run_id, str(error), entry.request_id))
    return readable, damaged
