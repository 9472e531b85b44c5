"""The base of every built-in storage: the six methods and more, on top of a store.

What is known without reading a body is here. What reads and writes bodies is in
`checkpoint_bodies`, which the methods import when they are first called: it brings in the codec
and the kernel, and a program that only lists runs, such as the command line, starts without them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Self

from stepwell.errors import CheckpointMissing, DefinitionError, RequestError, UnknownRequest
from stepwell.model.checkpoint import Retention
from stepwell.model.event import WorkflowRunState
from stepwell.model.status_words import SIGNALLED, STANDINGS, Standing
from stepwell.model.valid_text import is_text
from stepwell.storage import clock
from stepwell.storage.checkpoint_list import list_entries
from stepwell.storage.filters import ReadyFilter, RequestFilter, RunFilter, check_limit
from stepwell.storage.integrity import Cipher, VerifiedStore
from stepwell.storage.lease import LEASE, validate_lease
from stepwell.storage.live_ring import LiveRing, LiveStore
from stepwell.storage.news import Notifications
from stepwell.storage.outbox import Outbox
from stepwell.storage.port import Store
from stepwell.storage.run_list import RunInfo, find_standing, run_info
from stepwell.storage.server_schema import ServerSchema
from stepwell.storage.statistics import Statistics
from stepwell.storage.verified_outbox import VerifiedOutbox
from stepwell.storage.worker_registry import WorkerInfo, WorkerRegistry, worker_info

if TYPE_CHECKING:
    from stepwell.model.event import WorkflowEvent
    from stepwell.storage.checkpoint import WorkflowCheckpoint, WorkflowMessage
    from stepwell.storage.pending_requests import PendingRequest
    from stepwell.storage.stored_values import RequestEntry

_SHOWN = 5  # runs in an error


class BuiltInStorage:
    """The six methods of `CheckpointStorage`, and what only a built-in storage can do.

    A subclass that overrides one of the six is obeyed: its runs then go through the six methods
    only. Works from any thread and across successive event loops.
    """

    def __init__(
        self,
        store: Store,
        *,
        seal: Cipher | None = None,
        retention: Retention = Retention.FullHistory,
        lease: float = LEASE,
    ) -> None:
        if not isinstance(retention, Retention):
            raise DefinitionError(f"retention must be FullHistory or LatestOnly, not {retention!r}")
        guard = VerifiedStore(store, seal)
        self._store: Store = guard
        self._guard = guard  # by which single entries of a damaged list are checked
        # Beside the wrapper: what workers say of themselves holds no data of runs, and is not sealed.
        self._registry = store if isinstance(store, WorkerRegistry) else None
        self._notifications = store if isinstance(store, Notifications) else None
        self._server = store if isinstance(store, ServerSchema) else None
        self._statistics = store if isinstance(store, Statistics) else None
        self._live_store = store if isinstance(store, LiveStore) else None
        self._outbox = VerifiedOutbox(store, guard) if isinstance(store, Outbox) else None
        self._lease = validate_lease(lease)
        self.retention = retention

    @property
    def _live(self) -> LiveRing | None:
        return None if self._live_store is None else self._live_store.live_ring()

    # ---------------------------------------------------------------- checkpoints

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint that came from elsewhere and return its id. Durable on return."""
        from stepwell.storage import checkpoint_bodies  # lazy: 40 ms

        return await checkpoint_bodies.save(self._store, checkpoint)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return the checkpoint with that id.

        Raises CheckpointMissing, or CheckpointCorrupt if it is damaged.
        """
        from stepwell.storage import checkpoint_bodies  # lazy: 40 ms

        return await checkpoint_bodies.load(self._store, checkpoint_id)

    async def list_checkpoints(
        self,
        *,
        workflow_name: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, of a run, or all, oldest first.

        With `limit`, the newest so many; with `before`, those before the checkpoint with that id.
        """
        from stepwell.storage import checkpoint_bodies  # lazy: 40 ms

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
        """Return the ids of those checkpoints, oldest first.

        No payload is read.
        """
        return [entry.checkpoint_id for entry in await list_entries(self._store, workflow_name, run_id, before, limit)]

    # ---------------------------------------------------------------- runs

    async def list_runs(
        self,
        *,
        workflow_name: str | None = None,
        status: WorkflowRunState | str | None = None,
        standing: Standing | None = None,
        tags: Mapping[str, str] | None = None,
        parent: str | None = None,
        prefix: str | None = None,
        text: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        changed_since: datetime | None = None,
        changed_until: datetime | None = None,
        after: RunInfo | None = None,
        limit: int | None = None,
    ) -> list[RunInfo]:
        """Return the runs that match, latest start first.

        `status` is that of the newest commit; `standing` also says who drives the run now: see
        `RunInfo.standing`. A run must have all the `tags`. `parent`: it was forked from this run. `prefix`: its id
        starts with this string. `text`: occurs in the id, the workflow, or a name or value of a tag, ignoring the case
        of A to Z. `since` and
        `until`: it began at that time or later, and before that time. `changed_since` and
        `changed_until`: the same for its newest commit. At most `limit`, continuing after `after`,
        the last run of the previous page. Runs of sub-workflows are not listed: the run that called
        them stands for them.

        No payload is read. A page costs what is on it, however many runs there are. But `text`,
        `changed_since` and `changed_until` look at every run they pass over, `prefix` at all runs
        that start with it, and `standing` at the runs that the store cannot tell from those that
        stand so.
        """
        if standing is not None and standing not in STANDINGS:
            raise ValueError(f"standing must be one of {', '.join(STANDINGS)}, not {standing!r}")
        check_limit(limit)
        if not _are_storable(workflow_name, parent, prefix, text, *(tags or {}), *(tags or {}).values()):
            return []
        wanted = None if status is None else WorkflowRunState(status).value
        past = None if after is None else after._entry
        times = [None if at is None else clock.stored_moment(at) for at in (since, until, changed_since, changed_until)]
        run_filter = RunFilter(
            workflow=workflow_name,
            status=wanted,
            tags=tags or {},
            parent=parent,
            prefix=prefix,
            text=text,
            since=times[0],
            until=times[1],
            changed_since=times[2],
            changed_until=times[3],
        )
        if standing is not None:
            return await find_standing(self._store, run_filter, standing, past=past, limit=limit)
        entries = await self._store.runs(run_filter, past=past, limit=limit)
        return [run_info(entry) for entry in entries]

    async def ready_runs(
        self, *, workflow_name: str | None = None, by: datetime | None = None, limit: int | None = None
    ) -> list[RunInfo]:
        """Return the runs that can be driven and that nobody drives: by priority, then oldest first, at most `limit`.

        These are the queued and the stalled ones: new runs, those whose wait is over or whose
        deadline is reached by then (default: now), those with a response or input to apply, and
        those whose driver is gone. Never one that failed or was cancelled, and never one of a
        sub-workflow: its caller drives it.

        No payload is read. The cost grows with the runs that have something to do, driven or not; a
        store of files looks at each run.
        """
        check_limit(limit)
        if not _are_storable(workflow_name):
            return []
        ready_filter = ReadyFilter(
            clock.stored_moment(clock.now() if by is None else by), workflow_name, resting=SIGNALLED
        )
        return [run_info(entry) for entry in await self._store.ready(ready_filter, limit=limit)]

    async def get_run(self, run_id: str) -> RunInfo | None:
        """Return the run with that id, even one of a sub-workflow; None if there is none.

        No payload is read.
        """
        entry = await self._store.run(run_id) if _are_storable(run_id) else None
        return None if entry is None else run_info(entry)

    async def get_latest(
        self, *, workflow_name: str | None = None, run_id: str | None = None
    ) -> WorkflowCheckpoint | None:
        """Return the newest checkpoint of the runs that match, or the head of one run."""
        from stepwell.storage import checkpoint_bodies  # lazy: 40 ms

        return await checkpoint_bodies.latest(self._store, workflow_name, run_id)

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint; False if there is none. Those before and after it stay readable.

        If it was the newest of its run, the requests of the one before it are open again. Deleting
        the checkpoint of a run that keeps only its latest deletes the run.
        """
        from stepwell.storage import checkpoint_bodies  # lazy: 40 ms

        return await checkpoint_bodies.delete(self._store, checkpoint_id)

    # ---------------------------------------------------------------- histories

    async def message_history(self, checkpoint_id: str) -> list[WorkflowMessage]:
        """Return every message exchanged up to a checkpoint, oldest first.

        Includes those of the runs it was forked from.

        Messages that a restore has undone are left out. Raises CheckpointMissing for a run that
        keeps only its latest checkpoint.
        """
        from stepwell.storage import checkpoint_bodies  # lazy: 40 ms

        return await checkpoint_bodies.messages(self._store, checkpoint_id)

    async def event_history(self, run_id: str) -> list[WorkflowEvent]:
        """Return the durable events of a run, computed again from its stored commits."""
        from stepwell.storage import checkpoint_bodies  # lazy: 40 ms

        return await checkpoint_bodies.events_of(self._store, run_id)

    async def follow(self, run_id: str, *, after: int = -1, until_rest: bool = False) -> AsyncIterator[WorkflowEvent]:
        """Yield the durable events of a run past the commit `after`, then those that any process commits.

        Without gap and without repeat: to continue later, pass the `commit` of an event, all events
        of which you have seen. Ends when the run is completed, has failed or was cancelled; with `until_rest`,
        also when it waits for responses. It drives nothing. The cost grows with what is new: while
        nothing happens, one row is read, after longer and longer waits of up to a second; a commit
        of this process through this object is seen at once.

        Raises CheckpointMissing if the run is not stored, or is deleted meanwhile.
        """
        from stepwell.storage.followed_run import follow_run  # lazy: 40 ms

        if not _are_storable(run_id):
            raise CheckpointMissing(f"there is no run {run_id!r} in this storage")
        async with aclosing(follow_run(self._store, run_id, after, until_rest=until_rest)) as events:
            async for event in events:
                yield event

    # ---------------------------------------------------------------- requests

    async def pending_requests(
        self,
        *,
        workflow_name: str | None = None,
        run_id: str | None = None,
        asked_until: datetime | None = None,
        due_until: datetime | None = None,
        after: PendingRequest | None = None,
        limit: int | None = None,
    ) -> list[PendingRequest]:
        """Return the open requests of a workflow, of a run, or all, oldest first.

        `asked_until`: asked at that time or before. `due_until`: with a deadline at that time or before,
        ordered by deadline. At most `limit`, continuing after `after`, the last one of the previous
        page. No run is read, and a page costs what is on it.

        Requests of runs that are completed, failed or cancelled are left out until somebody resumes
        the run. `answered` of a request says that a response is on its way, by whom and since when.
        """
        from stepwell.storage.pending_requests import with_answers  # lazy: 40 ms

        check_limit(limit)
        if not _are_storable(workflow_name, run_id):
            return []
        request_filter = RequestFilter(
            workflow=workflow_name,
            run_id=run_id,
            asked_until=None if asked_until is None else clock.stored_moment(asked_until),
            due_until=None if due_until is None else clock.stored_moment(due_until),
        )
        past = None if after is None else after._entry
        return await with_answers(self._store, await self._store.requests(request_filter, past=past, limit=limit))

    async def get_request(self, request_id: str, *, run_id: str | None = None) -> PendingRequest:
        """Return an open request by its id; no run is read.

        Raises UnknownRequest if there is none, and RequestError if several runs have one with that
        id: then `run_id` says which.
        """
        from stepwell.storage.pending_requests import with_answers  # lazy: 40 ms

        found: list[RequestEntry] = []
        if _are_storable(request_id, run_id):
            found = await self._store.requests(RequestFilter(run_id=run_id, request_id=request_id), limit=_SHOWN)
        if not found:
            raise UnknownRequest(
                f"no run has an open request {request_id!r}; pending_requests() lists them (those of failed and "
                f"cancelled runs come back when the run is resumed)",
                run_id=run_id or "",
                request_id=request_id,
            )
        if len(found) > 1:
            runs = ", ".join(repr(entry.run_id) for entry in found)
            raise RequestError(
                f"several runs have an open request {request_id!r}: {runs}; pass run_id",
                run_id="",
                request_id=request_id,
            )
        return (await with_answers(self._store, found))[0]

    # ---------------------------------------------------------------- workers

    async def list_workers(self) -> list[WorkerInfo]:
        """Return the workers that drive runs of this storage, and those that were seen in the last day, by name."""
        return [] if self._registry is None else [worker_info(row) for row in await self._registry.workers()]

    # ---------------------------------------------------------------- maintenance

    async def compact(self) -> int:
        """Reclaim the disk space of deleted data; return by how many bytes the store shrank.

        A SQLite file is rewritten: it needs as much free space meanwhile, writers wait, and
        afterwards no deleted or superseded value is left in it or in its log. Raises
        StoreUnavailable if another program reads it for so long that this cannot be done.
        PostgreSQL vacuums its tables: nobody waits, and most of the space is kept for new rows. A
        directory loses its empty folders. Nothing that is stored changes.
        """
        return await self._store.compact()

    async def close(self) -> None:
        """Finish the work in progress and close files and connections.

        A later use opens them again.
        """
        await self._store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _are_storable(*names: str | None) -> bool:
    """Return False if a name contains what no store can hold: then nothing stored can match it."""
    return all(name is None or is_text(name) for name in names)
