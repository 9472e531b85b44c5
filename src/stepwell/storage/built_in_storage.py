"""What every built-in storage is: the six methods, on top of a store.

What is known without reading a body is found here. Whatever makes checkpoints of bodies is in `checkpoint_bodies`,
which is loaded when the first one is needed: a list of runs needs no codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Self, cast

from stepwell.errors import DefinitionError
from stepwell.model.event import WorkflowRunState
from stepwell.model.superstep import Retention, is_text
from stepwell.storage import clock
from stepwell.storage.checkpoint_list import list_entries
from stepwell.storage.due_runs import DueRun, due_run, stored_moment
from stepwell.storage.integrity import Sealing, VerifiedStore
from stepwell.storage.lease import LEASE, validate_lease
from stepwell.storage.port import RunFilter, Store
from stepwell.storage.run_list import RunInfo, run_info

if TYPE_CHECKING:
    from stepwell.codec.codec import Codec
    from stepwell.model.event import WorkflowEvent
    from stepwell.storage.archive import Archive
    from stepwell.storage.checkpoint import WorkflowCheckpoint, WorkflowMessage
    from stepwell.storage.checkpoint_storage import CheckpointStorage
    from stepwell.storage.pending_requests import PendingRequest


class BuiltInStorage:
    """The six methods of `CheckpointStorage`, and what only a built-in storage can tell.

    A subclass that overrides one of the six is obeyed: its runs then go through the six methods only.
    Works from any thread and across successive event loops.
    """

    def __init__(
        self,
        store: Store,
        *,
        seal: Sealing | None = None,
        retention: Retention = Retention.FullHistory,
        lease: float = LEASE,
    ) -> None:
        if not isinstance(retention, Retention):
            raise DefinitionError(f"retention is FullHistory or LatestOnly, not {retention!r}")
        self._store = cast(Store, VerifiedStore(store, seal, lease=validate_lease(lease)))
        self.retention = retention

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Keep a checkpoint that came from elsewhere; durable when it returns. Its id."""
        from stepwell.storage import checkpoint_bodies

        return await checkpoint_bodies.save(self._store, checkpoint)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """The checkpoint of that id. Raises CheckpointMissing, or CheckpointCorrupt if it is damaged."""
        from stepwell.storage import checkpoint_bodies

        return await checkpoint_bodies.load(self._store, checkpoint_id)

    async def list_checkpoints(
        self,
        *,
        workflow_name: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[WorkflowCheckpoint]:
        """The checkpoints of a workflow, of a run, or of all, oldest first by commit.

        With `limit` the newest so many; with `before`, those that were committed before the checkpoint of that id.
        """
        from stepwell.storage import checkpoint_bodies

        return await checkpoint_bodies.load_all(
            self._store, await list_entries(self._store, workflow_name, run_id, before, limit)
        )

    async def list_checkpoint_ids(
        self,
        *,
        workflow_name: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """The ids of those checkpoints, oldest first by commit; no payload is read."""
        return [entry.checkpoint_id for entry in await list_entries(self._store, workflow_name, run_id, before, limit)]

    async def list_runs(
        self,
        *,
        workflow_name: str | None = None,
        status: WorkflowRunState | str | None = None,
        tags: Mapping[str, str] | None = None,
        prefix: str | None = None,
        text: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        changed_since: datetime | None = None,
        changed_until: datetime | None = None,
        after: RunInfo | None = None,
        limit: int | None = None,
    ) -> list[RunInfo]:
        """The runs of a workflow, of a status, with all of these tags, or all: those that began last first.

        `prefix`: whose id begins so. `text`: that is in the id, the workflow, or a name or a value of the tags; A to Z
        are as a to z. `since` and `until`: that began then or later, and before. `changed_since` and `changed_until`:
        whose newest commit was then or later, and before. With `limit` at most so many, `after` the last one of the
        page before. Runs of sub-workflows are not listed: the run that called them speaks for them.

        No payload is read. A page costs what is on it, however many runs there are; only by `text`, `changed_since` and
        `changed_until` each run is looked at that is passed over, and by `prefix` all that begin so.
        """
        if not _are_storable(workflow_name, prefix, text, *(tags or {}), *(tags or {}).values()):
            return []
        wanted = None if status is None else WorkflowRunState(status).value
        past = None if after is None else after._entry
        times = [None if at is None else stored_moment(at) for at in (since, until, changed_since, changed_until)]
        entries = await self._store.runs(
            workflow=workflow_name,
            status=wanted,
            tags=tags,
            run_filter=RunFilter(prefix, text, *times),
            past=past,
            limit=limit,
        )
        return [run_info(entry) for entry in entries]

    async def get_run(self, run_id: str) -> RunInfo | None:
        """The run of that id, also if it is that of a sub-workflow; None if there is none. No payload is read."""
        entry = await self._store.run(run_id) if _are_storable(run_id) else None
        return None if entry is None else run_info(entry)

    async def get_latest(
        self, *, workflow_name: str | None = None, run_id: str | None = None
    ) -> WorkflowCheckpoint | None:
        """The newest commit of any run that matches, or the head of the run that is named; None if there is none."""
        from stepwell.storage import checkpoint_bodies

        return await checkpoint_bodies.latest(self._store, workflow_name, run_id)

    async def delete(self, checkpoint_id: str) -> bool:
        """Remove a checkpoint; False if there is none. Those before and after it stay readable.

        If it was the newest of its run, the questions of the one before it are open again. With the only one of a run
        that keeps only its latest, the run goes.
        """
        from stepwell.storage import checkpoint_bodies

        return await checkpoint_bodies.delete(self._store, checkpoint_id)

    async def message_history(self, checkpoint_id: str) -> list[WorkflowMessage]:
        """Every message exchanged up to a checkpoint, oldest first, also in the runs it was forked from.

        What a run exchanged before it was moved back is not part of that: it led somewhere else. Raises
        CheckpointMissing for a run that keeps only its latest.
        """
        from stepwell.storage import checkpoint_bodies

        return await checkpoint_bodies.messages(self._store, checkpoint_id)

    async def event_history(self, run_id: str) -> list[WorkflowEvent]:
        """The durable events of a run, told again from its commits, as far as they are kept."""
        from stepwell.storage import checkpoint_bodies

        return await checkpoint_bodies.events_of(self._store, run_id)

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        run_id: str | None = None,
        asked_by: datetime | None = None,
        due_by: datetime | None = None,
        after: PendingRequest | None = None,
        limit: int | None = None,
    ) -> list[PendingRequest]:
        """The open questions of a workflow, of a run, or of all, oldest first.

        `asked_by`: those that were asked then or before. `due_by`: those whose deadline is then or before, in the order
        of their deadlines. With `limit` at most so many, `after` the last one of the page before. No payload is read,
        and a page costs what is on it.
        """
        from stepwell.storage.pending_requests import pending_request

        if not _are_storable(workflow_name, run_id):
            return []
        pending = await self._store.pending(
            workflow=workflow_name,
            run_id=run_id,
            asked_by=None if asked_by is None else stored_moment(asked_by),
            due_by=None if due_by is None else stored_moment(due_by),
            past=None if after is None else after._entry,
            limit=limit,
        )
        return [pending_request(request) for request in pending]

    async def due_runs(self, *, by: datetime | None = None, workflow_name: str | None = None) -> list[DueRun]:
        """The runs that want to be moved on by then (default: now), soonest first; no payload is read."""
        before = stored_moment(clock.now() if by is None else by)
        return [due_run(wake) for wake in await self._store.wakes(before=before, workflow=workflow_name)]

    async def compact(self) -> int:
        """Give back the disk space of what was deleted; how many bytes less the store takes.

        A SQLite file is written anew (it needs that much free space meanwhile, and whoever writes waits); afterwards no
        deleted or superseded value is in it or in its log. StoreUnavailable if another program reads it for so long
        that this cannot be done. PostgreSQL is
        asked to clean up its tables (nobody waits; what it frees it mostly keeps for itself, for what comes next). A
        directory loses its empty folders. Nothing that is stored changes.
        """
        return await self._store.compact()

    async def close(self) -> None:
        """Finish what is under way and give back files. The storage opens again if it is used again."""
        await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _are_storable(*names: str | None) -> bool:
    """False if one of them is nothing that a store could hold, and so nothing to ask it for."""
    return all(name is None or is_text(name) for name in names)


def open_archive(storage: CheckpointStorage, workflow: str, codec: Codec) -> Archive:
    """The best archive a storage allows."""
    from stepwell.storage.archive import StoreArchive
    from stepwell.storage.checkpoint_storage import ContractArchive, check_contract

    check_contract(storage)
    if isinstance(storage, BuiltInStorage) and not _overrides_contract(storage):
        return StoreArchive(storage._store, codec, storage.retention)
    return ContractArchive(storage, workflow, codec)


def _overrides_contract(storage: BuiltInStorage) -> bool:
    from stepwell.storage.checkpoint_storage import CONTRACT

    return any(
        name in vars(storage) or getattr(type(storage), name) is not getattr(BuiltInStorage, name) for name in CONTRACT
    )
