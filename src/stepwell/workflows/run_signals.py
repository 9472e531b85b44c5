"""What programs send to a run: checked against the workflow, stored, and left to the process that drives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepwell import kernel
from stepwell.engine.intake.responses import check_no_caller, check_responses, explain_unknown, send_responses
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.engine.opening.open_run import STOPPED
from stepwell.errors import CheckpointMissing, RoutingFailed, RunError, UnknownRequest
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.signal import ReceivedInput
from stepwell.model.status_words import status_word
from stepwell.model.valid_text import check_words
from stepwell.storage.archive import Archive
from stepwell.storage.ids import new_run_id
from stepwell.storage.signals import input_key


async def read_head(archive: Archive, run_id: str) -> Checkpoint:
    """Return the newest checkpoint of a run. Raises CheckpointMissing if there is none."""
    head = await archive.head(run_id)
    if head is None:
        raise CheckpointMissing(f"no run {run_id!r} is stored; start it with workflow.start(message, run_id=...)")
    return head


async def send_input(
    definition: WorkflowDefinition, archive: Archive, run_id: str, message: Any, *, key: str | None = None
) -> bool:
    """Send further input to the start executor of a run; False, sending nothing, if the key was used before.

    Raises RunError if the run failed or was cancelled.
    """
    head = await read_head(archive, run_id)
    check_no_caller(head)
    start = definition.graph.executors[definition.graph.start]
    if not start.can_handle(message):
        raise RoutingFailed(
            f"the start executor {start.id!r} does not accept a {type(message).__name__}",
            run_id=run_id,
        )
    await _check_active(archive, head, "send to it")
    payload = definition.codec.pack(message, "$.message")
    # A random key keeps inputs apart; a response has a fixed key, so that the first one wins.
    is_new = await archive.send(run_id, input_key(head.header.epoch, key or new_run_id()), ReceivedInput(payload))
    await _check_not_moved_back(archive, head)
    return is_new


async def send_answers(
    definition: WorkflowDefinition,
    archive: Archive,
    run_id: str,
    responses: Mapping[str, Any],
    *,
    by: str | None,
    comment: str | None,
) -> None:
    """Answer open requests of a run, by request id. The first response wins.

    Raises UnknownRequest, ResponseRejected or RequestExpired before anything is stored, and RunError
    if the run failed or was cancelled and nobody resumes it.
    """
    check_words("by", by)
    check_words("comment", comment)
    if not isinstance(responses, Mapping):
        raise TypeError(f"responses must be a mapping of request ids to answers, not a {type(responses).__name__}")
    head = await read_head(archive, run_id)
    check_no_caller(head)
    await _check_active(archive, head, "answer it")
    stored = await archive.look(run_id)
    requests = kernel.open_requests(head, stored.log)
    graph, pack, pending = definition.graph, definition.codec.pack, stored.signals
    try:
        answers = check_responses(graph, head, responses, requests=requests, pending=pending, pack=pack)
    except UnknownRequest as unknown:
        raise await explain_unknown(archive, unknown) from None
    await send_responses(archive, head, answers, requests=requests, pending=pending, by=by, comment=comment)
    await _check_not_moved_back(archive, head)


async def _check_active(archive: Archive, head: Checkpoint, what: str) -> None:
    """Raise RunError for a run that failed or was cancelled, unless somebody resumes it."""
    if head.status not in STOPPED:
        return
    run = await archive.run_info(head.run_id)
    if run is None or not run.has_driver:
        raise RunError(
            f"run {head.run_id!r} is {status_word(head.status)}; resume it with run(run_id=...) before you {what}",
            run_id=head.run_id,
        )


async def _check_not_moved_back(archive: Archive, before: Checkpoint) -> None:
    """Raise RunError if the run was moved back since: then what was sent to it is discarded."""
    if (await read_head(archive, before.run_id)).header.epoch != before.header.epoch:
        raise RunError(
            f"run {before.run_id!r} was moved back meanwhile, and what you sent is discarded; look at it again",
            run_id=before.run_id,
        )
