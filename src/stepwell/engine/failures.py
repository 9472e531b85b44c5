"""What went wrong: for whoever called, and for whoever reads of it later."""

from __future__ import annotations

import traceback

import msgspec

from stepwell.errors import HandlerFailed, HandlerTimeout, StepwellError
from stepwell.model.event import WorkflowErrorDetails


class Failure(msgspec.Struct, frozen=True):
    error: StepwellError
    details: WorkflowErrorDetails


def make_failure(run_id: str, executor_id: str | None, error: BaseException, *, stored: bool) -> Failure:
    """What went wrong, for whoever called and for whoever watches."""
    details = details_of(executor_id, error)
    if isinstance(error, StepwellError):
        if executor_id is not None:
            error.add_note(f"in executor {executor_id!r} of run {run_id!r}")
        return Failure(error, details)
    raised = handler_error(run_id, executor_id, details, stored=stored)
    raised.__cause__ = error
    return Failure(raised, details)


def handler_error(
    run_id: str, executor_id: str | None, details: WorkflowErrorDetails, *, stored: bool
) -> HandlerFailed:
    """The error for whoever called; it offers a resume only if there is something to resume."""
    way_on = (
        f"What finished is kept; resume with run(run_id={run_id!r})"
        if stored
        else "The run is not stored, so it cannot be resumed: to keep what finishes, give it a checkpoint_storage"
    )
    return HandlerFailed(
        f"executor {executor_id!r} failed in run {run_id!r}: {details.error_type}: {details.message}. {way_on}",
        run_id=run_id,
        executor_id=executor_id or "",
    )


def details_of(executor_id: str | None, error: BaseException) -> WorkflowErrorDetails:
    """What went wrong, as it is stored and told."""
    extra = {"abandoned": True} if isinstance(error, HandlerTimeout) and error.abandoned else None
    return WorkflowErrorDetails(type(error).__name__, _words(error), _trace(error), executor_id, extra)


def _words(error: BaseException) -> str:
    """What an exception says, in characters that can be stored."""
    return _storable(str(traceback.TracebackException(type(error), error, None)))  # also if its __str__ is broken


def _trace(error: BaseException) -> str:
    return _storable("".join(traceback.format_exception(error)))


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
