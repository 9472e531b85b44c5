"""The structs of answers. What users stored is `Any`: it is theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell.server.damaged_entries import DamagedEntry
from stepwell.server.run_driver import RunDriver
from stepwell.server.run_items import RunItem
from stepwell.storage.worker_registry import WorkerInfo


class CommandItem(msgspec.Struct, frozen=True):
    """A command of `stepwell`."""

    name: str
    arguments: list[str]
    options: list[str]


class RunLines(msgspec.Struct, frozen=True):
    """A run as people read it."""

    sentence: str
    command: CommandItem | None  # that moves it on
    explanation: list[str]  # of the words of the command that stand for something else
    sections: list[list[str]]


class RunDocument(msgspec.Struct, frozen=True):
    """A run at one of its checkpoints: the facts of `stepwell show --json`, and what a page draws."""

    run_id: str
    workflow: str
    sentence: str  # what it is, why it waits or stopped, what runs next
    command: list[str] | None  # that moves it on; None: there is nothing to do, see the sentence
    workers: list[str]  # those that are alive and have its workflow
    status: str
    number: int
    checkpoint_id: str
    at: str
    kind: str  # of the commit
    by: str | None
    reason: str | None
    owner: str | None
    until: str | None
    since: str | None
    tags: Mapping[str, str]
    priority: int
    parent_run: str | None
    parent_number: int | None
    caller: str | None
    input: Any
    input_run: str | None  # of a fork: the run that it descends from, which got the input
    outputs: list[Any]
    failures: list[str]
    error: Mapping[str, Any] | None
    answers: list[Mapping[str, Any]]
    branches: list[Mapping[str, Any]]  # of the superstep in progress
    calls: list[Mapping[str, Any]]
    turns: list[Mapping[str, Any]]  # of agents
    progress: Mapping[str, Any]
    iteration: int
    wake: str | None
    state: Mapping[str, Any]
    executors: Mapping[str, Any]
    messages: list[Any]
    held: Mapping[str, Any]
    requests: Mapping[str, Mapping[str, Any]]
    children: Mapping[str, Any]
    timers: Any = None
    values: Any = None  # of named agents
    newest: int = 0  # the number of its newest commit
    commits: list[Mapping[str, Any]] = []
    timeline: Mapping[str, Any] | None = None
    graph: Mapping[str, Any] | None = None


class CheckpointItem(msgspec.Struct, frozen=True):
    """A checkpoint in a list."""

    checkpoint_id: str
    number: int
    iteration: int
    status: str
    at: str


class CheckpointPage(msgspec.Struct, frozen=True):
    """A page of checkpoints of a run, newest first."""

    run_id: str
    checkpoints: list[CheckpointItem]
    next: int | None  # the `before` of the next page


class StateDocument(msgspec.Struct, frozen=True):
    """The state of a run at a checkpoint, as plain JSON; classes are objects."""

    run_id: str
    number: int
    checkpoint_id: str
    state: Mapping[str, Any]
    executors: Mapping[str, Any]


class LineageItem(msgspec.Struct, frozen=True):
    """A run in a tree of forks."""

    run_id: str
    depth: int  # 0 for the oldest run that is known
    parent_run: str | None
    parent_number: int | None
    run: RunItem | None  # None if it is not stored any more


class LineageDocument(msgspec.Struct, frozen=True):
    """The tree of forks around a run: each run comes before its forks, and these in the order of their start."""

    run_id: str
    runs: list[LineageItem]
    is_whole: bool  # False if there are more forks


class ChangeItem(msgspec.Struct, frozen=True):
    """One change between two checkpoints. `path` is a JSON Pointer into the stored form, `where` is for people."""

    path: str
    where: str
    kind: str
    before: Any
    after: Any


class DifferenceDocument(msgspec.Struct, frozen=True):
    """What leads from one checkpoint to another."""

    before_run: str
    before_number: int
    before_id: str
    after_run: str
    after_number: int
    after_id: str | None  # None for a fork that is not created
    changes: list[ChangeItem]
    patch: list[dict[str, Any]]  # the same as JSON Patch (RFC 6902), on the stored form
    lines: list[str] = []  # the same as people read it, if it is asked for
    is_shortened: bool = False  # whether values in the lines are


class CheckpointPlace(msgspec.Struct, frozen=True):
    """Where a checkpoint is."""

    run_id: str
    number: int
    checkpoint_id: str


class EventPage(msgspec.Struct, frozen=True):
    """Durable events of a run, oldest first."""

    run_id: str
    events: list[dict[str, Any]]
    next: int | None  # the `after` of the next page; None if there is nothing more now


class DecisionItem(msgspec.Struct, frozen=True):
    """What somebody decided: an answer to a request, or a change of a run."""

    kind: str  # answered, cancelled, forked, restored, retried, started, resumed
    run_id: str
    workflow: str
    number: int  # of the commit that has it on record
    at: str
    by: str | None
    comment: str | None  # to an answer; of a cancel, the reason
    request_id: str | None
    executor: str | None
    value: Any  # what was answered
    source_run: str | None  # where a fork started, or where a run was moved back to
    source_number: int | None


class DecisionPage(msgspec.Struct, frozen=True):
    """A page of decisions, newest first."""

    decisions: list[DecisionItem]
    next: str | None  # the `after` of the next page


class RequestPage(msgspec.Struct, frozen=True):
    """A page of open requests, oldest first."""

    requests: list[dict[str, Any]]
    next: str | None  # the `after` of the next page
    damaged: list[DamagedEntry] = []  # requests of this page that cannot be read


class Submitted(msgspec.Struct, frozen=True):
    """A run that is stored, and who drives it."""

    run_id: str
    driver: RunDriver


class Responded(msgspec.Struct, frozen=True):
    """A response that is stored, and who applies it."""

    run_id: str
    request_id: str
    by: str
    driver: RunDriver


class LinkDocument(msgspec.Struct, frozen=True):
    """A response link: a path below the address of the server."""

    path: str
    by: str
    expires_at: str


class Moved(msgspec.Struct, frozen=True):
    """Where a run is after a change of it."""

    run_id: str
    number: int
    checkpoint_id: str
    status: str
    driver: RunDriver


class Retried(msgspec.Struct, frozen=True):
    """Which runs are ready again, and why others are not."""

    runs: list[str]
    skipped: Mapping[str, str]
    dry_run: bool


class Pruned(msgspec.Struct, frozen=True):
    """What was deleted, or would be."""

    runs: list[str]
    checkpoints: Mapping[str, list[int]]  # numbers, by run
    bytes: int
    stays: Mapping[str, str]  # why, by run
    dry_run: bool
    given_back: int = 0  # bytes by which the store shrank
    not_compacted: str | None = None  # why it could not be shrunk


class WorkerItem(msgspec.Struct, frozen=True):
    """A worker, as it described itself when it was last seen."""

    name: str
    is_alive: bool
    process: str
    version: str
    slots: int
    workflows: Mapping[str, int]
    runs: list[str]
    started_at: str
    seen_at: str
    takeovers: int  # runs that it acquired from a driver that had died or fallen silent


class WorkerList(msgspec.Struct, frozen=True):
    """The workers of the store."""

    workers: list[WorkerItem]


class WorkflowItem(msgspec.Struct, frozen=True):
    """A workflow that can be started here."""

    name: str
    version: int
    input_types: list[str]
    input_schema: Mapping[str, Any]
    graph: Mapping[str, Any]


class WorkflowList(msgspec.Struct, frozen=True):
    """The workflows that can be started here."""

    workflows: list[WorkflowItem]


class Caller(msgspec.Struct, frozen=True):
    """Who the server takes the caller for."""

    name: str
    role: str
    version: str  # of the server


class MetricItem(msgspec.Struct, frozen=True):
    """One metric."""

    name: str
    meaning: str
    kind: str
    labels: Mapping[str, str]
    value: float


class MetricList(msgspec.Struct, frozen=True):
    """What the store holds."""

    metrics: list[MetricItem]


def worker_item(worker: WorkerInfo) -> WorkerItem:
    return WorkerItem(
        worker.name,
        worker.is_alive,
        process=worker.process,
        version=worker.version,
        slots=worker.slots,
        workflows=dict(worker.workflows),
        runs=list(worker.runs),
        started_at=worker.started_at,
        seen_at=worker.seen_at,
        takeovers=worker.takeovers,
    )
