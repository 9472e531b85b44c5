"""Where a drive begins: a new run, the head of a stored one, or a fork of an older checkpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine.commit import store_commit
from stepwell.engine.compatibility import check_same_workflow, is_changed, make_compatible
from stepwell.engine.definition import WorkflowDefinition
from stepwell.engine.executors import RunExecutors
from stepwell.errors import CheckpointCorrupt, CheckpointMissing, InputMismatch, RoutingFailed, RunError
from stepwell.graph.executor import Executor
from stepwell.graph.graph import is_default_name
from stepwell.graph.type_matching import describe
from stepwell.model.event import WorkflowRunState
from stepwell.model.payload import Pack
from stepwell.model.superstep import Checkpoint, Commit, CommitKind, Plan, RecalledLog, RunHeader, Stamp
from stepwell.storage import clock
from stepwell.storage.archive import Archive
from stepwell.storage.ids import checkpoint_id, new_run_id


class Fresh(msgspec.Struct, frozen=True):
    """Start with a message; if a run of that id is stored, go on with it, provided it began with the same."""

    message: object
    run_id: str
    named: bool  # the id was given, so it may be stored already
    digest: str | None = None  # of the message as it is stored, if another run calls this one with it
    tags: Mapping[str, str] | None = None


class Continue(msgspec.Struct, frozen=True):
    """Go on from the head of a stored run."""

    run_id: str
    unless_stopped: bool = False  # nobody has said that it is to go on if it failed or was cancelled,
    except_at: int | None = None  # unless it is this commit that says so


class Rewind(msgspec.Struct, frozen=True):
    """Go on from exactly that checkpoint: the head continues its run, an older one starts a new run."""

    checkpoint_id: str
    run_id: str | None  # the name of the new run
    only_head: bool = False  # it comes with answers: they must not start a run nobody asked for
    tags: Mapping[str, str] | None = None  # of the new run; None: those of the run it begins from


class MoveBack(msgspec.Struct, frozen=True):
    """Move a stored run back to one of its earlier checkpoints, and go on from there."""

    run_id: str
    checkpoint_id: str


class Suspended(msgspec.Struct, frozen=True):
    """Go on with a run that is kept nowhere but in this process."""

    at: Checkpoint
    output_commits: Sequence[Commit]  # those with outputs so far
    executors: Mapping[str, Executor]


Position = Fresh | Continue | Rewind | MoveBack | Suspended
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
    at: Checkpoint  # as this code goes on with it
    log: RecalledLog = EMPTY_LOG
    before: Checkpoint | None = None  # as it is stored, if this code takes it over from other code
    words: tuple[str, ...] = ()  # what is not as it was then
    replay_only: bool = False  # it is done, and there is nothing to take in: it is only told again

    @property
    def run_id(self) -> str:
        return self.at.run_id

    @property
    def checkpoint(self) -> Checkpoint:
        return self.at


class ForkedRun(msgspec.Struct, frozen=True):
    source: Checkpoint
    header: RunHeader
    words: tuple[str, ...] = ()  # what this code has made of it

    @property
    def run_id(self) -> str:
        return self.header.run_id

    @property
    def checkpoint(self) -> Checkpoint:
        return self.source


class RestoredRun(msgspec.Struct, frozen=True):
    """A run that is moved back: where it is, and where to."""

    head: Checkpoint
    source: Checkpoint
    words: tuple[str, ...] = ()  # what this code has made of it

    @property
    def run_id(self) -> str:
        return self.head.run_id

    @property
    def checkpoint(self) -> Checkpoint:
        return self.source


FoundRun = NewRun | StoredRun | ForkedRun | RestoredRun

STOPPED = (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED)


class Stopped(Exception):
    """The run failed or was cancelled, and is not to go on by itself. Never leaves the library."""


class EnteredRun(msgspec.Struct, frozen=True):
    """A run that can be moved on."""

    at: Checkpoint
    first: Commit | None  # the commit that was just made; None if the run went on from its head
    log: RecalledLog = EMPTY_LOG
    replay_only: bool = False  # it is only told again

    @property
    def is_continued(self) -> bool:
        """Whether it stands where it stood before, perhaps taken over from other code."""
        return self.first is None or self.first.kind is CommitKind.MIGRATED


def stamp(run_id: str, epoch: int, number: int) -> Stamp:
    return Stamp(checkpoint_id(run_id, epoch, number), clock.stamp())


async def find_run(
    definition: WorkflowDefinition, position: Position, archive: Archive | None, acquire: AcquireLease
) -> FoundRun:
    """What a position means. A stored run is claimed before its head is read."""
    if isinstance(position, Suspended):
        return StoredRun(position.at)
    if archive is None:
        return _start_in_memory(definition, position)
    match position:
        case Fresh(message=message, run_id=run_id, named=named):
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
        case Continue(run_id=run_id):
            await acquire(run_id)
            head = await archive.head(run_id)
            if head is None:
                raise CheckpointMissing(
                    f"no run {run_id!r} is stored; give a message to start it, if need be None: run(None, run_id=...)"
                )
            if position.unless_stopped and head.status in STOPPED and head.number != position.except_at:
                raise Stopped
            return await _open_head(definition, head, archive)
        case MoveBack(run_id=run_id, checkpoint_id=id):
            return await _find_restore_source(definition, archive, run_id, id, acquire)
        case Rewind(checkpoint_id=id, run_id=new_id):
            rewound = await _rewind(definition, archive, id, new_id, acquire)
            if isinstance(rewound, ForkedRun) and position.tags is not None:
                rewound = replace(rewound, header=replace(rewound.header, tags=position.tags))
            if isinstance(rewound, ForkedRun) and position.only_head:
                raise RunError(
                    f"run {rewound.source.run_id!r} has moved on from checkpoint {id!r}, so what it asked there can be "
                    f"answered only in a new run: give it a name with run_id",
                    run_id=rewound.source.run_id,
                )
            return rewound


async def enter_run(
    definition: WorkflowDefinition, run: FoundRun, archive: Archive | None, executors: RunExecutors, pack: Pack
) -> EnteredRun:
    """Make what was found ready to move on; the first commit of a new run is made here."""
    match run:
        case StoredRun(at=at, log=log, replay_only=over):
            if over:
                return EnteredRun(at, None, replay_only=True)
            await executors.restore_all(at.executors)
            if run.before is None or archive is None:
                return EnteredRun(at, None, log)
            return await _take_over(run, run.before, archive)
        case RestoredRun(head=head, source=source, words=words):
            await executors.restore_all(source.executors)
            return await _commit_restore(head, source, words, archive)
        case ForkedRun(source=source, header=header, words=words):
            first = replace(await create_fork_commit(source, header, archive), migrated=words)
            await executors.restore_all(source.executors)
        case NewRun(header=header, message=message):
            payload = pack(message, "$.input")
            first = kernel.begin(
                definition.graph.start, payload, await executors.save_all(), stamp(header.run_id, header.epoch, 0)
            )
    at = kernel.apply(header, None, first, previous_id=header.parent_id)
    if archive is not None:
        await store_commit(archive, first, at)
    return EnteredRun(at, first)


async def create_fork_commit(source: Checkpoint, header: RunHeader, archive: Archive | None) -> Commit:
    """The first commit of a run that goes on from a checkpoint, with what it needs of the runs inside that one."""
    if archive is not None:
        source = replace(source, children=await archive.inside_fork(source, header.run_id))
    return kernel.fork(source, stamp(header.run_id, header.epoch, 0))


def create_fork_header(source: Checkpoint, run_id: str) -> RunHeader:
    """What is known of a run that goes on from a checkpoint: as the run it goes on from, and where that was."""
    origin = {"parent_id": source.stamp.checkpoint_id, "parent_run": source.run_id, "parent_number": source.number}
    return replace(source.header, **origin, run_id=run_id, epoch=0)


async def _open_head(definition: WorkflowDefinition, head: Checkpoint, archive: Archive) -> StoredRun:
    """A stored run as this code goes on with it. Raises GraphChanged if it cannot.

    One that is done asks nothing of anybody: as long as there is nothing to take in, its outputs can be told again by
    whatever has become of its workflow.
    """
    changed = is_changed(definition, head)
    signals = await archive.pending_signals(head.run_id) if changed else []
    if changed and head.status is WorkflowRunState.IDLE and not signals:
        check_same_workflow(definition, head)
        return StoredRun(head, replay_only=True)
    await archive.drop_left_over(head)
    compatible = make_compatible(definition, head, await _recall(head, archive), signals)
    return StoredRun(compatible.at, compatible.log, head if changed else None, compatible.words)


async def _take_over(run: StoredRun, before: Checkpoint, archive: Archive) -> EnteredRun:
    """Commit that this code goes on with a run that other code began, and what it made of it for that."""
    here = stamp(before.run_id, before.header.epoch, before.number + 1)
    first = kernel.migrate(before, run.at, run.words, here)
    at = kernel.apply(run.at.header, None, first, previous_id=before.stamp.checkpoint_id)
    await store_commit(archive, first, at)
    return EnteredRun(at, first, run.log)


async def _recall(at: Checkpoint, archive: Archive) -> RecalledLog:
    """What was finished at a place. Raises CommitConflict if the run was moved on while we were held up.

    Then the memory is gone, and to take that for one that never was would be to do again what is committed.
    """
    log = await archive.read_log(at.run_id, at.place)
    if at.messages:
        await archive.check_newest(at)
    return log


async def _commit_restore(
    head: Checkpoint, source: Checkpoint, words: tuple[str, ...], archive: Archive | None
) -> EnteredRun:
    """What was posted to the run as it was is consumed: it was meant for what is no more."""
    graph = {"signature": source.header.signature, "version": source.header.version}
    header = replace(head.header, epoch=head.header.epoch + 1, **graph)
    first = kernel.restore(head, source, stamp(head.run_id, header.epoch, head.number + 1))
    first = replace(first, migrated=words)
    at = kernel.apply(header, None, first, previous_id=source.stamp.checkpoint_id)
    if archive is not None:
        keys = tuple(key for key, _ in await archive.pending_signals(head.run_id))
        await store_commit(archive, first, at, settled=head.place, consumed=keys)
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
    return RestoredRun(head, compatible.at, compatible.words)


def _start_in_memory(definition: WorkflowDefinition, position: Fresh | Continue | Rewind | MoveBack) -> NewRun:
    if not isinstance(position, Fresh):
        raise CheckpointMissing(
            "a run can be resumed only from where it was stored: give checkpoint_storage to run() or to the builder"
        )
    return _start(definition, position, digest="")


def _start(definition: WorkflowDefinition, position: Fresh, digest: str) -> NewRun:
    message, run_id = position.message, position.run_id
    start = definition.graph.executors[definition.graph.start]
    if not start.can_handle(message):
        accepted = " | ".join(describe(input_type) for input_type in start.input_types)
        raise RoutingFailed(
            f"the start executor {start.id!r} takes {accepted}, not the {type(message).__name__} that run() was given",
            run_id=run_id,
        )
    tags, version = position.tags or {}, definition.version
    header = RunHeader(run_id, definition.name, definition.signature, digest, tags=tags, version=version)
    return NewRun(header, message)


async def _rewind(
    definition: WorkflowDefinition, archive: Archive, id: str, new_id: str | None, acquire: AcquireLease
) -> StoredRun | ForkedRun:
    source = await archive.find(id)
    if source is None:
        raise CheckpointMissing(
            f"no checkpoint {id!r} is stored; list_checkpoint_ids() of the storage says which are (a run with "
            f"retention=LatestOnly keeps only its latest)"
        )
    if new_id in (None, source.run_id) and _nothing_since(source, await archive.head(source.run_id)):
        await acquire(source.run_id)
        head = await archive.head(source.run_id)
        if head is not None and _nothing_since(source, head):
            return await _open_head(definition, head, archive)
    run_id = new_id or new_run_id()
    if run_id == source.run_id:
        raise RunError(
            f"checkpoint {id!r} is not the head of run {run_id!r}; going on from it starts a new run: "
            f"leave run_id out, or give the new run a name of its own",
            run_id=run_id,
        )
    await acquire(run_id)
    if new_id is not None and (head := await archive.head(run_id)) is not None:
        if head.header.parent_id != id:
            raise RunError(f"a run {run_id!r} is stored already, and it was not begun from {id!r}", run_id=run_id)
        return await _open_head(definition, head, archive)
    compatible = make_compatible(definition, source, EMPTY_LOG, afresh=True)
    return ForkedRun(
        compatible.at, replace(create_fork_header(compatible.at, run_id), workflow=definition.name), compatible.words
    )


def _nothing_since(source: Checkpoint, head: Checkpoint | None) -> bool:
    """True if the run stands where it stood: commits that only say it failed or was cancelled move nothing."""
    return head is not None and head.place == source.place


def check_same_start(definition: WorkflowDefinition, head: Checkpoint, message: object) -> None:
    """Raises unless a stored run is one that this workflow began with this message."""
    check_same_workflow(definition, head)
    _check_name(definition, head)
    _check_input(definition, head, message)


def plan_next(definition: WorkflowDefinition, at: Checkpoint, log: RecalledLog) -> Plan:
    """What is to be done next. Raises CheckpointCorrupt if what is remembered of it was done by somebody else."""
    plan = kernel.plan(definition.graph, at.place, at.messages, at.held)
    for delivery in plan.deliveries:
        outcome = log.outcomes.get(delivery.id)
        if outcome is not None and outcome.executor != delivery.executor:
            raise CheckpointCorrupt(
                f"what run {at.run_id!r} remembered as {delivery.id!r} is damaged: it was done by "
                f"{outcome.executor!r}, and is for {delivery.executor!r}"
            )
    return plan


def _check_name(definition: WorkflowDefinition, head: Checkpoint) -> None:
    """To start a run is to start it in this workflow; only a resume may find it renamed."""
    names = (head.header.workflow, definition.name)
    if names[0] != names[1] and not all(map(is_default_name, names)):  # those that nobody gave follow the graph
        raise RunError(
            f"run {head.run_id!r} is stored already, and it is one of the workflow {head.header.workflow!r}, not of "
            f"{definition.name!r}; give the new run an id of its own, or leave the message out to go on with that one",
            run_id=head.run_id,
        )


def _check_input(definition: WorkflowDefinition, head: Checkpoint, message: object) -> None:
    _check_digest(head, definition.codec.digest(message, "$.input"))


def _check_digest(head: Checkpoint, digest: str) -> None:
    if head.header.input_digest != digest:
        raise InputMismatch(
            f"run {head.run_id!r} was started with another input; to go on with it leave the message out, "
            f"to start a new run give another run_id",
            run_id=head.run_id,
        )
