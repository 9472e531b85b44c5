"""Which runs of a store would some code strand, and why: asked before it is deployed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

from stepwell import kernel
from stepwell.engine.compatibility import CompatibleRun, make_compatible
from stepwell.engine.definition import Definition
from stepwell.errors import CheckpointMissing, CodecError, DurabilityError, GraphChanged, StoreUnavailable
from stepwell.graph.subworkflow import Nesting
from stepwell.model.event import WorkflowRunState
from stepwell.model.payload import Payload
from stepwell.model.superstep import Checkpoint, Child, RecalledLog, is_text
from stepwell.storage.archive import StoreArchive
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import child_run_id
from stepwell.storage.port import RunEntry, Store
from stepwell.workflows.workflow import Workflow

_PAGE = 200  # of the list of runs, at a time
_TRIES = 5

Verdict = Literal["goes on", "migrates", "stranded"]

UNFINISHED = (
    WorkflowRunState.IN_PROGRESS,
    WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS,
    WorkflowRunState.IDLE_WITH_PENDING_REQUESTS,
    WorkflowRunState.FAILED,
)
FINISHED = (WorkflowRunState.CANCELLED, WorkflowRunState.IDLE)


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """What becomes of one run. `why` says it in sentences: what is missing, or what would be changed."""

    run_id: str
    status: WorkflowRunState
    number: int
    verdict: Verdict
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """What becomes of the runs of a workflow with this code."""

    workflow: str
    version: int
    runs: tuple[CheckedRun, ...]

    @property
    def stranded(self) -> tuple[CheckedRun, ...]:
        """Those that could not go on."""
        return self._of("stranded")

    @property
    def migrating(self) -> tuple[CheckedRun, ...]:
        """Those that go on because a migration says how."""
        return self._of("migrates")

    @property
    def going_on(self) -> tuple[CheckedRun, ...]:
        """Those that go on as they are."""
        return self._of("goes on")

    def _of(self, verdict: Verdict) -> tuple[CheckedRun, ...]:
        return tuple(run for run in self.runs if run.verdict == verdict)


async def check(
    storage: BuiltInStorage, workflow: Workflow, *, stored_as: str | None = None, every: bool = False
) -> Checked:
    """Which of the stored runs of a workflow this code could go on with, and why not with the others.

    Looks at the runs that are under way, wait, sleep or failed; with `every` also at those that are done or were
    cancelled. They are found by the name of the workflow; `stored_as` is the name they are stored under, if it is
    another. Of each run the head is read, what was finished in the superstep that is under way, and the runs inside it:
    graph and handlers must have what it needs, every value must be readable, and migrations are tried. Nothing is
    changed, and no handler is called.
    """
    runs: dict[str, CheckedRun] = {}  # one that moves on while we look is listed twice
    name = workflow.name if stored_as is None else stored_as
    async for entry in _entries(storage._store, name, UNFINISHED + FINISHED if every else UNFINISHED):
        run = await _check_run(storage._store, entry, workflow)
        if run is not None:
            runs[run.run_id] = run
    return Checked(name, workflow.version, tuple(runs.values()))


async def _entries(store: Store, name: str, statuses: tuple[WorkflowRunState, ...]) -> AsyncIterator[RunEntry]:
    for status in statuses if is_text(name) else ():
        past: RunEntry | None = None
        while page := await store.runs(workflow=name, status=status.value, past=past, limit=_PAGE):
            for entry in page:
                yield entry
            past = page[-1]


async def find_incompatibilities(store: Store, run_id: str, workflow: Workflow) -> tuple[str, ...]:
    """Why a workflow could not go on with a run, one sentence each; empty if it could."""
    verdict, why = await _verdict(store, run_id, workflow)
    return why if verdict == "stranded" else ()


async def _check_run(store: Store, entry: RunEntry, workflow: Workflow) -> CheckedRun | None:
    try:
        verdict, why = await _verdict(store, entry.run_id, workflow)
    except CheckpointMissing:
        return None  # it was deleted while we looked
    return CheckedRun(entry.run_id, WorkflowRunState(entry.status), entry.number, verdict, why)


async def _verdict(store: Store, run_id: str, workflow: Workflow) -> tuple[Verdict, tuple[str, ...]]:
    try:
        changes = await _Check(store).find_changes(run_id, workflow._definition)
    except (CheckpointMissing, StoreUnavailable):
        raise
    except GraphChanged as changed:
        return "stranded", changed.differences
    except DurabilityError as error:
        return "stranded", (str(error),)
    return ("migrates", tuple(changes)) if changes else ("goes on", ())


class _Check:
    """Goes through a run and those inside it as if it were opened. Raises what opening it would."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find_changes(self, run_id: str, definition: Definition) -> list[str]:
        """What migrations would do to a run; empty if it goes on without."""
        archive = StoreArchive(self._store, definition.codec)
        checkpoint, log = await self._load(archive, run_id)
        signals = await self._store.mail(run_id)
        return await self._check_checkpoint(archive, make_compatible(definition, checkpoint, log, signals), definition)

    async def _load(self, archive: StoreArchive, run_id: str) -> tuple[Checkpoint, RecalledLog]:
        for attempt in range(1, _TRIES + 1):
            checkpoint = await archive.head(run_id)
            if checkpoint is None:
                break
            log = await archive.recall(run_id, checkpoint.place)
            head = await self._store.head(run_id)
            if attempt == _TRIES or (head is not None and head.entry.number == checkpoint.number):
                return checkpoint, log  # else it was moved on while we read
        raise CheckpointMissing(f"no run {run_id!r} is stored here")

    async def _check_checkpoint(
        self, archive: StoreArchive, compatible: CompatibleRun, definition: Definition
    ) -> list[str]:
        for path, payload in _payloads(compatible.at):
            _check_readable(path, payload, compatible.at.run_id)
        _check_limit(compatible.at, definition)
        changes = list(compatible.changes) if compatible.migrations else []
        for child in compatible.at.children.values():
            changes += await self._check_child(archive, compatible.at, child, definition)
        return changes + await self._check_called_runs(compatible, definition)

    async def _check_child(
        self, archive: StoreArchive, checkpoint: Checkpoint, child: Child, definition: Definition
    ) -> list[str]:
        """A run inside that waits; a fork goes on with a fork of it."""
        inner = _inner_definition(definition, child.executor)
        if inner is None:
            return []
        if child.caller == Child.caller_of(checkpoint.run_id, checkpoint.header.epoch):
            return _name_inner_run(child.run_id, await self.find_changes(child.run_id, inner))
        inside = StoreArchive(self._store, inner.codec)
        inside.needed = 0  # also one that keeps only its latest
        source = await inside.find(child.checkpoint_id)
        if source is None:
            raise GraphChanged(
                f"run {child.run_id!r} inside {child.executor!r} is gone",
                differences=[f"run {child.run_id!r} inside {child.executor!r}, which waits for an answer, is gone"],
            )
        return _name_inner_run(
            child.run_id,
            await self._check_checkpoint(inside, make_compatible(inner, source, RecalledLog(), afresh=True), inner),
        )

    async def _check_called_runs(self, compatible: CompatibleRun, definition: Definition) -> list[str]:
        """Runs inside that were called in the superstep that is under way: no checkpoint names them yet."""
        checkpoint, changes = compatible.at, list[str]()
        for delivery in kernel.plan(
            definition.graph, checkpoint.place, checkpoint.messages, checkpoint.held
        ).deliveries:
            inner = _inner_definition(definition, delivery.executor)
            run_id = child_run_id(checkpoint.run_id, checkpoint.header.epoch, delivery.id)
            if inner is None or delivery.id in compatible.log.outcomes or await self._store.head(run_id) is None:
                continue
            changes += _name_inner_run(run_id, await self.find_changes(run_id, inner))
        return changes


