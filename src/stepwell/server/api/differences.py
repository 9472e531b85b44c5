"""What differs between two checkpoints, and would differ in a fork."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from stepwell.admin.diffs.checkpoints import Difference, diff, diff_from_parent
from stepwell.admin.diffs.json_diff import format_path
from stepwell.admin.forks import preview_fork
from stepwell.admin.lookup import find_run
from stepwell.admin.values import to_data
from stepwell.server.api.documents import ChangeItem, DifferenceDocument
from stepwell.server.api.operation import ApiCall, operation
from stepwell.server.api.run_changes import ForkOrder
from stepwell.server.api.runs import RunQuery
from stepwell.server.identity import Role

Stored = Annotated[bool, Meta(description="Values in their stored form, with the names of classes.")]
Lines = Annotated[bool, Meta(description="Also the difference as lines that people read.")]
Full = Annotated[bool, Meta(description="Shorten nothing in these lines.")]


class DiffQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which two checkpoints: ids, runs, or RUN@NUMBER."""

    after: Annotated[str, Meta(min_length=1)]
    before: Annotated[str, Meta(description="Without it, the checkpoint that the run was forked from.")] | None = None
    stored: Stored = False
    lines: Lines = False
    full: Full = False


class PreviewQuery(RunQuery, frozen=True, forbid_unknown_fields=True):
    """Which run would be forked."""

    stored: Stored = False
    lines: Lines = False
    full: Full = False


@operation("GET", "/diff", Role.SEE)
async def get_difference(call: ApiCall[DiffQuery, None]) -> DifferenceDocument:
    """Compare two checkpoints, of one run or of two; or a fork with what it was forked from."""
    query, storage = call.query, call.services.storage
    if query.before is None:
        difference = await diff_from_parent(storage, query.after)
    else:
        difference = await diff(storage, query.before, query.after)
    return _describe(difference, query)


@operation("POST", "/runs/{run_id}/fork/preview", Role.SEE, writes=False)
async def preview_of_fork(call: ApiCall[PreviewQuery, ForkOrder]) -> DifferenceDocument:
    """Say what a fork would change, and create nothing."""
    body, storage = call.body, call.services.storage
    run = await find_run(storage, call.query.run_id)
    difference = await preview_fork(
        storage,
        f"{run.run_id}@{run.number if body.number is None else body.number}",
        run_id=body.run_id,
        set=body.set,
        add=body.add,
        delete=body.delete,
        responses=body.responses,
        tags=body.tags,
    )
    return _describe(difference, call.query)


def _describe(difference: Difference, query: DiffQuery | PreviewQuery) -> DifferenceDocument:
    before, after = difference.before, difference.after
    lines = difference.lines(full=query.full) if query.lines else []
    return DifferenceDocument(
        before.run_id,
        before.number,
        before.checkpoint_id,
        after.run_id,
        after.number,
        after.checkpoint_id or None,
        changes=[
            ChangeItem(
                change.pointer,
                format_path(change.path),
                str(change.kind),
                change.before if query.stored else to_data(change.before),
                change.after if query.stored else to_data(change.after),
            )
            for change in difference.changes
        ],
        patch=difference.patch(),
        lines=lines,
        is_shortened=query.lines and lines != difference.lines(full=True),
    )


OPERATIONS = (get_difference, preview_of_fork)
