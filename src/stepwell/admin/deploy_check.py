"""Checks before a deployment which stored runs the new code could not continue, and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from stepwell import kernel
from stepwell.admin.lookup import pages_of_runs
from stepwell.engine.drive.dry_replay import replay
from stepwell.engine.opening.compatibility import CompatibleRun, make_compatible
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.errors import CheckpointMissing, CodecError, DurabilityError, GraphChanged, StoreUnavailable
from stepwell.graph.subworkflow import Nesting
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.child import Child
from stepwell.model.event import WorkflowRunState
from stepwell.model.log_keys import RecalledLog
from stepwell.model.payload import Payload
from stepwell.model.status_words import Standing
from stepwell.model.valid_text import is_text
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import RunFilter
from stepwell.storage.ids import child_run_id
from stepwell.storage.port import Store
from stepwell.storage.run_list import run_info
from stepwell.storage.store_archive import StoreArchive
from stepwell.workflows.workflow import Workflow

_PAGE = 200  # runs per page of the list

Verdict = Literal["compatible", "migrates", "incompatible"]

UNFINISHED = (
    WorkflowRunState.IN_PROGRESS,
    WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS,
    WorkflowRunState.IDLE_WITH_PENDING_REQUESTS,
    WorkflowRunState.FAILED,
)
FINISHED = (WorkflowRunState.CANCELLED, WorkflowRunState.IDLE)


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """The verdict on one run.

    `why` explains it in sentences: what is missing, or what a migration would change. `suggestions` says what
    the missing parts may have become, each with the migration that would declare it.
    """

    run_id: str
    status: WorkflowRunState
    standing: Standing  # how it stands: see `RunInfo.standing`
    number: int
    verdict: Verdict
    why: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdicts on the stored runs of a workflow."""

    workflow: str
    version: int
    runs: tuple[CheckedRun, ...]
    is_whole: bool = True  # False: there are more runs than the limit

    @property
    def incompatible(self) -> tuple[CheckedRun, ...]:
        """Return the runs this code cannot continue."""
        return self._of("incompatible")

    @property
    def migrating(self) -> tuple[CheckedRun, ...]:
        """Return the runs this code can continue after a declared migration."""
        return self._of("migrates")

    @property
    def compatible(self) -> tuple[CheckedRun, ...]:
        """Return the runs this code can continue as they are."""
        return self._of("compatible")

    def _of(self, verdict: Verdict) -> tuple[CheckedRun, ...]:
        return tuple(run for run in self.runs if run.verdict == verdict)


async def check(
    storage: BuiltInStorage,
    workflow: Workflow,
    *,
    stored_as: str | None = None,
    every: bool = False,
    limit: int | None = None,
) -> Checked:
    """Return which stored runs of a workflow this code can continue, and why not the others.

    Checks the runs that are running, waiting, sleeping or failed; with `every` also those that are
    completed or cancelled; at most `limit` runs. Runs are found by the name of the workflow; pass
    `stored_as` if they are stored under another name. For each run the head, the superstep log and the runs of its
    sub-workflows are read: graph and handlers must have what the run needs, every value must be
    readable, and migrations are tried. Nothing is changed, and no handler is called, except durable
    functions: they are replayed up to their first new step, on their recorded steps, and must find them all.
    """
    # By id: a run whose status changes while we list them appears under both statuses.
    runs: dict[str, CheckedRun] = {}
    name = workflow.name if stored_as is None else stored_as
    for status in (UNFINISHED + FINISHED if every else UNFINISHED) if is_text(name) else ():
        async for page in pages_of_runs(storage._store, RunFilter(workflow=name, status=status.value), _PAGE):
            for entry in page:
                if limit is not None and len(runs) >= limit and entry.run_id not in runs:
                    return Checked(name, workflow.version, tuple(runs.values()), is_whole=False)
                with suppress(CheckpointMissing):  # deleted after it was listed
                    verdict, why, suggestions = await _verdict(storage._store, entry.run_id, workflow)
                    run = run_info(entry)
                    runs[entry.run_id] = CheckedRun(
                        run.run_id,
                        run.status,
                        standing=run.standing,
                        number=run.number,
                        verdict=verdict,
                        why=why,
                        suggestions=suggestions,
                    )
    return Checked(name, workflow.version, tuple(runs.values()))


async def find_incompatibilities(store: Store, run_id: str, workflow: Workflow) -> tuple[str, ...]:
    """Return why a workflow cannot continue a run, one sentence each; empty if it can."""
    verdict, why, suggestions = await _verdict(store, run_id, workflow)
    return (*why, *suggestions) if verdict == "incompatible" else ()


async def _verdict(store: Store, run_id: str, workflow: Workflow) -> tuple[Verdict, tuple[str, ...], tuple[str, ...]]:
    """Return the verdict on a run, why, and suggestions."""
    try:
        changes = await _find_changes(store, run_id, workflow._definition)
    except (CheckpointMissing, StoreUnavailable):
        # Both are DurabilityErrors, but say nothing about the code.
        raise
    except GraphChanged as changed:
        return "incompatible", changed.differences, changed.suggestions
    except DurabilityError as error:
        return "incompatible", (str(error),), ()
    return ("migrates", tuple(changes), ()) if changes else ("compatible", (), ())


