"""What every built-in storage is: the six methods, on top of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Self, cast

from ..core.errors import CheckpointMissing, CommitConflict
from ..core.events import WorkflowEvent
from ..core.model import Commit, CommitKind, Message
from ..kernel.history import still_true
from ..kernel.telling import events
from . import clock
from .archive import Archive, StoreArchive, fold, pending_of, record, wake_of
from .checkpoint import WorkflowCheckpoint, WorkflowMessage, record_of, seen_message, unview, view
from .codec import DEFAULT_CODEC, Codec
from .contract import CONTRACT, CheckpointStorage, ContractArchive, check_contract
from .due import DueRun, due_run, stored_moment
from .guard import Guarded, Sealing
from .pending import PendingRequest, pending_request
from .ports import Along, Entry, Pending, Record, Store
from .wire import header_of, read_commit


class BuiltInStorage:
    """The six methods of `CheckpointStorage`, and what only a built-in storage can tell.

    A subclass that overrides one of the six is obeyed: its runs then go through the six methods only.
    Works from any thread and across successive event loops.
    """

    def __init__(self, store: Store, *, seal: Sealing | None = None) -> None:
        self.store = cast(Store, Guarded(store, seal))

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Keep a checkpoint that came from elsewhere; durable when it returns. Its id."""
        at, _ = unview(checkpoint, DEFAULT_CODEC)
        along = Along(asked=pending_of(at.header, at.requests.values()), wake=wake_of(at))
        await self.store.put(record_of(checkpoint), along)
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """The checkpoint of that id. Raises CheckpointMissing, or CheckpointCorrupt if it is damaged."""
        return view(*await StoreArchive(self.store, DEFAULT_CODEC).at(await self._entry(checkpoint_id)))

    async def list_checkpoints(
        self, *, workflow_name: str | None = None, run_id: str | None = None
    ) -> list[WorkflowCheckpoint]:
        """The checkpoints of a workflow, of a run, or of all, oldest first by commit."""
        entries = await self.store.entries(workflow=workflow_name, run_id=run_id)
        seen: dict[tuple[str, int], WorkflowCheckpoint] = {}
        for run in dict.fromkeys(entry.run_id for entry in entries):
            for checkpoint, commit in fold(await self.store.history(run), DEFAULT_CODEC):
                seen[run, checkpoint.number] = view(checkpoint, commit)
        # what was committed while we read is in one list and not yet in the other
        return [seen[entry.run_id, entry.number] for entry in entries if (entry.run_id, entry.number) in seen]

    async def list_checkpoint_ids(self, *, workflow_name: str | None = None, run_id: str | None = None) -> list[str]:
        """The ids of those checkpoints, oldest first by commit; no payload is read."""
        return [entry.checkpoint_id for entry in await self.store.entries(workflow=workflow_name, run_id=run_id)]

    async def get_latest(
        self, *, workflow_name: str | None = None, run_id: str | None = None
    ) -> WorkflowCheckpoint | None:
        """The newest commit of any run that matches, or the head of the run that is named; None if there is none."""
        newest = await self._newest(workflow_name, run_id)
        return None if newest is None else view(*await StoreArchive(self.store, DEFAULT_CODEC).at(newest))

    async def _newest(self, workflow_name: str | None, run_id: str | None) -> Entry | None:
        if run_id is None:
            return await self.store.newest(workflow=workflow_name)
        head = await self.store.head(run_id)  # one that was saved by hand later need not be the head
        return head.entry if head is not None and workflow_name in (None, head.entry.workflow) else None

    async def delete(self, checkpoint_id: str) -> bool:
        """Remove a checkpoint; False if there is none. Those before and after it stay readable.

        If it was the newest of its run, the questions of the one before it are open again.
        """
        while (entry := await self.store.locate(checkpoint_id)) is not None:
            follower = await self._as_frame(entry.run_id, entry.number + 1)
            asked = await self._asked_before(entry)
            with suppress(CommitConflict):  # the run was moved on meanwhile: look again
                return await self.store.remove(entry.run_id, entry.number, follower=follower, asked=asked)
        return False

    async def message_history(self, checkpoint_id: str) -> list[WorkflowMessage]:
        """Every message exchanged up to a checkpoint, oldest first, also in the runs it was forked from.

        What a run exchanged before it was moved back is not part of that: it led somewhere else.
        """
        return [seen_message(m) for _, commit in await self._commits(checkpoint_id) for m in _new_messages(commit)]

    async def event_history(self, run_id: str) -> list[WorkflowEvent]:
        """The durable events of a run, told again from its commits."""
        records = await self.store.history(run_id)
        if not records:
            raise CheckpointMissing(f"no run {run_id!r} is stored here")
        commits = [read_commit(one, DEFAULT_CODEC)[0] for one in records]
        return [event for commit in commits for event in events(run_id, commit, stored=True, replayed=True)]

    async def pending_requests(
        self, *, workflow_name: str | None = None, run_id: str | None = None
    ) -> list[PendingRequest]:
        """The open questions of a workflow, of a run, or of all, oldest first; no payload is read."""
        return [pending_request(one) for one in await self.store.pending(workflow=workflow_name, run_id=run_id)]

    async def due_runs(self, *, by: datetime | None = None, workflow_name: str | None = None) -> list[DueRun]:
        """The runs that want to be moved on by then (default: now), soonest first; no payload is read."""
        before = stored_moment(clock.now() if by is None else by)
        return [due_run(wake) for wake in await self.store.wakes(before=before, workflow=workflow_name)]

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

    async def _asked_before(self, entry: Entry) -> tuple[Pending, ...]:
        """What is open if that entry goes. Empty if it is not the newest of its run: then nothing changes."""
        head = await self.store.head(entry.run_id)
        before = await self._chain_before(entry) if head is not None and head.entry.number == entry.number else []
        if not before:
            return ()
        checkpoint, _ = fold(before, DEFAULT_CODEC)[-1]
        return pending_of(checkpoint.header, checkpoint.requests.values())

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
        return StoreArchive(storage.store, codec)
    return ContractArchive(storage, workflow, codec)


def _overridden(storage: BuiltInStorage) -> bool:
    return any(
        name in vars(storage) or getattr(type(storage), name) is not getattr(BuiltInStorage, name) for name in CONTRACT
    )
