"""Opens a run: a new one, the head of a stored one, or a fork of an older checkpoint.

A `Position` says where the caller wants to start. Opening acquires the run and reads it in one call
to the store, decides what the position means for it, and makes the first commit, if there is one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine.opening.compatibility import check_same_workflow, is_changed, make_compatible
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.engine.opening.executor_state import RunExecutors
from stepwell.errors import CheckpointCorrupt, CheckpointMissing, InputMismatch, RoutingFailed, RunError
from stepwell.graph.graph import is_default_name
from stepwell.graph.type_matching import describe
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.commit import Commit, CommitKind, Stamp
from stepwell.model.event import WorkflowRunState
from stepwell.model.log_keys import RecalledLog
from stepwell.model.message import Plan
from stepwell.model.signal import Signal
from stepwell.storage.archive import EMPTY_LOG, Archive, StoredRun
from stepwell.storage.ids import new_run_id, new_stamp


class StartRun(msgspec.Struct, frozen=True):
    """Start with a message; if the run is stored already, resume it, provided it was started with the same one."""

    message: object
    run_id: str
    # The caller chose the id, so the run may be stored already.
    named: bool
    # Of the stored message, if another run starts this one: the message itself may encode differently in newer code.
    digest: str | None = None
    tags: Mapping[str, str] | None = None
    by: str | None = None  # who starts it, as the caller says
    priority: int = 0


class ResumeRun(msgspec.Struct, frozen=True):
    """Resume a stored run from its head."""

    run_id: str
    # Raise Stopped if the run failed or was cancelled, unless it did so in the commit `except_at`.
    unless_stopped: bool = False
    except_at: int | None = None
    by: str | None = None


class FromCheckpoint(msgspec.Struct, frozen=True):
    """Continue from that checkpoint: in its run if no message has moved since, otherwise in a new run."""

    checkpoint_id: str
    run_id: str | None  # of the new run
    # It comes with responses, which must not start a new run by accident.
    only_head: bool = False
    # The tags of the new run; None: those of the run it is forked from.
    tags: Mapping[str, str] | None = None
    by: str | None = None


class RestoreRun(msgspec.Struct, frozen=True):
    """Move a stored run back to one of its earlier checkpoints, and continue from there."""

    run_id: str
    checkpoint_id: str
    by: str | None = None


Position = StartRun | ResumeRun | FromCheckpoint | RestoreRun
AcquireRun = Callable[[str], Awaitable[StoredRun]]

STOPPED = (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED)


class Stopped(Exception):
    """The run failed or was cancelled, and must not be resumed automatically. Never reaches users."""


class StartingPoint(msgspec.Struct, frozen=True):
    """A run that was found: where it continues, and what its first commit is to be."""

    header: RunHeader
    # Where it continues, migrated to this code if necessary; None for a new run.
    at: Checkpoint | None = None
    # The kind of the first commit; None if the run continues from its head.
    first: CommitKind | None = None
    message: object = None  # of a new run
    head: Checkpoint | None = None  # as it is stored, if that is not `at`
    log: RecalledLog = EMPTY_LOG
    signals: Mapping[str, Signal] = {}
    # What this code changed, in sentences.
    changes: tuple[str, ...] = ()
    # It is completed and has no signals: there is nothing to drive.
    replay_only: bool = False

    @property
    def run_id(self) -> str:
        return self.header.run_id

    @property
    def is_continued(self) -> bool:
        """Whether the run continues where it was, perhaps migrated to this code."""
        return self.first is None or self.first is CommitKind.MIGRATED


async def open_run(
    definition: WorkflowDefinition, position: Position, archive: Archive, acquire: AcquireRun
) -> StartingPoint:
    """Find out what a position means. The run is read after its lease is acquired, so that it cannot move."""
    match position:
        case StartRun(run_id=run_id):
            stored = await acquire(run_id)
            if stored.head is None:
                return start_run(definition, position, archive)
            if position.digest is None:
                check_same_start(definition, stored.head, position.message)
            else:
                _check_digest(stored.head, position.digest)
            return _continue(definition, stored.head, stored)
        case ResumeRun(run_id=run_id):
            stored = await acquire(run_id)
            if stored.head is None:
                raise _missing_error(archive, run_id)
            if position.unless_stopped and stored.head.status in STOPPED and stored.head.number != position.except_at:
                raise Stopped
            return _continue(definition, stored.head, stored)
        case RestoreRun(run_id=run_id, checkpoint_id=id):
            stored = await acquire(run_id)
            return _move_back(definition, stored, run_id, id, await archive.find(id))
        case FromCheckpoint():
            return await _open_checkpoint(definition, position, archive, acquire)


def _missing_error(archive: Archive, run_id: str) -> CheckpointMissing:
    if not archive.is_durable:
        return CheckpointMissing(
            "a run can be resumed only from where it was stored: pass checkpoint_storage to run() or to the builder"
        )
    return CheckpointMissing(
        f"no run {run_id!r} is stored; to start it, pass a message, which may be None: run(None, run_id=...)"
    )


def start_run(definition: WorkflowDefinition, position: StartRun, archive: Archive) -> StartingPoint:
    """Return the starting point of a new run. Raises RoutingFailed if its start executor does not accept the input."""
    message, run_id = position.message, position.run_id
    start = definition.graph.executors[definition.graph.start]
    # A run that is not stored is never compared with another call of it.
    digest = position.digest or (definition.codec.digest(message, "$.input") if archive.is_durable else "")
    if not start.can_handle(message):
        accepted = " | ".join(describe(input_type) for input_type in start.input_types)
        raise RoutingFailed(
            f"the start executor {start.id!r} accepts {accepted}, but the message is of type {type(message).__name__}",
            run_id=run_id,
        )
    header = RunHeader(
        run_id,
        definition.name,
        definition.signature,
        digest,
        tags=position.tags or {},
        version=definition.version,
        priority=position.priority,
        code=definition.code,
    )
    return StartingPoint(header, first=CommitKind.INPUT, message=message)


def _continue(definition: WorkflowDefinition, head: Checkpoint, stored: StoredRun) -> StartingPoint:
    """Return a stored run as this code resumes it. Raises GraphChanged if it cannot.

    A completed run needs no executor, so as long as it has no signals its outputs can be replayed
    even if its workflow has changed.
    """
    changed = is_changed(definition, head)
    if changed and head.status is WorkflowRunState.IDLE and not stored.signals:
        check_same_workflow(definition, head)
        return StartingPoint(head.header, head, replay_only=True)
    compatible = make_compatible(definition, head, stored.log, stored.signals if changed else {})
    return StartingPoint(
        compatible.at.header,
        compatible.at,
        CommitKind.MIGRATED if changed else None,
        head=head,
        log=compatible.log,
        signals=stored.signals,
        changes=compatible.changes,
    )


def _move_back(
    definition: WorkflowDefinition, stored: StoredRun, run_id: str, id: str, source: Checkpoint | None
) -> StartingPoint:
    if stored.head is None:
        raise CheckpointMissing(f"no run {run_id!r} is stored, so it cannot be moved back")
    if source is None or source.run_id != run_id:
        raise CheckpointMissing(f"run {run_id!r} has no checkpoint {id!r} to be moved back to")
    compatible = make_compatible(definition, source, EMPTY_LOG, afresh=True)
    at, header = compatible.at, stored.head.header
    as_then = {"signature": at.header.signature, "version": at.header.version, "tags": at.header.tags}
    moved = replace(header, epoch=header.epoch + 1, **as_then)
    return StartingPoint(
        moved,
        at,
        CommitKind.RESTORED,
        # With the requests of its superstep log, which the restore closes.
        head=replace(stored.head, requests=kernel.open_requests(stored.head, stored.log)),
        signals=stored.signals,
        changes=compatible.changes,
    )


async def _open_checkpoint(
    definition: WorkflowDefinition, position: FromCheckpoint, archive: Archive, acquire: AcquireRun
) -> StartingPoint:
    id, new_id = position.checkpoint_id, position.run_id
    source = await archive.find(id)
    if source is None:
        raise _no_checkpoint_error(archive, id)
    # Asked twice: the first look avoids a lease on a run that has moved on, the second one counts.
    if new_id in (None, source.run_id) and _is_unmoved(source, await archive.head(source.run_id)):
        stored = await acquire(source.run_id)
        if stored.head is not None and _is_unmoved(source, stored.head):
            return _continue(definition, stored.head, stored)
    run_id = new_id or new_run_id()
    if position.only_head:
        raise RunError(
            f"run {source.run_id!r} has moved on from checkpoint {id!r}, so its requests there can be "
            f"answered only in a new run: name it with run_id",
            run_id=source.run_id,
        )
    if run_id == source.run_id:
        raise RunError(
            f"checkpoint {id!r} is not the head of run {run_id!r}, so continuing from it starts a new run: "
            f"leave run_id out, or pass another one for the new run",
            run_id=run_id,
        )
    stored = await acquire(run_id)
    if stored.head is not None:
        if stored.head.header.parent_id != id:
            raise RunError(f"a run {run_id!r} is stored already, and it was not forked from {id!r}", run_id=run_id)
        return _continue(definition, stored.head, stored)
    compatible = make_compatible(definition, source, EMPTY_LOG, afresh=True)
    tags = compatible.at.header.tags if position.tags is None else position.tags
    header = replace(create_fork_header(compatible.at, run_id), workflow=definition.name, tags=tags)
    return StartingPoint(header, compatible.at, CommitKind.FORKED, changes=compatible.changes)


def _no_checkpoint_error(archive: Archive, id: str) -> CheckpointMissing:
    if not archive.is_durable:
        return _missing_error(archive, "")
    return CheckpointMissing(
        f"no checkpoint {id!r} is stored; list_checkpoint_ids() of the storage lists them (a run with "
        f"retention=LatestOnly keeps only its latest)"
    )


def _is_unmoved(source: Checkpoint, head: Checkpoint | None) -> bool:
    """Return whether a run is still in that place: commits that only say it failed or was cancelled move nothing."""
    return head is not None and head.place == source.place


async def make_first_commit(
    definition: WorkflowDefinition,
    run: StartingPoint,
    archive: Archive,
    executors: RunExecutors,
    *,
    by: str | None = None,
) -> tuple[Checkpoint, Commit | None]:
    """Return where the drive starts, and the first commit of a new, forked, restored or migrated run, stored."""
    at, header = run.at, run.header
    if at is not None and not run.replay_only and not executors.are_live:
        await executors.restore_all(at.executors)
    number = 0 if run.head is None else run.head.number + 1
    stamp = new_stamp(header.run_id, header.epoch, number)
    previous_id, place = header.parent_id, None
    consumed: tuple[str, ...] = ()
    match run.first:
        case None:
            assert at is not None
            return at, None
        case CommitKind.INPUT:
            first = await create_input_commit(definition, run.message, archive, executors, stamp)
        case CommitKind.FORKED:
            assert at is not None
            first = await create_fork_commit(at, header, archive)
        case CommitKind.RESTORED:
            assert at is not None
            assert run.head is not None
            first, previous_id = kernel.restore(run.head, at, stamp), at.stamp.checkpoint_id
            # Pending signals are consumed: they were meant for the run as it was.
            place, consumed = run.head.place, tuple(run.signals)
        case _:
            assert at is not None
            assert run.head is not None
            first, previous_id = kernel.migrate(run.head, at, run.changes, stamp), run.head.stamp.checkpoint_id
    first = replace(first, migrated=run.changes, by=by)
    after = kernel.apply(header, None, first, previous_id=previous_id)
    await archive.commit(first, after, drop_log_through=place, consumed=consumed)
    return after, first


async def create_input_commit(
    definition: WorkflowDefinition, message: object, archive: Archive, executors: RunExecutors, stamp: Stamp
) -> Commit:
    """Return the first commit of a new run: its input, and its executors as they are."""
    payload = archive.pack(message, "$.input")
    return kernel.begin(definition.graph.start, payload, await executors.save_all(), stamp)


async def create_fork_commit(source: Checkpoint, header: RunHeader, archive: Archive) -> Commit:
    """Return the first commit of a fork, with copies of the sub-workflow runs that its source waits for."""
    source = replace(source, children=await archive.copy_children_for_fork(source, header.run_id))
    return kernel.fork(source, new_stamp(header.run_id, header.epoch, 0))


def create_fork_header(source: Checkpoint, run_id: str) -> RunHeader:
    """Return the header of a fork: that of its source, and where it was forked."""
    origin = {"parent_id": source.stamp.checkpoint_id, "parent_run": source.run_id, "parent_number": source.number}
    return replace(source.header, **origin, run_id=run_id, epoch=0)


def check_same_start(definition: WorkflowDefinition, head: Checkpoint, message: object) -> None:
    """Raise unless a stored run was started by this workflow with this message."""
    check_same_workflow(definition, head)
    names = (head.header.workflow, definition.name)
    # A resume may find the workflow renamed; a start may not. Generated names change with the graph.
    if names[0] != names[1] and not all(map(is_default_name, names)):
        raise RunError(
            f"run {head.run_id!r} is stored already, by workflow {head.header.workflow!r}, not {definition.name!r}; "
            f"pass another run_id for the new run, or leave the message out to resume the stored one",
            run_id=head.run_id,
        )
    _check_digest(head, definition.codec.digest(message, "$.input"))


def _check_digest(head: Checkpoint, digest: str) -> None:
    if head.header.input_digest != digest:
        raise InputMismatch(
            f"run {head.run_id!r} was started with another input; to resume it, leave the message out, "
            f"to start a new run, pass another run_id",
            run_id=head.run_id,
        )


def plan_first(definition: WorkflowDefinition, at: Checkpoint, log: RecalledLog) -> Plan:
    """Return the first plan of a drive. Raises CheckpointCorrupt if the log has an outcome of another executor."""
    plan = kernel.plan(definition.graph, at.place, at.messages, at.held)
    for delivery in plan.deliveries:
        outcome = log.outcomes.get(delivery.id)
        if outcome is not None and outcome.executor != delivery.executor:
            raise CheckpointCorrupt(
                f"the superstep log of run {at.run_id!r} is damaged at {delivery.id!r}: the outcome belongs to "
                f"{outcome.executor!r}, and the delivery is for {delivery.executor!r}"
            )
    return plan
