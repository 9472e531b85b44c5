"""Reads what a run has come to from what is stored, for handles that did not see it happen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepwell import kernel
from stepwell.engine.failures import handler_error
from stepwell.engine.intake.responses import expiry_error, find_overdue
from stepwell.engine.opening.open_run import STOPPED
from stepwell.errors import HandlerTimeout, RequestExpired, RoutingFailed, RunError, StateConflict, SuperstepLimit
from stepwell.kernel.lifecycle import drop_undone
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.model.event import WorkflowEvent, WorkflowEventSource, WorkflowRunState
from stepwell.storage.archive import Archive
from stepwell.viz.workflow_diagram import Graph
from stepwell.workflows.result import WorkflowRunResult

# Errors of the engine itself keep their class; those of handlers become HandlerFailed, as in `run`.
_ENGINE_ERRORS: dict[str, type[RunError]] = {
    error.__name__: error for error in (RoutingFailed, StateConflict, SuperstepLimit)
}


async def result_at(archive: Archive, head: Checkpoint, graph: Graph) -> WorkflowRunResult:
    """Return everything that led to a checkpoint; of the requests, those that are open there. `graph` is drawn."""
    events: list[WorkflowEvent] = []
    for run_id, commit in await archive.output_commits(head):
        if run_id != head.run_id:  # of the run it was forked from
            events += kernel.output_events(run_id, commit)
    for commit in await _commits_up_to(archive, head):
        events += kernel.events(head.run_id, commit, stored=True, replayed=True)
    events = [event for event in events if event.type != "request_info"]
    events += kernel.request_events(head.run_id, head)
    # The first commit of a fork has no status event.
    events.append(_status(head))
    result = WorkflowRunResult(events, graph=graph)
    result.run_id = head.run_id
    return result


async def events_before(
    archive: Archive, head: Checkpoint, commits: Sequence[Commit], *, rests: bool
) -> list[WorkflowEvent]:
    """Return what a stream of a run shows besides these commits, its latest: requests that are open, and, if that is
    to be shown, what it rests with: the outputs of a completed run, and its status if nothing else is new."""
    events: list[WorkflowEvent] = []
    if rests and head.status is WorkflowRunState.IDLE:
        numbers = {commit.number for commit in commits}
        for run_id, commit in await archive.output_commits(head):
            if run_id != head.run_id or commit.number not in numbers:
                events += kernel.output_events(run_id, commit)
    asked = {id for commit in commits for done in commit.done for id in done.asked}
    events += [event for event in open_requests(head) if event.request_id not in asked]
    if rests and not commits:
        events.append(_status(head))
    return events


def open_requests(head: Checkpoint) -> Iterable[WorkflowEvent]:
    """Return the events of the requests that can be answered: none if the run failed or was cancelled."""
    return () if head.status in STOPPED else kernel.request_events(head.run_id, head)


def _status(head: Checkpoint) -> WorkflowEvent:
    framework = WorkflowEventSource.FRAMEWORK
    return WorkflowEvent(
        "status", run_id=head.run_id, state=head.status, commit=head.number, replayed=True, origin=framework
    )


async def failure_at(archive: Archive, head: Checkpoint) -> RunError:
    """Return the error that a run failed with, as far as it is stored."""
    run_id = head.run_id
    details = next(
        (commit.failures[0] for commit in reversed(await _commits_up_to(archive, head)) if commit.failures), None
    )
    if details is None:
        return RunError(f"run {run_id!r} failed, and the reason is not stored", run_id=run_id)
    if details.error_type == RequestExpired.__name__:
        stored = await archive.look(run_id)  # with the requests of a superstep that is not committed
        early = kernel.early_requests(head, stored.log)
        if late := [request for request in find_overdue(head, early) if request.default is None]:
            return expiry_error(head, late[0])
    error: RunError
    if details.error_type in _ENGINE_ERRORS:
        error = _ENGINE_ERRORS[details.error_type](details.message, run_id=run_id)
    elif details.error_type == HandlerTimeout.__name__:
        error = HandlerTimeout(details.message, run_id=run_id, executor_id=details.executor_id or "")
    else:
        error = handler_error(run_id, details.executor_id, details, stored=True)
    if details.traceback is not None:
        error.add_note(f"where it failed:\n{details.traceback}")
    return error


async def _commits_up_to(archive: Archive, head: Checkpoint) -> list[Commit]:
    """Return the commits that led to a checkpoint, oldest first."""
    return drop_undone([commit for commit in await archive.commits(head.run_id) if commit.number <= head.number])
