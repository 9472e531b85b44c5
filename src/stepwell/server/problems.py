"""Errors as problem details (RFC 9457): what happened, to which object, and what to do now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from stepwell.admin.lookup import Ambiguous
from stepwell.admin.state_edits import EditRefused
from stepwell.error_ids import ErrorId
from stepwell.errors import (
    CannotUnseal,
    CheckpointCorrupt,
    CheckpointMissing,
    CodecError,
    CommitConflict,
    DefinitionError,
    GraphChanged,
    InputMismatch,
    RequestExpired,
    ResponseRejected,
    RoutingFailed,
    RunBusy,
    RunError,
    StepwellError,
    StoreUnavailable,
    UnknownRequest,
)
from stepwell.server.identity import Forbidden, Unauthorized

MEDIA_TYPE = "application/problem+json"


class FieldError(msgspec.Struct, frozen=True):
    """What is wrong with one part of a value."""

    path: str  # a JSON Pointer
    message: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request was refused, or failed."""

    type: str  # the name of the error
    code: str  # its id, which `stepwell explain` takes
    title: str
    status: int
    detail: str  # what happened, to which object
    hint: str | None = None  # what to do now
    run_id: str | None = None
    request_id: str | None = None
    candidates: list[str] = []  # ids that exist, if one was not found or means several
    errors: list[FieldError] = []  # by field, if a response does not match its schema


class RequestRefused(StepwellError):
    """A request is refused by the rules of the server. `code` is what `stepwell explain` takes."""

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        hint: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[FieldError] = (),
        code: ErrorId = ErrorId.RequestRefused,
    ) -> None:
        self.status, self.hint, self.headers, self.errors, self.code = status, hint, headers or {}, errors, code
        super().__init__(message)


# The first that matches counts.
_STATUSES: tuple[tuple[type[BaseException], HTTPStatus, str | None], ...] = (
    (Unauthorized, HTTPStatus.UNAUTHORIZED, None),
    (Forbidden, HTTPStatus.FORBIDDEN, None),
    (Ambiguous, HTTPStatus.CONFLICT, "use more characters of the id"),
    (CheckpointMissing, HTTPStatus.NOT_FOUND, "GET /api/v1/runs lists the runs"),
    (UnknownRequest, HTTPStatus.NOT_FOUND, "GET /api/v1/requests lists the open requests"),
    (ResponseRejected, HTTPStatus.CONFLICT, None),
    (RequestExpired, HTTPStatus.GONE, None),
    (InputMismatch, HTTPStatus.CONFLICT, "pass another run_id"),
    (RoutingFailed, HTTPStatus.UNPROCESSABLE_ENTITY, None),
    (RunBusy, HTTPStatus.CONFLICT, "wait until its driver lets go, or cancel the run"),
    (CommitConflict, HTTPStatus.CONFLICT, "look at the run again"),
    (GraphChanged, HTTPStatus.CONFLICT, "`stepwell check MODULE:WORKFLOW` checks all runs"),
    (CannotUnseal, HTTPStatus.FAILED_DEPENDENCY, "give the server the key of the store"),
    (CheckpointCorrupt, HTTPStatus.FAILED_DEPENDENCY, "`stepwell doctor` says what is damaged and what is not"),
    (CodecError, HTTPStatus.FAILED_DEPENDENCY, "`stepwell doctor` says what is damaged and what is not"),
    (StoreUnavailable, HTTPStatus.SERVICE_UNAVAILABLE, "try again"),
    (EditRefused, HTTPStatus.UNPROCESSABLE_ENTITY, None),
    (DefinitionError, HTTPStatus.UNPROCESSABLE_ENTITY, None),
    (RunError, HTTPStatus.CONFLICT, None),
)


def describe_problem(error: StepwellError) -> Problem:
    """Return an error of the library as problem details."""
    status, hint = HTTPStatus.INTERNAL_SERVER_ERROR, None
    if isinstance(error, RequestRefused):
        status, hint = error.status, error.hint
    else:
        for kind, its_status, its_hint in _STATUSES:
            if isinstance(error, kind):
                status, hint = its_status, its_hint
                break
    return Problem(
        type=type(error).__name__,
        code=error.code if isinstance(error, RequestRefused) else error.id,
        title=status.phrase,
        status=status.value,
        detail=str(error),
        hint=hint,
        run_id=getattr(error, "run_id", None) or None,
        request_id=getattr(error, "request_id", None) or None,
        candidates=list(getattr(error, "candidates", ())),
        errors=list(error.errors) if isinstance(error, RequestRefused) else [],
    )


def answer_problem(error: StepwellError) -> Response:
    """Return the answer to a request that ends with an error of the library."""
    problem = describe_problem(error)
    headers = dict(error.headers) if isinstance(error, RequestRefused) else {}
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["retry-after"] = "1"
    return Response(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)


async def handle_error(request: Request, error: Exception) -> Response:
    """Answer an error of the library: the exception handler of every application here."""
    assert isinstance(error, StepwellError)
    return answer_problem(error)


async def handle_bug(request: Request, error: Exception) -> Response:
    """Answer an error that nobody expects. What it says stays here: it may hold secrets."""
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    problem = Problem(
        type=type(error).__name__,
        code=ErrorId.UNEXPECTED,
        title=status.phrase,
        status=status.value,
        detail="the server met an error that it does not expect",
        hint="the log of the server has the traceback",
    )
    return Response(msgspec.json.encode(problem), status, media_type=MEDIA_TYPE)
