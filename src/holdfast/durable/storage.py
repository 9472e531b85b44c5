"""What every built-in storage is: the six methods, on top of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Self, cast

from ..core.errors import CheckpointMissing, CommitConflict, DefinitionError
from ..core.events import WorkflowEvent, WorkflowRunState
from ..core.model import Checkpoint, Commit, CommitKind, Message, Retention
from ..kernel.history import still_true
from ..kernel.telling import events
from . import clock
from .archive import Archive, StoreArchive, about_of, fold, is_head, not_kept, pending_of, record, wake_of
from .checkpoint import WorkflowCheckpoint, WorkflowMessage, record_of, seen_message, unview, view
from .codec import DEFAULT_CODEC, Codec
from .contract import CONTRACT, CheckpointStorage, ContractArchive, check_contract
from .due import DueRun, due_run, stored_moment
from .guard import Guarded, Sealing
from .listing import by_run, folded, listed
from .pending import PendingRequest, pending_request
from .ports import Along, Entry, Record, Sieve, Store
from .runs import RunInfo, run_info
from .wire import header_of, read_commit


class BuiltInStorage:
    """The six methods of `CheckpointStorage`, and what only a built-in storage can tell.

    A subclass that overrides one of the six is obeyed: its runs then go through the six methods only.
    Works from any thread and across successive event loops.
    """

    def __init__(
        self, store: Store, *, seal: Sealing | None = None, retention: Retention = Retention.FullHistory
    ) -> None:
        if not isinstance(retention, Retention):
            raise DefinitionError(f"retention is FullHistory or LatestOnly, not {retention!r}")
        self.store = cast(Store, Guarded(store, seal))
        self.retention = retention

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Keep a checkpoint that came from elsewhere; durable when it returns. Its id."""
        at, _ = unview(checkpoint, DEFAULT_CODEC)
        asked = pending_of(at.header, at.requests.values())
        along = Along(asked=asked, wake=wake_of(at), about=about_of(at.header))
        await self.store.put(record_of(checkpoint), along)
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """The checkpoint of that id. Raises CheckpointMissing, or CheckpointCorrupt if it is damaged."""
        entry = await self._entry(checkpoint_id)
        if entry.fleeting and not await is_head(self.store, entry):
            raise not_kept(entry)
        return view(*await StoreArchive(self.store, DEFAULT_CODEC).at(entry))

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
        entries = await listed(self.store, workflow_name, run_id, before, limit)
        seen: dict[tuple[str, int], WorkflowCheckpoint] = {}
        for run, numbers in by_run(entries).items():
            for checkpoint, commit in await folded(self.store, run, min(numbers), max(numbers)):
                seen[run, checkpoint.number] = view(checkpoint, commit)
        # what was dropped while we read is in one list and not in the other
        return [seen[entry.run_id, entry.number] for entry in entries if (entry.run_id, entry.number) in seen]

    async def list_checkpoint_ids(
        self,
        *,
        workflow_name: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """The ids of those checkpoints, oldest first by commit; no payload is read."""
        return [entry.checkpoint_id for entry in await listed(self.store, workflow_name, run_id, before, limit)]

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
        wanted = None if status is None else WorkflowRunState(status).value
        past = None if after is None else after.entry
        times = [None if at is None else stored_moment(at) for at in (since, until, changed_since, changed_until)]
        found = await self.store.runs(
            workflow=workflow_name, status=wanted, tags=tags, sieve=Sieve(prefix, text, *times), past=past, limit=limit
        )
        return [run_info(entry) for entry in found]

    async def get_run(self, run_id: str) -> RunInfo | None:
        """The run of that id, also if it is that of a sub-workflow; None if there is none. No payload is read."""
        found = await self.store.run(run_id)
        return None if found is None else run_info(found)

    async def get_latest(
        self, *, workflow_name: str | None = None, run_id: str | None = None
    ) -> WorkflowCheckpoint | None:
        """The newest commit of any run that matches, or the head of the run that is named; None if there is none."""
        while (newest := await self._newest(workflow_name, run_id)) is not None:
            chain = await self.store.chain(newest.run_id, newest.number)
            if chain:  # else it was dropped meanwhile, because there is a newer one
                return view(*fold(chain, DEFAULT_CODEC)[-1])
        return None

    async def _newest(self, workflow_name: str | None, run_id: str | None) -> Entry | None:
        if run_id is None:
            return await self.store.newest(workflow=workflow_name)
        head = await self.store.head(run_id)  # one that was saved by hand later need not be the head
        return head.entry if head is not None and workflow_name in (None, head.entry.workflow) else None

    async def delete(self, checkpoint_id: str) -> bool:
        """Remove a checkpoint; False if there is none. Those before and after it stay readable.

        If it was the newest of its run, the questions of the one before it are open again. With the only one of a run
        that keeps only its latest, the run goes.
        """
        while (entry := await self.store.locate(checkpoint_id)) is not None:
            if entry.fleeting:
                return await is_head(self.store, entry) and await self.store.drop(entry.run_id)
            follower = await self._as_frame(entry.run_id, entry.number + 1)
            before = await self._before(entry)
            asked = () if before is None else pending_of(before.header, before.requests.values())
            wake = None if before is None else wake_of(before)
            with suppress(CommitConflict):  # the run was moved on meanwhile: look again
                return await self.store.remove(entry.run_id, entry.number, follower=follower, asked=asked, wake=wake)
        return False

    async def message_history(self, checkpoint_id: str) -> list[WorkflowMessage]:
        """Every message exchanged up to a checkpoint, oldest first, also in the runs it was forked from.

        What a run exchanged before it was moved back is not part of that: it led somewhere else. Raises
        CheckpointMissing for a run that keeps only its latest.
        """
        return [seen_message(m) for _, commit in await self._commits(checkpoint_id) for m in _new_messages(commit)]

    async def event_history(self, run_id: str) -> list[WorkflowEvent]:
        """The durable events of a run, told again from its commits, as far as they are kept."""
        records = await self.store.history(run_id)
        if not records:
            raise CheckpointMissing(f"no run {run_id!r} is stored here")
        commits = [read_commit(one, DEFAULT_CODEC)[0] for one in records]
        return [event for commit in commits for event in events(run_id, commit, stored=True, replayed=True)]

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
        found = await self.store.pending(
            workflow=workflow_name,
            run_id=run_id,
            asked_by=None if asked_by is None else stored_moment(asked_by),
            due_by=None if due_by is None else stored_moment(due_by),
            past=None if after is None else after.entry,
            limit=limit,
        )
        return [pending_request(one) for one in found]

    async def due_runs(self, *, by: datetime | None = None, workflow_name: str | None = None) -> list[DueRun]:
        """The runs that want to be moved on by then (default: now), soonest first; no payload is read."""
        before = stored_moment(clock.now() if by is None else by)
        return [due_run(wake) for wake in await self.store.wakes(before=before, workflow=workflow_name)]

    async def compact(self) -> int:
        """Give back the disk space of what was deleted; how many bytes less the store takes.

        A SQLite file is written anew (it needs that much free space meanwhile, and whoever writes waits). PostgreSQL is
        asked to clean up its tables (nobody waits; what it frees it mostly keeps for itself, for what comes next). A
        directory loses its empty folders. Nothing that is stored changes.
        """
        return await self.store.compact()

    async def close(self) -> None:
        """Finish what is under way and give back files. The storage opens again if it is used again."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _entry(self, checkpoint_id: str) -> Entry:
        entry = await self.store.locate(checkpoint_id)
        if entry is None:
            raise CheckpointMissing(
                f"no checkpoint {checkpoint_id!r} is stored here; list_checkpoint_ids() says which are"
            )
        return entry

    async def _as_frame(self, run_id: str, number: int) -> Record | None:
        chain = await self.store.chain(run_id, number)
        if not chain or chain[-1].entry.frame:
            return None
        checkpoint, commit = fold(chain, DEFAULT_CODEC)[-1]
        return record(commit, checkpoint, framed=True)

    async def _before(self, entry: Entry) -> Checkpoint | None:
        """Where the run is if that entry goes. None if it is not the newest of its run: then nothing changes."""
        chain = await self._chain_before(entry) if await is_head(self.store, entry) else []
        return fold(chain, DEFAULT_CODEC)[-1][0] if chain else None

    async def _chain_before(self, entry: Entry) -> list[Record]:
        chain = await self.store.chain(entry.run_id, entry.number - 1)
        if chain:
            return chain
        stored = [one.number for one in await self.store.entries(run_id=entry.run_id)]  # there is a gap, or nothing
        before = max((number for number in stored if number < entry.number), default=None)
        return [] if before is None else await self.store.chain(entry.run_id, before)

    async def _commits(self, checkpoint_id: str) -> list[tuple[str, Commit]]:
        """The commits that brought new messages on the way to a checkpoint, oldest first."""
        found = [commit async for commit in self._backwards(await self._entry(checkpoint_id))]
        # a fork begins with messages its parent had sent: they count only if the parent is not there to tell
        return [
            (run_id, commit)
            for n, (run_id, commit) in enumerate(reversed(found))
            if commit.kind in (CommitKind.INPUT, CommitKind.SUPERSTEP, CommitKind.INTAKE) or n == 0
        ]

    async def _backwards(self, entry: Entry | None) -> AsyncIterator[tuple[str, Commit]]:
        while entry is not None:
            if entry.fleeting:
                raise CheckpointMissing(f"run {entry.run_id!r} keeps only its latest: what led to it is not all stored")
            records = await self.store.history(entry.run_id, upto=entry.number)
            read = [read_commit(one, DEFAULT_CODEC) for one in records]
            for commit in reversed(still_true([commit for commit, _ in read])):
                yield entry.run_id, commit
            parent_id = next((header_of(shape).parent_id for _, shape in read if shape.run is not None), None)
            entry = None if parent_id is None else await self.store.locate(parent_id)


def _new_messages(commit: Commit) -> Sequence[Message]:
    """The messages that a commit brought; what was on its way before an intake is not new."""
    messages = commit.messages or ()
    if commit.kind is CommitKind.INTAKE:
        return [m for m in messages if m.id.startswith(f"{commit.number}.")]
    return messages


def open_archive(storage: CheckpointStorage, workflow: str, codec: Codec) -> Archive:
    """The best archive a storage allows."""
    check_contract(storage)
    if isinstance(storage, BuiltInStorage) and not _overridden(storage):
        return StoreArchive(storage.store, codec, storage.retention)
    return ContractArchive(storage, workflow, codec)


def _overridden(storage: BuiltInStorage) -> bool:
    return any(
        name in vars(storage) or getattr(type(storage), name) is not getattr(BuiltInStorage, name) for name in CONTRACT
    )
