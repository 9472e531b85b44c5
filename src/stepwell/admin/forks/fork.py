"""A new run that goes on from a checkpoint of another, with changes to what it holds."""

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
from stepwell.model.event import CheckpointInfo
from stepwell.model.payload import Payload
from stepwell.model.superstep import Checkpoint, RunHeader
from stepwell.storage.archive import StoreArchive
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import new_run_id
from stepwell.storage.json_text import json_of
from stepwell.storage.lease import this_process
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
    """Begin a new run where another was, with changes to its state. Where the new run begins.

    `checkpoint` is named as `find_checkpoint` takes it. The new run has the messages, open questions, executor states
    and runs inside of that checkpoint; nothing of what led there is done again. Nothing is run here: whoever has the
    workflow goes on with `run(run_id=...)`. The run it begins from stays as it is.

    `set`, `add` and `delete` change the state in its stored JSON form, by paths: `a.b.0`, or `/a/b/0` for names with
    dots in them. What is set or deleted must be there, what is added must not. `responses` are answers to open
    questions in plain JSON, as `answer` takes them; they are posted once the run is there, so a crash may leave it
    without them. `tags` are those of the new run; None: those of the run it begins from. What is kept of it follows the
    storage.

    Raises NotFound or Ambiguous for the checkpoint, EditRefused for a change or an answer that cannot be stored,
    UnknownRequest or RequestExpired for a question, RunError if a run of that id is stored already, and RunBusy if
    somebody drives one. Then there is no new run.
    """
    archive = StoreArchive(storage._store, DEFAULT_CODEC, storage.retention)
    origin = await find_checkpoint(storage, checkpoint)
    position_of(OMITTED, run_id, origin.checkpoint_id, tags)  # no id and no tags that a run could not have
    source = await _load_source(archive, origin)
    answers = encode_answers(source, responses or {})
    changed = replace(source, state=_edit_state(source.state, set=set, add=add, delete=delete))
    header = replace(
        create_fork_header(source, run_id or new_run_id()),
        caller=None,
        trace=None,
        retention=storage.retention,
        tags=source.header.tags if tags is None else dict(tags),
    )
    lease = await lease_renewal.acquire(archive, header.run_id, this_process(new_run_id()), _ignore_signals)
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
    """What `fork` would change with these arguments: the difference of its first checkpoint. Nothing is made.

    Raises as `fork` does, but for RunBusy. A run without a name is called `new` here. Answers are not in it: they are
    taken in when the new run is driven.
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
        raise NotFound(f"checkpoint {origin.checkpoint_id!r} of run {origin.run_id!r} has gone meanwhile")
    return checkpoint


async def _check_free(archive: StoreArchive, run_id: str) -> None:
    if await archive.head(run_id) is not None:
        raise RunError(
            f"a run {run_id!r} is stored already; give the new run an id of its own, or none",
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
    """The state with its changes; what did not change keeps the very text it is stored as."""
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
    """Mail for the new run waits until it is driven."""
