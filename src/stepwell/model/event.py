"""The events that observers of a run receive.

There are three kinds. A durable event is computed from a commit and carries its number, so it can be
replayed. A live one (`superstep_started`, `executor_invoked`, progress) carries no number and is
never stored. `checkpoint` stands between them: it comes from a commit, but carries no number and is
never replayed, because the checkpoint itself can be loaded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, get_args

import msgspec

from stepwell.model.payload import Payload
from stepwell.model.request import AnswerRecord, Request
from stepwell.model.subscripts import Subscriptable, ValueT
from stepwell.model.timing import CallTime, StepRecord


class WorkflowRunState(StrEnum):
    """The status of a run, as events, results and stores report it.

    The names of the class and of its members are those of Microsoft Agent Framework, so that
    programs written for it work here. What people read is in `stepwell.model.status_words`.
    """

    STARTED = "STARTED"  # of that framework; no run here ever has it
    IN_PROGRESS = "IN_PROGRESS"  # messages are in flight
    IN_PROGRESS_PENDING_REQUESTS = "IN_PROGRESS_PENDING_REQUESTS"
    IDLE = "IDLE"  # completed: nothing to deliver, nothing to wait for
    IDLE_WITH_PENDING_REQUESTS = "IDLE_WITH_PENDING_REQUESTS"  # waiting for responses
    FAILED = "FAILED"  # can be resumed; outcomes that were stored are kept
    CANCELLED = "CANCELLED"  # stopped on purpose at its last commit; can be resumed on purpose


WorkflowEventType = Literal[
    "started",  # the run was opened, new or resumed
    "status",  # the run was opened or came to rest, or signals were applied
    "superstep_started",
    "superstep_completed",  # it is committed
    "executor_invoked",  # a handler is about to be called
    "executor_returned",  # a handler returned, and its outcome is stored, while others still work
    "executor_completed",  # a handler returned, and its outcome is committed
    "executor_failed",  # a handler raised, and there is no further attempt
    "executor_bypassed",  # a handler is not called: its outcome was stored before a crash or failure
    "executor_retrying",  # an attempt failed, and another follows
    "step_completed",  # a step of a handler ended, and its result is stored; `data` is a StepRecord
    "sleeping",  # the run has nothing to do until the time in `data`, unless it is answered
    "timer_fired",  # the timer whose name is in `data` was due, and its handler is called
    "restored",  # the run was moved back to the commit in `data`
    "migrated",  # code with another graph or version continues the run; `data` says what changed
    "output",  # a handler yielded a value, which is part of the result
    "intermediate",  # a handler yielded a value that is not: see `intermediate_output_from`
    "request_info",  # a handler asked a person
    "request_answered",  # the response in `data` was applied
    "request_withdrawn",  # a handler took the request back whose id is in `data`
    "checkpoint",  # a commit was made; `data` is the checkpoint
    "warning",  # something is odd, such as a message that every condition declined; the run continues
    "error",  # emitted by handlers only; the run continues
    "failed",  # the run stops with an error, and can be resumed
    "data",  # emitted by handlers only: anything a program wants to show
    "update",  # a piece of an agent's answer, while the agent works
    "withdrawn",  # updates emitted before are void: their attempt failed, or its process died
]
"""The type of an event, a string."""

RESERVED_EVENT_TYPES: frozenset[str] = frozenset(get_args(WorkflowEventType)) - {"warning", "error", "data"}
"""Types that only the engine may emit. A handler that could emit `output` itself could announce
something that is never stored."""


class WorkflowEventSource(StrEnum):
    """Who emits an event: the engine, or code of a handler."""

    FRAMEWORK = "FRAMEWORK"
    EXECUTOR = "EXECUTOR"


@dataclass(frozen=True, slots=True)
class WorkflowErrorDetails:
    """A failure as data: the error's type and message, its traceback, and the executor it came from."""

    error_type: str
    message: str
    traceback: str | None = None
    executor_id: str | None = None
    extra: dict[str, Any] | None = None
    # of a handler call that failed: which attempt it was, and its time
    attempts: int | None = None
    time: CallTime | None = None


