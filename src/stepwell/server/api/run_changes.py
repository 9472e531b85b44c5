"""Runs that are started, cancelled, forked, moved back and retried."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stepwell.admin.forks import fork
from stepwell.admin.lookup import NotFound, find_checkpoint, find_run, load_checkpoint, require_head
from stepwell.admin.restores import restore
from stepwell.admin.retries import retry
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine.drive.cancellation import cancel_or_signal
from stepwell.engine.intake.responses import check_no_caller
from stepwell.errors import RunError
from stepwell.model.commit import CommitKind
from stepwell.model.event import CheckpointInfo
from stepwell.model.valid_text import check_words
from stepwell.server.api.documents import Moved, Retried, Submitted
from stepwell.server.api.operation import ApiCall, Name, Nothing, operation
from stepwell.server.api.runs import Number, RunQuery
from stepwell.server.identity import Role
from stepwell.server.run_start import start_run
from stepwell.server.services import Services
from stepwell.storage.store_archive import StoreArchive


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run to start."""

    workflow: str
    input: Any = None
    input_text: Annotated[str, Meta(description="Instead of `input`, as people type it: text, or JSON.")] | None = None
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


@operation("POST", "/runs", Role.OPERATE, status=HTTPStatus.CREATED)
async def submit(call: ApiCall[Nothing, Submission]) -> Submitted:
    """Start a run: store it, for a worker to drive."""
    body = call.body
    if body.input is not None and body.input_text is not None:
        raise ValueError("pass `input` or `input_text`, not both")
    is_new = body.run_id is None and call.first is None
    run_id = await start_run(
        call.services,
        body.workflow,
        body.input,
        text=body.input_text,
        by=call.identity.name,
        run_id=body.run_id or call.derive_id("run"),
        tags=body.tags or None,
        priority=body.priority,
    )
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
    if (earlier := await _find_cancellation(archive, run_id, call)) is not None:
        return await _moved(call.services, earlier)
    head = await cancel_or_signal(archive, head, by=call.identity.name, reason=call.body.reason)
    return await _moved(call.services, CheckpointInfo(run_id, head.stamp.checkpoint_id, head.number))


@operation("POST", "/runs/{run_id}/fork", Role.OPERATE, status=HTTPStatus.CREATED)
async def fork_run(call: ApiCall[RunQuery, ForkOrder]) -> Moved:
    """Start a new run from a checkpoint of another, with another state or another answer."""
    body, storage = call.body, call.services.storage
    run = await find_run(storage, call.query.run_id)
    newest = run.number if call.first is None or call.first.head is None else call.first.head
    origin = f"{run.run_id}@{newest if body.number is None else body.number}"
    run_id = body.run_id or call.derive_id("fork")
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
        # An id that comes from the key can be taken by the same call only, which may be under way elsewhere.
        is_ours = call.key is not None and (body.run_id is None or call.first is not None)
        earlier = await _find_fork(call.services, run_id, origin) if is_ours and run_id is not None else None
        if earlier is None:
            raise
        place = earlier
    return await _moved(call.services, place)


@operation("POST", "/runs/{run_id}/restore", Role.OPERATE)
async def restore_run(call: ApiCall[RunQuery, RestoreOrder]) -> Moved:
    """Move a run back to one of its checkpoints, to execute afresh from there."""
    run = await find_run(call.services.storage, call.query.run_id)
    place = await restore(
        call.services.storage,
        f"{run.run_id}@{call.body.number}",
        by=call.identity.name,
        number=call.first.head if call.body.head is None and call.first is not None else call.body.head,
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
        until=datetime.fromisoformat(call.first.at) if call.first is not None else None,
        by=call.identity.name,
        key=call.derive_id("retry"),
        dry_run=body.dry_run,
    )
    return Retried(list(report.runs), report.skipped, report.dry_run)


async def _find_cancellation(
    archive: StoreArchive, run_id: str, call: ApiCall[RunQuery, Cancellation]
) -> CheckpointInfo | None:
    """Return where an earlier call with the same key has cancelled the run."""
    if call.first is None or call.first.head is None:
        return None
    for commit in await archive.commits(run_id, after=call.first.head):
        if commit.kind is CommitKind.CANCELLED and commit.by == call.identity.name:
            return CheckpointInfo(run_id, commit.stamp.checkpoint_id, commit.number)
    return None


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


OPERATIONS = (submit, cancel, fork_run, restore_run, retry_runs)
