"""Forks a run: creates a new run from a checkpoint of another, with an edited state if wanted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stepwell import kernel
from stepwell.admin.diffs.checkpoints import Difference
from stepwell.admin.diffs.documents import document_of
from stepwell.admin.diffs.json_diff import compare, same
from stepwell.admin.lookup import NotFound, find_checkpoint
from stepwell.admin.responses import encode_answers, send_answers
from stepwell.admin.state_edits import edit_state
from stepwell.codec.codec import DEFAULT_CODEC, Encoded
from stepwell.engine import lease_renewal
from stepwell.engine.commit import store_commit
from stepwell.engine.open_run import create_fork_commit, create_fork_header
from stepwell.errors import RunError
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.event import CheckpointInfo
from stepwell.model.payload import Payload
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import new_run_id
from stepwell.storage.json_text import json_of
from stepwell.storage.lease import this_process
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
    run; None copies the tags of the original. Retention follows the storage.

    Raises NotFound or Ambiguous for the checkpoint, EditRefused for a change or an answer that
    cannot be stored, UnknownRequest or RequestExpired for a request, RunError if a run with that id
    exists, and RunBusy if a process is driving it. In all these cases no run is created.
    """
    archive = StoreArchive(storage._store, DEFAULT_CODEC, storage.retention)
    origin = await find_checkpoint(storage, checkpoint)
    # Called for its checks: the id and the tags must be such as `Workflow.run` would accept.
    position_of(OMITTED, run_id, origin.checkpoint_id, tags)
    source = await _load_source(archive, origin)
    answers = encode_answers(source, responses or {})
    changed = replace(source, state=_edit_state(source.state, set=set, add=add, delete=delete))
    # A fork stands alone: it is not driven by the caller of its source, and is not part of its
    # trace.
    header = replace(
        create_fork_header(source, run_id or new_run_id()),
        caller=None,
        trace=None,
        retention=storage.retention,
        tags=source.header.tags if tags is None else dict(tags),
    )
    # The lease keeps a second fork, or a drive that starts the same id, from creating the run at
    # the same time.
    lease, _ = await lease_renewal.open_run(archive, header.run_id, this_process(new_run_id()), _ignore_signals)
    try:
        created = await _create_run(archive, changed, header)
        await send_answers(archive, header, answers)
        return created
    finally:
        await lease_renewal.release(lease)


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
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    origin = await find_checkpoint(storage, checkpoint)
    position_of(OMITTED, run_id, origin.checkpoint_id, tags)
    source = await _load_source(archive, origin)
    encode_answers(source, responses or {})
    if run_id is not None:
        await _check_free(archive, run_id)
    changed = replace(source, state=_edit_state(source.state, set=set, add=add, delete=delete))
    changes = compare(document_of(source), document_of(changed))
    return Difference(origin, CheckpointInfo(run_id or "new", "", 0), tuple(changes))


async def _load_source(archive: StoreArchive, origin: CheckpointInfo) -> Checkpoint:
    checkpoint = await archive.find(origin.checkpoint_id)
    if checkpoint is None:
        raise NotFound(f"checkpoint {origin.checkpoint_id!r} of run {origin.run_id!r} was deleted meanwhile")
    return checkpoint


async def _check_free(archive: StoreArchive, run_id: str) -> None:
    if await archive.head(run_id) is not None:
        raise RunError(
            f"run {run_id!r} already exists; choose another id for the new run, or pass none",
            run_id=run_id,
        )


async def _create_run(archive: StoreArchive, source: Checkpoint, header: RunHeader) -> CheckpointInfo:
    await _check_free(archive, header.run_id)
    first = await create_fork_commit(source, header, archive)
    await store_commit(archive, first, kernel.apply(header, None, first, previous_id=header.parent_id))
    return CheckpointInfo(header.run_id, first.stamp.checkpoint_id, first.number)


def _edit_state(
    before: Mapping[str, Payload],
    *,
    set: Mapping[str, Any] | None,
    add: Mapping[str, Any] | None,
    delete: Collection[str],
) -> Mapping[str, Payload]:
    """Return the edited state.

    Values that did not change keep their stored bytes, so that no rewriting shows.
    """
    if not (set or add or delete):
        return before
    plain = {key: msgspec.json.decode(json_of(value)) for key, value in before.items()}
    after = edit_state(plain, set=set, add=add, delete=delete)
    return {
        key: before[key] if key in before and same(plain[key], value) else _encode(value)
        for key, value in after.items()
    }


def _encode(value: Any) -> Payload:
    return Encoded(msgspec.json.encode(value), DEFAULT_CODEC)


def _ignore_signals() -> None:
    """Do nothing: signals for the new run are applied when it is driven."""