class CheckpointInfo(msgspec.Struct, frozen=True, gc=False):
    """The address of a stored checkpoint."""

    run_id: str
    checkpoint_id: str
    number: int


class _TypeAndData(msgspec.Struct, eq=False):
    """What an event is called, and carries: its positional arguments."""

    type: str
    data: Any = None


_field: Any = _TypeAndData.data  # how to get and set it, where the property of the same name is in the way


class WorkflowEvent(_TypeAndData, Subscriptable[ValueT], kw_only=True, eq=False):
    """One event of a run. `type` says which kind; attributes that do not apply to it are None."""

    # the encoded data; None if the event was created with a plain value, or `data` was read already
    payload: Payload | None = None
    state: WorkflowRunState | None = None
    executor_id: str | None = None
    iteration: int | None = None
    details: WorkflowErrorDetails | None = None
    checkpoint: CheckpointInfo | None = None
    run_id: str | None = None
    commit: int | None = None
    replayed: bool = False
    request: Request | None = None
    answer: AnswerRecord | None = None
    # who answered, started, resumed, cancelled, forked or moved back the run, as they said
    by: str | None = None
    attempt: int | None = None
    # the executors that lead to the sub-workflow it comes from, outermost first
    path: tuple[str, ...] = ()
    # the id of the handler call it is about
    delivery: str | None = None
    # when the handler was called that succeeded, and for how long it ran
    time: CallTime | None = None
    # the steps it made, in the order in which they ended
    steps: tuple[StepRecord, ...] = ()
    origin: WorkflowEventSource = WorkflowEventSource.EXECUTOR

    @property  # type: ignore[misc]
    def data(self) -> Any:
        """The value that the event carries, decoded on first access: most observers skip most events."""
        if self.payload is not None:
            _field.__set__(self, self.payload.open())
            self.payload = None
        return _field.__get__(self)

    @property
    def request_id(self) -> str:
        """Of a `request_info` event: the id to respond to. Of a `request_answered` event: the request's id."""
        return self._require_request().id if self.answer is None else self.answer.request_id

    @property
    def source_executor_id(self) -> str:
        """Of a `request_info` event: the executor that made the request."""
        return self._require_request().executor

    @property
    def request_type(self) -> str:
        """Of a `request_info` event: the name of the request's type."""
        return self._require_request().request_type

    @property
    def response_type(self) -> str:
        """Of a `request_info` event: the name of the expected response's type."""
        return self._require_request().response_type

    @property
    def response_schema(self) -> dict[str, Any]:
        """Of a `request_info` event: the JSON schema of the expected response."""
        schema: dict[str, Any] = json.loads(self._require_request().schema)
        return schema

    @property
    def deadline(self) -> str | None:
        """Of a `request_info` event: the deadline for a response, in UTC as ISO 8601; None if there is none."""
        return self._require_request().deadline

    @property
    def comment(self) -> str | None:
        """Of a `request_answered` event: what was added to the response."""
        return None if self.answer is None else self.answer.comment

    @property
    def answered_at(self) -> str | None:
        """Of a `request_answered` event: when the response was sent, in UTC as ISO 8601."""
        return None if self.answer is None else self.answer.at

    def _require_request(self) -> Request:
        if self.request is None:
            raise RuntimeError(f"a {self.type!r} event has no request; only 'request_info' events do")
        return self.request

    @property
    def durable(self) -> bool:
        """True if this event belongs to a commit and can be replayed."""
        return self.commit is not None

    def __repr__(self) -> str:
        names = ("executor_id", "iteration", "attempt", "details")
        shown = [f"{n}={v!r}" for n in names if (v := getattr(self, n)) is not None]
        if self.path:
            shown.append(f"path={'/'.join(self.path)!r}")
        if self.data is not None:
            shown.insert(0, f"data={self.data!r}")
        return f"WorkflowEvent({', '.join([repr(self.type), *shown, f'state={self.state and self.state.value}'])})"
