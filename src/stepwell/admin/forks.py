"""Forks a run: creates a new run from a checkpoint of another, with an edited state if wanted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stepwell import kernel
from stepwell.admin.diffs.checkpoints import Difference
from stepwell.admin.diffs.documents import document_of, plain_value
from stepwell.admin.diffs.json_diff import compare, same
from stepwell.admin.lookup import find_checkpoint, load_checkpoint
from stepwell.admin.requests import encode_answers, send_answers
from stepwell.admin.state_edits import edit_state
from stepwell.codec.codec import DEFAULT_CODEC, Encoded
from stepwell.engine.durability.lease_renewal import hold_run
from stepwell.engine.opening.open_run import create_fork_commit, create_fork_header
from stepwell.errors import RunError
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import CheckpointInfo
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedJson
from stepwell.model.valid_text import check_words
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import new_run_id
from stepwell.storage.store_archive import StoreArchive
from stepwell.workflows.start_position import OMITTED, position_of


async def fork(
    storage: BuiltInStorage,
    checkpoint: str,
    *,
    run_id: str | None = None,
    set: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    delete: Collection[str] = (),
    responses: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    by: str | None = None,
) -> CheckpointInfo:
    """Create a new run from a checkpoint of another, with changes to its state.

    Return its first checkpoint.

    `find_checkpoint` says how to name the `checkpoint`. The new run has its messages, open
    requests, executor states and sub-workflow runs; nothing that led there is executed again.
    Nothing is executed here either: a program with the workflow continues the new run with
    `run(run_id=...)`. The original run is not changed.

    `set`, `add` and `delete` edit the state in its stored JSON form by paths: `a.b.0`, or `/a/b/0`
    for keys that contain dots. What is set or deleted must exist, what is added must not.
    `responses` are answers to open requests in plain JSON, as for `answer`; they are sent after the
    run is created, so a crash in between leaves the run without them. `tags` are those of the new
    run; None copies the tags of the original. `by` is stored with the answers and with the first
    commit: who forks it. Retention follows the storage.

    Raises NotFound or Ambiguous for the checkpoint, EditRefused for a change or an answer that
    cannot be stored, UnknownRequest or RequestExpired for a request, RunError if a run with that id
    exists, and RunBusy if a process is driving it. In all these cases no run is created.
    """
    check_words("by", by)
    _, source, changed, answers = await _edit_source(
        storage, checkpoint, run_id, tags=tags, responses=responses, by=by, set=set, add=add, delete=delete
    )
    # A fork stands alone: it is not driven by the caller of its source, and is not part of its
    # trace.
    header = replace(
        create_fork_header(source, run_id or new_run_id()),
        caller=None,
        trace=None,
        retention=storage.retention,
        tags=source.header.tags if tags is None else dict(tags),
    )
    archive = StoreArchive(storage._store, DEFAULT_CODEC, storage.retention)
    # The lease keeps a second fork, or a drive that starts the same id, from creating the run at
    # the same time.
    async with hold_run(archive, header.run_id) as stored:
        if stored.head is not None:
            raise _taken_error(header.run_id)
        first = replace(await create_fork_commit(changed, header, archive), by=by)
        await archive.commit(first, kernel.apply(header, None, first, previous_id=header.parent_id))
        await send_answers(archive, header, answers)
        return CheckpointInfo(header.run_id, first.stamp.checkpoint_id, first.number)


async def preview_fork(
    storage: BuiltInStorage,
    checkpoint: str,
    *,
    run_id: str | None = None,
    set: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    delete: Collection[str] = (),
    responses: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> Difference:
    """Return what `fork` would change with these arguments, without creating a run.

    Raises as `fork` does, except RunBusy. A run without an id is called `new` here. Answers are not
    part of the difference: they are applied when the new run is driven.
    """
    origin, source, changed, _ = await _edit_source(
        storage, checkpoint, run_id, tags=tags, responses=responses, by=None, set=set, add=add, delete=delete
    )
    if run_id is not None and await storage._store.run(run_id) is not None:
        raise _taken_error(run_id)
    changes = compare(document_of(source), document_of(changed))
    return Difference(origin, CheckpointInfo(run_id or "new", "", 0), tuple(changes))


async def _edit_source(
    storage: BuiltInStorage,
    checkpoint: str,
    run_id: str | None,
    *,
    tags: Mapping[str, str] | None,
    responses: Mapping[str, Any] | None,
    by: str | None,
    **edits: Any,
) -> tuple[CheckpointInfo, Checkpoint, Checkpoint, list[tuple[Request, ReceivedJson]]]:
    """Return where a fork starts, that checkpoint before and after the edits, and the answers for it."""
    origin = await find_checkpoint(storage, checkpoint)
    # Called for its checks: the id and the tags must be such as `Workflow.run` would accept.
    position_of(OMITTED, run_id, origin.checkpoint_id, tags)
    source, _ = await load_checkpoint(storage._store, origin)
    answers = encode_answers(source, responses or {}, by=by)
    if not any(edits.values()):
        return origin, source, source, answers
    plain = {key: plain_value(value) for key, value in source.state.items()}
    # Values that did not change keep their stored bytes, so that no rewriting shows.
    state: dict[str, Payload] = {
        key: source.state[key]
        if key in plain and same(plain[key], value)
        else Encoded(msgspec.json.encode(value), DEFAULT_CODEC)
        for key, value in edit_state(plain, **edits).items()
    }
    return origin, source, replace(source, state=state), answers


def _taken_error(run_id: str) -> RunError:
    return RunError(f"run {run_id!r} already exists; choose another id for the new run, or pass none", run_id=run_id)