# Opens a run and the runs of its sub-workflows for reading only. Raises what a drive would raise at
# its start.
async def _find_changes(store: Store, run_id: str, definition: WorkflowDefinition) -> list[str]:
    """Return what migrations would change in a run, in sentences; empty if it needs none."""
    stored = await StoreArchive(store, definition.codec).look(run_id)
    if stored.head is None:
        raise CheckpointMissing(f"run {run_id!r} is not in this store")
    compatible = make_compatible(definition, stored.head, stored.log, stored.signals)
    return await _check_checkpoint(store, compatible, definition)


async def _check_checkpoint(store: Store, compatible: CompatibleRun, definition: WorkflowDefinition) -> list[str]:
    checkpoint = compatible.at
    for path, payload in _payloads(checkpoint):
        _check_readable(path, payload)
    if checkpoint.messages and checkpoint.since_input >= definition.max_iterations:
        made, limit = checkpoint.since_input, definition.max_iterations
        problem = f"it has made {made} supersteps since its last input, and the limit is {limit}"
        raise GraphChanged(f"run {checkpoint.run_id!r}: {problem}", differences=[problem])
    await _check_recorded_steps(compatible, definition)
    changes = list(compatible.changes) if compatible.migrations else []
    for child in checkpoint.children.values():
        changes += await _check_child(store, checkpoint, child, definition)
    return changes + await _check_called_runs(store, compatible, definition)


async def _check_recorded_steps(compatible: CompatibleRun, definition: WorkflowDefinition) -> None:
    """Raise GraphChanged if a durable function that is under way no longer finds the steps that it made."""
    at, log = compatible.at, compatible.log
    for delivery in kernel.plan(definition.graph, at.place, at.messages, at.held).deliveries:
        if not definition.graph.executors[delivery.executor]._is_durable_function or delivery.id in log.outcomes:
            continue
        changed = await replay(definition, at, log, delivery)
        if changed is not None:
            raise GraphChanged(str(changed), differences=[str(changed)])


async def _check_child(store: Store, checkpoint: Checkpoint, child: Child, definition: WorkflowDefinition) -> list[str]:
    """Check the waiting run of a sub-workflow; a forked caller continues with a fork of it."""
    inner = _inner_definition(definition, child.executor)
    if inner is None:
        return []
    if child.caller == Child.caller_of(checkpoint.run_id, checkpoint.header.epoch):
        return _name_inner_run(child.run_id, await _find_changes(store, child.run_id, inner))
    # The caller was forked or restored: the checkpoint it refers to belongs to the run before,
    # and is not necessarily its head. `needed = 0` also finds it in a run that keeps only its
    # latest checkpoint.
    source = await StoreArchive(store, inner.codec, needed=0).find(child.checkpoint_id)
    if source is None:
        problem = f"run {child.run_id!r} of the sub-workflow {child.executor!r}"
        raise GraphChanged(
            f"{problem} is not stored any more",
            differences=[f"{problem}, which waits for an answer, is not stored any more"],
        )
    compatible = make_compatible(inner, source, RecalledLog(), afresh=True)
    return _name_inner_run(child.run_id, await _check_checkpoint(store, compatible, inner))


async def _check_called_runs(store: Store, compatible: CompatibleRun, definition: WorkflowDefinition) -> list[str]:
    """Check the sub-workflow runs that the current superstep has called.

    No checkpoint refers to them yet.
    """
    checkpoint, changes = compatible.at, list[str]()
    plan = kernel.plan(definition.graph, checkpoint.place, checkpoint.messages, checkpoint.held)
    for delivery in plan.deliveries:
        inner = _inner_definition(definition, delivery.executor)
        # The id is derived, so whether the sub-workflow was called shows in whether such a run
        # exists.
        run_id = child_run_id(checkpoint.run_id, checkpoint.header.epoch, delivery.id)
        if inner is None or delivery.id in compatible.log.outcomes or await store.run(run_id) is None:
            continue
        changes += _name_inner_run(run_id, await _find_changes(store, run_id, inner))
    return changes


def _inner_definition(definition: WorkflowDefinition, executor: str) -> WorkflowDefinition | None:
    nesting = definition.graph.executors[executor]
    inner = nesting.workflow if isinstance(nesting, Nesting) else None
    return inner._definition if isinstance(inner, Workflow) else None


def _name_inner_run(run_id: str, changes: list[str]) -> list[str]:
    return [f"sub-workflow run {run_id!r}: {change}" for change in changes]


def _payloads(checkpoint: Checkpoint) -> Iterator[tuple[str, Payload]]:
    yield from ((f"$.state.{key}", value) for key, value in checkpoint.state.items())
    yield from ((f"$.executors.{key}", value) for key, value in checkpoint.executors.items())
    yield from ((f"$.messages.{message.id}", message.payload) for message in checkpoint.messages)
    yield from ((f"$.requests.{request.id}", request.payload) for request in checkpoint.requests.values())
    yield from (
        (f"$.defaults.{request.id}", request.default)
        for request in checkpoint.requests.values()
        if request.default is not None
    )
    for key, by_source in checkpoint.held.items():
        yield from ((f"$.held.{key}", payload) for payloads in by_source.values() for payload in payloads)


def _check_readable(path: str, payload: Payload) -> None:
    try:
        payload.open()
    except CodecError as error:
        # The codec counts from the payload; people need the path from the checkpoint.
        raise CodecError(error.message, path=path + error.path.removeprefix("$")) from error