def _inner_definition(definition: Definition, executor: str) -> Definition | None:
    nesting = definition.graph.executors[executor]
    inner = nesting.workflow if isinstance(nesting, Nesting) else None
    return inner._definition if isinstance(inner, Workflow) else None


def _name_inner_run(run_id: str, changes: list[str]) -> list[str]:
    return [f"run {run_id!r} inside: {change}" for change in changes]


def _payloads(checkpoint: Checkpoint) -> Iterator[tuple[str, Payload]]:
    yield from ((f"$.state.{key}", value) for key, value in checkpoint.state.items())
    yield from ((f"$.executors.{key}", value) for key, value in checkpoint.executors.items())
    yield from ((f"$.messages.{message.id}", message.payload) for message in checkpoint.messages)
    yield from ((f"$.questions.{request.id}", request.payload) for request in checkpoint.requests.values())
    yield from (
        (f"$.defaults.{request.id}", request.default)
        for request in checkpoint.requests.values()
        if request.default is not None
    )
    for key, by_source in checkpoint.held.items():
        yield from ((f"$.held.{key}", payload) for payloads in by_source.values() for payload in payloads)


def _check_readable(path: str, payload: Payload, run_id: str) -> None:
    try:
        payload.open()
    except CodecError as error:
        inside = error.path.removeprefix("$")
        raise CodecError(error.message, path=path + inside) from error


def _check_limit(checkpoint: Checkpoint, definition: Definition) -> None:
    if checkpoint.messages and checkpoint.since_input >= definition.max_iterations:
        made, limit = checkpoint.since_input, definition.max_iterations
        problem = f"it has made {made} supersteps since its last input, and may make {limit}"
        raise GraphChanged(f"run {checkpoint.run_id!r}: {problem}", differences=[problem])
