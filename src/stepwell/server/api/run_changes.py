"""Runs that are started, cancelled, forked, moved back, retried and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stepwell.admin.forks import fork
from stepwell.admin.lookup import NotFound, find_checkpoint, find_run, load_checkpoint, require_head
from stepwell.admin.restores import restore
from stepwell.admin.retention.policy import Keep
from stepwell.admin.retention.pruner import delete_runs, prune
from stepwell.admin.retries import retry
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine.cancellation import cancel_or_signal
from stepwell.engine.responses import check_no_caller
from stepwell.errors import RunError
from stepwell.model.event import CheckpointInfo, WorkflowRunState
from stepwell.model.status_words import STATUSES_BY_WORD
from stepwell.model.valid_text import check_words
from stepwell.server.api.documents import Moved, Pruned, Retried, Submitted
from stepwell.server.api.operation import ApiCall, Nothing, operation
from stepwell.server.api.runs import Number, RunQuery
from stepwell.server.identity import Role
from stepwell.server.problems import RequestRefused
from stepwell.server.run_start import derive_run_id, start_run
from stepwell.server.services import Services
from stepwell.storage.store_archive import StoreArchive

Name = Annotated[str, Meta(min_length=1, max_length=500)]


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run to start."""

    workflow: str
    input: Any = None
    run_id: Name | None = None
    tags: dict[str, str] = {}
    priority: Annotated[int, Meta(ge=-100, le=100)] = 0


class Cancellation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a run is cancelled."""

    reason: Name | None = None


class ForkOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From where a new run starts, and how it differs."""

    number: Annotated[int, Meta(ge=-(2**62), le=2**62, description="Without it, the newest checkpoint.")] | None = None
    run_id: Name | None = None
    set: dict[str, Any] = {}
    add: dict[str, Any] = {}
    delete: list[str] = []
    responses: dict[str, Any] = {}
    tags: dict[str, str] | None = None


class RestoreOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a run is moved back to."""

    number: Number
    head: (
        Annotated[
            int,
            Meta(ge=0, le=2**62, description="The newest commit that you know: refused if the run has moved."),
        ]
        | None
    ) = None


class RetryOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs are made ready again: those named, or all with the status."""

    runs: list[Name] = []
    status: Literal["failed", "cancelled"] = "failed"
    workflow: str | None = None
    since: Annotated[datetime, Meta(tz=True)] | None = None
    dry_run: bool = False


class PruneOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is deleted. Nothing is, unless `dry_run` is false."""

    runs: list[Name] = []
    keep_last: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    keep_for_seconds: Annotated[float, Meta(ge=0, le=1e10)] | None = None
    status: list[Literal["completed", "failed", "cancelled"]] = []
    entirely: Annotated[bool, Meta(description="Delete the runs named, whatever their status.")] = False
    dry_run: bool = True


@operation("POST", "/runs", Role.OPERATE, status=HTTPStatus.CREATED)
async def submit(call: ApiCall[Nothing, Submission]) -> Submitted:
    """Start a run: store it, for a worker to drive."""
    body = call.body
    run_id = await start_run(
        call.services,
        body.workflow,
        body.input,
        by=call.identity.name,
        run_id=body.run_id,
        tags=body.tags or None,
        priority=body.priority,
        idempotency_key=call.idempotency_key,
    )
    is_new = body.run_id is None and call.idempotency_key is None
    drivers = call.services.drivers
    return Submitted(run_id, await (drivers.find_workers(body.workflow) if is_new else drivers.find(run_id)))


@operation("POST", "/runs/{run_id}/cancel", Role.OPERATE)
async def cancel(call: ApiCall[RunQuery, Cancellation]) -> Moved:
    """Cancel a run: at once, or as soon as the process that drives it sees it."""
    check_words("reason", call.body.reason)
    storage = call.services.storage
    run_id = (await find_run(storage, call.query.run_id)).run_id
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    head = require_head(await archive.head(run_id), run_id)
    check_no_caller(head)
    head = await cancel_or_signal(archive, head, by=call.identity.name, reason=call.body.reason)
    return await _moved(call.services, CheckpointInfo(run_id, head.stamp.checkpoint_id, head.number))


@operation("POST", "/runs/{run_id}/fork", Role.OPERATE, status=HTTPStatus.CREATED)
async def fork_run(call: ApiCall[RunQuery, ForkOrder]) -> Moved:
    """Start a new run from a checkpoint of another, with another state or another answer."""
    body, storage = call.body, call.services.storage
    run = await find_run(storage, call.query.run_id)
    origin = f"{run.run_id}@{run.number if body.number is None else body.number}"
    run_id = body.run_id
    if run_id is None and call.idempotency_key is not None:
        run_id = derive_run_id("fork", run.run_id, call.idempotency_key)
    try:
        place = await fork(
            storage,
            origin,
            run_id=run_id,
            set=body.set,
            add=body.add,
            delete=body.delete,
            responses=body.responses,
            tags=body.tags,
            by=call.identity.name,
        )
    except RunError:
        if run_id is None or (earlier := await _find_fork(call.services, run_id, origin)) is None:
            raise
        place = earlier
    return await _moved(call.services, place)


@operation("POST", "/runs/{run_id}/restore", Role.OPERATE)
async def restore_run(call: ApiCall[RunQuery, RestoreOrder]) -> Moved:
    """Move a run back to one of its checkpoints, to execute afresh from there."""
    if call.idempotency_key is not None and call.body.head is None:
        raise RequestRefused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "a run may be moved back twice on purpose, so a key alone does not tell a repetition",
            "pass `head`, the newest commit that you know",
        )
    run = await find_run(call.services.storage, call.query.run_id)
    place = await restore(
        call.services.storage,
        f"{run.run_id}@{call.body.number}",
        by=call.identity.name,
        number=call.body.head,
    )
    return await _moved(call.services, place)


@operation("POST", "/retry", Role.OPERATE)
async def retry_runs(call: ApiCall[Nothing, RetryOrder]) -> Retried:
    """Make runs ready again that failed or were cancelled."""
    body = call.body
    report = await retry(
        call.services.storage,
        body.runs,
        status=body.status,
        workflow_name=body.workflow,
        since=body.since,
        by=call.identity.name,
        key=call.idempotency_key,
        dry_run=body.dry_run,
    )
    return Retried(list(report.runs), report.skipped, report.dry_run)


@operation("POST", "/prune", Role.OPERATE)
async def prune_runs(call: ApiCall[Nothing, PruneOrder]) -> Pruned:
    """Delete old checkpoints and runs, or say what would be deleted."""
    body, storage = call.body, call.services.storage
    run_ids = [(await find_run(storage, run)).run_id for run in body.runs]
    if body.entirely:
        if not run_ids or body.keep_last is not None or body.keep_for_seconds is not None or body.status:
            raise ValueError("`entirely` needs `runs`, and nothing else that selects runs or checkpoints")
        report = await delete_runs(storage, run_ids, dry_run=body.dry_run)
    else:
        policy = _policy(body)
        report = await prune(storage, policy, named=run_ids, only=run_ids or None, dry_run=body.dry_run)
    numbers: dict[str, list[int]] = {}
    for checkpoint in report.checkpoints:
        numbers.setdefault(checkpoint.run_id, []).append(checkpoint.number)
    stays = {**report.stays, **report.skipped}
    return Pruned(list(report.runs), numbers, bytes=report.bytes, stays=stays, dry_run=report.dry_run)


def _policy(body: PruneOrder) -> Keep:
    age = None if body.keep_for_seconds is None else timedelta(seconds=body.keep_for_seconds)
    keep = Keep(body.keep_last, age)
    chosen = {status for word in body.status for status in STATUSES_BY_WORD[word]}
    # A status that maps to None keeps everything.
    by_status: Mapping[WorkflowRunState | str, Keep | None] = (
        {status: keep if status in chosen else None for status in WorkflowRunState} if chosen else {}
    )
    return Keep(body.keep_last, age, by_status)


async def _find_fork(services: Services, run_id: str, origin: str) -> CheckpointInfo | None:
    """Return the first checkpoint of a run, if it is a fork from that checkpoint."""
    try:
        place = await find_checkpoint(services.storage, f"{run_id}@0")
    except NotFound:
        return None
    header = (await load_checkpoint(services.storage._store, place))[0].header
    parent = await find_checkpoint(services.storage, origin)
    return place if header.parent_id == parent.checkpoint_id else None


async def _moved(services: Services, place: CheckpointInfo) -> Moved:
    run = await services.storage.get_run(place.run_id)
    if run is None:
        raise NotFound(f"run {place.run_id!r} was deleted meanwhile")
    driver = await services.drivers.find(place.run_id)
    return Moved(place.run_id, place.number, place.checkpoint_id, status=run.standing, driver=driver)


OPERATIONS = (submit, cancel, fork_run, restore_run, retry_runs, prune_runs)
