"""The shapes of format 1, field by field; `docs/format.md` explains them.

From the first published version on they are frozen: a change is a new format number, and the old
one stays readable. A field that has its default value is not written.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from stepwell.model.checkpoint import Retention
from stepwell.model.commit import CommitKind
from stepwell.model.event import WorkflowRunState
from stepwell.model.timing import CallTime, StepRecord
from stepwell.storage.limits import LARGEST
from stepwell.storage.stored_values import HIGHEST_PRIORITY, LOWEST_PRIORITY

FORMAT = 1
# What this version reads: its own format, and every published one before it.
READABLE = (1,)
Raw = msgspec.Raw
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]

# The default of an optional raw field. msgspec cannot decode `Raw | None`, and it omits a default
# only if the field holds this very object.
NOTHING = Raw()


class _WireShape(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    pass


class WireReply(_WireShape):
    request_id: str
    question: Raw
    child: str | None = None


class WireRequest(_WireShape):
    id: str
    executor: str
    payload: Raw
    request_type: str
    response_type: str
    schema: Raw
    at: str
    deadline: str | None = None
    default: Raw = NOTHING
    child: str | None = None
    waiting: str | None = None


class WireAnswer(_WireShape):
    request_id: str
    executor: str
    value: Raw
    at: str
    by: str | None = None
    comment: str | None = None


class WireChild(_WireShape):
    run_id: str
    executor: str
    checkpoint_id: str
    number: Count
    caller: str
    wake: str | None = None


class WireMessage(_WireShape):
    id: str
    source: str | None
    payload: Raw
    target: str | None = None
    takers: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    reply: WireReply | None = None
    timer: str | None = None


class WireOutput(_WireShape):
    kind: Literal["output", "intermediate"]
    payload: Raw


class WireDone(_WireShape):
    delivery: str
    executor: str
    sent: tuple[str, ...] = ()
    outputs: list[WireOutput] = []
    asked: tuple[str, ...] = ()
    attempts: int = 1
    time: CallTime | None = None
    steps: tuple[StepRecord, ...] = ()


class WireSplice(_WireShape):
    start: int
    tail: int
    text: str


class WireWrites(_WireShape):
    set: dict[str, Raw] = {}
    append: dict[str, list[Raw]] = {}
    delete: list[str] = []
    splice: dict[str, WireSplice] = {}


class WireFailure(_WireShape):
    error_type: str
    message: str
    traceback: str | None = None
    executor_id: str | None = None
    extra: dict[str, Any] | None = None
    attempts: int | None = None
    time: CallTime | None = None


class WireRun(_WireShape):
    """The header of a run; in every snapshot."""

    run_id: str
    workflow: str
    signature: dict[str, Any]
    input_digest: str
    epoch: Count = 0
    parent_id: str | None = None
    caller: str | None = None
    trace: str | None = None
    parent_run: str | None = None
    parent_number: Count | None = None
    tags: dict[str, str] = {}
    retention: Retention = Retention.FullHistory
    version: Annotated[int, msgspec.Meta(ge=1, le=LARGEST)] = 1
    priority: Annotated[int, msgspec.Meta(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] = 0
    code: tuple[str, ...] = ()


class WireCommit(_WireShape, kw_only=True):
    """The body of a record: a snapshot if `run` is present, otherwise a delta."""

    format: int
    kind: CommitKind
    status: WorkflowRunState
    iteration: Count
    since_input: Count
    place: Count
    run: WireRun | None = None
    previous_id: str | None = None
    messages: list[WireMessage] | None = None
    held: dict[str, dict[str, list[Raw]]] | None = None
    state: WireWrites | None = None
    executors: dict[str, Raw] = {}
    executor_splices: dict[str, WireSplice] = {}
    asked: list[WireRequest] = []
    questions: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    answers: list[WireAnswer] = []
    withdrawn: tuple[str, ...] = ()
    children: dict[str, WireChild | None] = {}
    tags: dict[str, str | None] = {}
    timers: dict[str, dict[str, str | None]] = {}
    wake: str | None = None
    restored: Count | None = None
    migrated: tuple[str, ...] = ()
    done: list[WireDone] = []
    failures: list[WireFailure] = []
    warnings: tuple[str, ...] = ()
    by: str | None = None
    reason: str | None = None
    metadata: dict[str, Any] = {}


class WireSent(_WireShape):
    payload: Raw
    target: str | None = None


class WireOutcome(_WireShape, kw_only=True):
    """An outcome in the superstep log."""

    format: int
    delivery: str
    executor: str
    sent: list[WireSent] = []
    outputs: list[WireOutput] = []
    state: WireWrites | None = None
    saved: Raw = NOTHING
    requests: list[WireRequest] = []
    withdrawn: tuple[str, ...] = ()
    children: dict[str, WireChild | None] = {}
    tags: dict[str, str | None] = {}
    timers: dict[str, str | None] = {}
    attempts: int = 1
    version: int = 1
    time: CallTime | None = None
    steps: tuple[StepRecord, ...] = ()


class WireLogEntry(_WireShape):
    """Any other entry in the superstep log: a timer, a failed attempt, or the result of a step."""

    format: int
    due: str
    failure: WireFailure | None = None
    final: bool = False
    value: Raw = NOTHING
    call: str | None = None
    request: WireRequest | None = None
    answer: WireAnswer | None = None
    time: CallTime | None = None
    attempts: int = 1
