"""What is deleted."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from stepwell.admin.retention.pruner import PruneReport
from stepwell.admin.retention.selection import make_policy, prune_selected
from stepwell.errors import DurabilityError
from stepwell.model.status_words import Standing
from stepwell.server.api.documents import Pruned
from stepwell.server.api.operation import ApiCall, Name, Nothing, operation
from stepwell.server.identity import Role
from stepwell.storage.built_in_storage import BuiltInStorage

_LOG = logging.getLogger("stepwell")


class PruneOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is deleted. Nothing is, unless `dry_run` is false."""

    runs: list[Name] = []
    keep_last: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    keep_for_seconds: Annotated[float, Meta(ge=0, le=1e10)] | None = None
    status: Annotated[list[Standing], Meta(description="Only runs that stand so.")] = []
    entirely: Annotated[bool, Meta(description="Delete the runs named, whatever their status.")] = False
    compact: Annotated[bool, Meta(description="Also shrink the store, which other writers wait for.")] = False
    dry_run: bool = True


@operation("POST", "/prune", Role.OPERATE)
async def prune_runs(call: ApiCall[Nothing, PruneOrder]) -> Pruned:
    """Delete old checkpoints and runs, or say what would be deleted."""
    body, storage = call.body, call.services.storage
    policy = None
    if not body.entirely:
        age = None if body.keep_for_seconds is None else timedelta(seconds=body.keep_for_seconds)
        policy = make_policy(body.keep_last, age, body.status)
    elif not body.runs or body.keep_last is not None or body.keep_for_seconds is not None or body.status:
        raise ValueError("`entirely` needs `runs`, and nothing else that selects runs or checkpoints")
    report = await prune_selected(storage, policy, runs=body.runs, standings=body.status, dry_run=body.dry_run)
    if _has_deleted(report):  # no history of theirs can say who did it
        _LOG.info(
            "%r deleted %d runs and %d checkpoints", call.identity.name, len(report.runs), len(report.checkpoints)
        )
    given_back, problem = await _compact(storage) if body.compact and _has_deleted(report) else (0, None)
    return Pruned(
        list(report.runs),
        report.numbers(),
        bytes=report.bytes,
        stays={**report.stays, **report.skipped},
        dry_run=report.dry_run,
        given_back=given_back,
        not_compacted=problem,
    )


def _has_deleted(report: PruneReport) -> bool:
    return not report.dry_run and bool(report.runs or report.checkpoints)


async def _compact(storage: BuiltInStorage) -> tuple[int, str | None]:
    # The deletion is committed: a failure from here on must not look as if nothing was deleted.
    try:
        return max(await storage.compact(), 0), None
    except DurabilityError as error:
        return 0, str(error)


OPERATIONS = (prune_runs,)
