"""Opens a run: a new one, the head of a stored one, or a fork of an older checkpoint.

A `Position` says where the caller wants to start; `find_run` looks up what that means in the store;
`enter_run` makes the first commit, if there is one, and returns a run that can be driven.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine.commit import store_commit
from stepwell.engine.compatibility import check_same_workflow, is_changed, make_compatible
from stepwell.engine.definition import WorkflowDefinition
from stepwell.engine.executor_state import RunExecutors
from stepwell.errors import CheckpointCorrupt, CheckpointMissing, InputMismatch, RoutingFailed, RunError
from stepwell.graph.executor import Executor
from stepwell.graph.graph import is_default_name
from stepwell.graph.type_matching import describe
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.commit import Commit, CommitKind, Stamp
from stepwell.model.event import WorkflowRunState
from stepwell.model.log_keys import RecalledLog
from stepwell.model.message import Plan
from stepwell.model.payload import Pack
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.ids import checkpoint_id, new_run_id


class StartRun(msgspec.Struct, frozen=True):
    """Start with a message; if the run is stored already, resume it, provided it was started with the same one."""

    message: object
    run_id: str
    # The caller chose the id, so the run may be stored already.
    named: bool
    # Of the stored message, if another run starts this one: the message itself may encode differently in newer code.
    digest: str | None = None
    tags: Mapping[str, str] | None = None


class ResumeRun(msgspec.Struct, frozen=True):
    """Resume a stored run from its head."""

    run_id: str
    # Raise Stopped if the run failed or was cancelled, unless it did so in the commit `except_at`.
    unless_stopped: bool = False
    except_at: int | None = None


class FromCheckpoint(msgspec.Struct, frozen=True):
    """Continue from exactly that checkpoint: the head continues its run, an older one starts a new run."""

    checkpoint_id: str
    run_id: str | None  # of the new run
    # It comes with responses, which must not start a new run by accident.
    only_head: bool = False
    # The tags of the new run; None: those of the run it is forked from.
    tags: Mapping[str, str] | None = None


class RestoreRun(msgspec.Struct, frozen=True):
    """Move a stored run back to one of its earlier checkpoints, and continue from there."""

    run_id: str
    checkpoint_id: str


class SuspendedRun(msgspec.Struct, frozen=True):
    """Continue a run that exists only in this process."""

    at: Checkpoint
    output_commits: Sequence[Commit]  # those with outputs so far
    executors: Mapping[str, Executor]


Position = StartRun | ResumeRun | FromCheckpoint | RestoreRun | SuspendedRun
AcquireLease = Callable[[str], Awaitable[None]]


EMPTY_LOG = RecalledLog()


class NewRun(msgspec.Struct, frozen=True):
    header: RunHeader
    message: object

    @property
    def checkpoint(self) -> None:
        return None

    @property
    def run_id(self) -> str:
        return self.header.run_id


class StoredRun(msgspec.Struct, frozen=True):
    # Migrated to this code if necessary.
    at: Checkpoint
    log: RecalledLog = EMPTY_LOG
    # As it is stored, if other code stored it.
    before: Checkpoint | None = None
    # What this code changed, in sentences.
    changes: tuple[str, ...] = ()
    # It is completed and has no signals: there is nothing to drive.
    replay_only: bool = False

    @property
    def run_id(self) -> str:
        return self.at.run_id

    @property
    def checkpoint(self) -> Checkpoint:
        return self.at


class ForkedRun(msgspec.Struct, frozen=True):
    source: Checkpoint
    header: RunHeader
    # What this code changed, in sentences.
    changes: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        return self.header.run_id

    @property
    def checkpoint(self) -> Checkpoint:
        return self.source


class RestoredRun(msgspec.Struct, frozen=True):
    """A run that is moved back: from its head to an earlier checkpoint."""

    head: Checkpoint
    source: Checkpoint
    # What this code changed, in sentences.
    changes: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        return self.head.run_id

    @property
    def checkpoint(self) -> Checkpoint:
        return self.source


FoundRun = NewRun | StoredRun | ForkedRun | RestoredRun

STOPPED = (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED)


class Stopped(Exception):
    """The run failed or was cancelled, and must not be resumed automatically. Never reaches users."""


class EnteredRun(msgspec.Struct, frozen=True):
    """A run that can be driven."""

    at: Checkpoint
    # The commit made on entering; None if the run continues from its head.
    first: Commit | None
    log: RecalledLog = EMPTY_LOG
    replay_only: bool = False  # there is nothing to drive

    @property
    def is_continued(self) -> bool:
        """Whether the run continues where it was, perhaps migrated to this code."""
        return self.first is None or self.first.kind is CommitKind.MIGRATED


def new_stamp(run_id: str, epoch: int, number: int) -> Stamp:
    return Stamp(checkpoint_id(run_id, epoch, number), clock.stamp())


async def find_run(
    definition: WorkflowDefinition, position: Position, archive: Archive | None, acquire: AcquireLease
) -> FoundRun:
    """Look up what a position means. The lease is acquired before the head is read, so that it cannot move."""
    if isinstance(position, SuspendedRun):
        return StoredRun(position.at)
    if archive is None:
        return _start_in_memory(definition, position)
    match position:
        case StartRun(message=message, run_id=run_id, named=named):
            await acquire(run_id)
            head = await archive.head(run_id) if named else None
            if head is None:
                digest = position.digest or definition.codec.digest(message, "$.input")
                return _start(definition, position, digest)
            if position.digest is None:
                check_same_start(definition, head, message)
            else:
                _check_digest(head, position.digest)
            return await _open_head(definition, head, archive)
        case ResumeRun(run_id=run_id):
            await acquire(run_id)
            head = await archive.head(run_id)
            if head is None:
                raise CheckpointMissing(
                    f"no run {run_id!r} is stored; to start it, pass a message (None is one too): run(None, run_id=...)"
                )
            if position.unless_stopped and head.status in STOPPED and head.number != position.except_at:
                raise Stopped
            return await _open_head(definition, head, archive)
        case RestoreRun(run_id=run_id, checkpoint_id=id):
            return await _find_restore_source(definition, archive, run_id, id, acquire)
        case FromCheckpoint(checkpoint_id=id, run_id=new_id):
            opened = await _open_checkpoint(definition, archive, id, new_id, acquire)
            if isinstance(opened, ForkedRun) and position.tags is not None:
                opened = replace(opened, header=replace(opened.header, tags=position.tags))
            if isinstance(opened, ForkedRun) and position.only_head:
                raise RunError(
                    f"run {opened.source.run_id!r} has moved on from checkpoint {id!r}, so its requests there can be "
                    f"answered only in a new run: name it with run_id",
                    run_id=opened.source.run_id,
                )
            return opened


async def enter_run(
    definition: WorkflowDefinition, run: FoundRun, archive: Archive | None, executors: RunExecutors, pack: Pack
) -> EnteredRun:
    """Make a run ready to be driven; the first commit of a new, forked, restored or migrated run is stored here."""
    match run:
        case StoredRun(at=at, log=log, replay_only=replay_only):
            if replay_only:
                return EnteredRun(at, None, replay_only=True)
            await executors.restore_all(at.executors)
            if run.before is None or archive is None:
                return EnteredRun(at, None, log)
            return await _take_over(run, run.before, archive)
        case RestoredRun(head=head, source=source, changes=changes):
            await executors.restore_all(source.executors)
            return await _commit_restore(head, source, changes, archive)
        case ForkedRun(source=source, header=header, changes=changes):
            first = replace(await create_fork_commit(source, header, archive), migrated=changes)
            await executors.restore_all(source.executors)
        case NewRun(header=header, message=message):
            payload = pack(message, "$.input")
            first = kernel.begin(
                definition.graph.start, payload, await executors.save_all(), new_stamp(header.run_id, header.epoch, 0)
            )
    at = kernel.apply(header, None, first, previous_id=header.parent_id)
    if archive is not None:
        await store_commit(archive, first, at)
    return EnteredRun(at, first)


async def create_fork_commit(source: Checkpoint, header: RunHeader, archive: Archive | None) -> Commit:
    """Return the first commit of a fork, with copies of the sub-workflow runs that its source waits for."""
    if archive is not None:
        source = replace(source, children=await archive.inside_fork(source, header.run_id))
    return kernel.fork(source, new_stamp(header.run_id, header.epoch, 0))


def create_fork_header(source: Checkpoint, run_id: str) -> RunHeader:
    """Return the header of a fork: that of its source, and where it was forked."""
    origin = {"parent_id": source.stamp.checkpoint_id, "parent_run": source.run_id, "parent_number": source.number}
    return replace(source.header, **origin, run_id=run_id, epoch=0)


async def _open_head(definition: WorkflowDefinition, head: Checkpoint, archive: Archive) -> StoredRun:
    """Return a stored run as this code resumes it. Raises GraphChanged if it cannot.

    A completed run needs no executor, so as long as it has no signals its outputs can be replayed
    even if its workflow has changed.
    """
    changed = is_changed(definition, head)
    signals = await archive.pending_signals(head.run_id) if changed else []
    if changed and head.status is WorkflowRunState.IDLE and not signals:
        check_same_workflow(definition, head)
        return StoredRun(head, replay_only=True)
    await archive.drop_left_over(head)
    compatible = make_compatible(definition, head, await _recall(head, archive), signals)
    return StoredRun(compatible.at, compatible.log, head if changed else None, compatible.changes)


async def _take_over(run: StoredRun, before: Checkpoint, archive: Archive) -> EnteredRun:
    """Commit that this code takes over a run that other code stored, with the changes it made."""
    stamp = new_stamp(before.run_id, before.header.epoch, before.number + 1)
    first = kernel.migrate(before, run.at, run.changes, stamp)
    at = kernel.apply(run.at.header, None, first, previous_id=before.stamp.checkpoint_id)
    await store_commit(archive, first, at)
    return EnteredRun(at, first, run.log)


async def _recall(at: Checkpoint, archive: Archive) -> RecalledLog:
    """Return the superstep log of a checkpoint. Raises CommitConflict if the run has moved on meanwhile.

    Then the log is gone, and taking it for an empty one would execute committed work again.
    """
    log = await archive.read_log(at.run_id, at.place)
    if at.messages:
        await archive.check_newest(at)
    return log


async def _commit_restore(
    head: Checkpoint, source: Checkpoint, changes: tuple[str, ...], archive: Archive | None
) -> EnteredRun:
    """Commit a restore. Pending signals are consumed: they were meant for the run as it was."""
    graph = {"signature": source.header.signature, "version": source.header.version}
    header = replace(head.header, epoch=head.header.epoch + 1, **graph)
    first = kernel.restore(head, source, new_stamp(head.run_id, header.epoch, head.number + 1))
    first = replace(first, migrated=changes)
    at = kernel.apply(header, None, first, previous_id=source.stamp.checkpoint_id)
    if archive is not None:
        keys = tuple(key for key, _ in await archive.pending_signals(head.run_id))
        await store_commit(archive, first, at, drop_log_through=head.place, consumed=keys)
    return EnteredRun(at, first)


async def _find_restore_source(
    definition: WorkflowDefinition, archive: Archive, run_id: str, id: str, acquire: AcquireLease
) -> RestoredRun:
    await acquire(run_id)
    head, source = await archive.head(run_id), await archive.find(id)
    if head is None:
        raise CheckpointMissing(f"no run {run_id!r} is stored, so it cannot be moved back")
    if source is None or source.run_id != run_id:
        raise CheckpointMissing(f"run {run_id!r} has no checkpoint {id!r} to be moved back to")
    compatible = make_compatible(definition, source, EMPTY_LOG, afresh=True)
    return RestoredRun(head, compatible.at, compatible.changes)


def _start_in_memory(
    definition: WorkflowDefinition, position: StartRun | ResumeRun | FromCheckpoint | RestoreRun
) -> NewRun:
    if not isinstance(position, StartRun):
        raise CheckpointMissing(
            "a run can be resumed only from where it was stored: pass checkpoint_storage to run() or to the builder"
        )
    return _start(definition, position, digest="")


def _start(definition: WorkflowDefinition, position: StartRun, digest: str) -> NewRun:
    message, run_id = position.message, position.run_id
    start = definition.graph.executors[definition.graph.start]
    if not start.can_handle(message):
        accepted = " | ".join(describe(input_type) for input_type in start.input_types)
        raise RoutingFailed(
            f"the start executor {start.id!r} accepts {accepted}, but run() was passed a {type(message).__name__}",
            run_id=run_id,
        )
    tags, version = position.tags or {}, definition.version
    header = RunHeader(run_id, definition.name, definition.signature, digest, tags=tags, version=version)
    return NewRun(header, message)


async def _open_checkpoint(
    definition: WorkflowDefinition, archive: Archive, id: str, new_id: str | None, acquire: AcquireLease
) -> StoredRun | ForkedRun:
    source = await archive.find(id)
    if source is None:
        raise CheckpointMissing(
            f"no checkpoint {id!r} is stored; list_checkpoint_ids() of the storage lists them (a run with "
            f"retention=LatestOnly keeps only its latest)"
        )
    # Asked twice: the first look avoids a lease on a run that has moved on, the second one counts.
    if new_id in (None, source.run_id) and _is_unmoved(source, await archive.head(source.run_id)):
        await acquire(source.run_id)
        head = await archive.head(source.run_id)
        if head is not None and _is_unmoved(source, head):
            return await _open_head(definition, head, archive)
    run_id = new_id or new_run_id()
    if run_id == source.run_id:
        raise RunError(
            f"checkpoint {id!r} is not the head of run {run_id!r}, so continuing from it starts a new run: "
            f"leave run_id out, or pass another one for the new run",
            run_id=run_id,
        )
    await acquire(run_id)
    if new_id is not None and (head := await archive.head(run_id)) is not None:
        if head.header.parent_id != id:
            raise RunError(f"a run {run_id!r} is stored already, and it was not begun from {id!r}", run_id=run_id)
        return await _open_head(definition, head, archive)
    compatible = make_compatible(definition, source, EMPTY_LOG, afresh=True)
    return ForkedRun(
        compatible.at, replace(create_fork_header(compatible.at, run_id), workflow=definition.name), compatible.changes
    )


def _is_unmoved(source: Checkpoint, head: Checkpoint | None) -> bool:
    """Return whether a run is still in that place: commits that only say it failed or was cancelled move nothing."""
    return head is not None and head.place == source.place


def check_same_start(definition: WorkflowDefinition, head: Checkpoint, message: object) -> None:
    """Raise unless a stored run was started by this workflow with this message."""
    check_same_workflow(definition, head)
    _check_name(definition, head)
    _check_input(definition, head, message)


def plan_first(definition: WorkflowDefinition, at: Checkpoint, log: RecalledLog) -> Plan:
    """Return the first plan of a drive. Raises CheckpointCorrupt if the log has an outcome of another executor."""
    plan = kernel.plan(definition.graph, at.place, at.messages, at.held)
    for delivery in plan.deliveries:
        outcome = log.outcomes.get(delivery.id)
        if outcome is not None and outcome.executor != delivery.executor:
            raise CheckpointCorrupt(
                f"the superstep log of run {at.run_id!r} is damaged at {delivery.id!r}: the outcome is one of "
                f"{outcome.executor!r}, and the delivery is for {delivery.executor!r}"
            )
    return plan


def _check_name(definition: WorkflowDefinition, head: Checkpoint) -> None:
    """Raise RunError if a run to be started is stored under another workflow name. A resume may find it renamed."""
    names = (head.header.workflow, definition.name)
    # Generated names change with the graph.
    if names[0] != names[1] and not all(map(is_default_name, names)):
        raise RunError(
            f"run {head.run_id!r} is stored already, by workflow {head.header.workflow!r}, not {definition.name!r}; "
            f"pass another run_id for the new run, or leave the message out to resume the stored one",
            run_id=head.run_id,
        )


def _check_input(definition: WorkflowDefinition, head: Checkpoint, message: object) -> None:
    _check_digest(head, definition.codec.digest(message, "$.input"))


def _check_digest(head: Checkpoint, digest: str) -> None:
    if head.header.input_digest != digest:
        raise InputMismatch(
            f"run {head.run_id!r} was started with another input; to resume it, leave the message out, "
            f"to start a new run, pass another run_id",
            run_id=head.run_id,
        )
