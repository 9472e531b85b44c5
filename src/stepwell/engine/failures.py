"""What went wrong: as an error for the caller, and as details for the history."""

from __future__ import annotations

import asyncio
import traceback

import msgspec

from stepwell.errors import HandlerFailed, HandlerTimeout, StepwellError
from stepwell.model.event import WorkflowErrorDetails

# They end the process, not a run.
STOPS = (KeyboardInterrupt, SystemExit)


class Failure(msgspec.Struct, frozen=True):
    """An error to raise, and the same as data to store."""

    error: StepwellError
    details: WorkflowErrorDetails


def make_failure(run_id: str, executor_id: str | None, error: BaseException, *, stored: bool) -> Failure:
    """Return what went wrong, to be raised and to be stored."""
    error = find_own_error(error) or error
    details = details_of(executor_id, error)
    # Errors of ours say themselves what to do; they are not wrapped in HandlerFailed.
    if isinstance(error, StepwellError):
        if executor_id is not None:
            error.add_note(f"in executor {executor_id!r} of run {run_id!r}")
        return Failure(error, details)
    raised = handler_error(run_id, executor_id, details, stored=stored)
    raised.__cause__ = error
    return Failure(raised, details)


def find_own_error(error: BaseException) -> StepwellError | None:
    """Return an error that is ours, or the first one in the group that a task group raised; None if there is none."""
    while isinstance(error, BaseExceptionGroup):
        ours = error.subgroup(StepwellError)
        if ours is None:
            return None
        error = ours.exceptions[0]
    return error if isinstance(error, StepwellError) else None


def handler_error(
    run_id: str, executor_id: str | None, details: WorkflowErrorDetails, *, stored: bool
) -> HandlerFailed:
    """Return the error for the caller; it offers a resume only if there is something to resume."""
    hint = (
        f"Finished handlers are not run again; resume with run(run_id={run_id!r})"
        if stored
        else "The run is not stored, so it cannot be resumed: to keep finished work, pass checkpoint_storage"
    )
    return HandlerFailed(
        f"executor {executor_id!r} failed in run {run_id!r}: {details.error_type}: {details.message}. {hint}",
        run_id=run_id,
        executor_id=executor_id or "",
    )


def details_of(executor_id: str | None, error: BaseException) -> WorkflowErrorDetails:
    """Return what went wrong as data for events and for the history."""
    extra = {"abandoned": True} if isinstance(error, HandlerTimeout) and error.abandoned else None
    return WorkflowErrorDetails(type(error).__name__, _message_of(error), _trace(error), executor_id, extra)


def is_stop(error: BaseException) -> bool:
    """Return whether a handler was stopped from outside; a cancellation that it raised itself is a failure."""
    if not isinstance(error, asyncio.CancelledError):
        return isinstance(error, (*STOPS, GeneratorExit))
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _message_of(error: BaseException) -> str:
    """Return the message of an exception, in characters that can be stored."""
    # Not `str(error)`: TracebackException copes with a `__str__` that raises.
    return _storable(str(traceback.TracebackException(type(error), error, None)))


def _trace(error: BaseException) -> str:
    return _storable("".join(traceback.format_exception(error)))


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
