"""Reads the open requests of a run, and answers them in plain JSON, without the classes that asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.lookup import find_run, load_checkpoint, require_head
from stepwell.admin.state_edits import check_plain
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import RequestExpired, UnknownRequest
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.event import CheckpointInfo
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedJson, ReceivedResponse
from stepwell.model.valid_text import check_words
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.ids import new_run_id
from stepwell.storage.pending_requests import PendingRequest
from stepwell.storage.signals import find_signalled, is_of_epoch, plain_key
from stepwell.storage.store_archive import StoreArchive

_read_schema = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """An open request of a run.

    `data` is what is asked, in its stored JSON form, classes as their tags.
    """

    run_id: str
    request_id: str
    executor: str
    data: Any = field(repr=False)
    request_type: str
    response_type: str
    response_schema: dict[str, Any] = field(repr=False)
    asked_at: str
    deadline: str | None
    answered: bool  # an answer has been sent, and the next drive of the run will apply it
    _epoch: int = field(repr=False, compare=False)  # of the run, which a response is sent with


async def open_requests(storage: BuiltInStorage, run: str) -> list[OpenRequest]:
    """Return the open requests of a run, in the order in which it asked.

    Reads its newest checkpoint and its signals.

    Raises NotFound or Ambiguous for the run, and RunError for the run of a sub-workflow: its caller
    asks its questions.
    """
    head = await load_head(storage, run)
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    # An answer of an earlier epoch was given before the run was moved back, and will not be
    # applied.
    answered = {
        signal.request_id
        for key, signal in (await archive.pending_signals(head.run_id) if head.requests else {}).items()
        if isinstance(signal, ReceivedResponse | ReceivedJson) and is_of_epoch(key, head.header.epoch)
    }
    return [_make_question(head, request, answered=request.id in answered) for request in head.requests.values()]


async def load_head(storage: BuiltInStorage, run: str) -> Checkpoint:
    """Return the newest checkpoint of a run that asks its own questions. Raises as `open_requests` does."""
    info = await find_run(storage, run)
    head = require_head(await StoreArchive(storage._store, DEFAULT_CODEC).head(info.run_id), info.run_id)
    if head.header.caller is not None:
        from stepwell.engine.responses import check_no_caller  # lazy: 5 ms, and few runs have a caller

        check_no_caller(head)
    return head


async def load_requests(storage: BuiltInStorage, place: CheckpointInfo) -> list[OpenRequest]:
    """Return the requests that were open at a checkpoint.

    None counts as answered, as a fork could answer them all.
    """
    checkpoint, _ = await load_checkpoint(storage._store, place)
    return [_make_question(checkpoint, request, answered=False) for request in checkpoint.requests.values()]


async def find_pending_answers(storage: BuiltInStorage, requests: Sequence[PendingRequest]) -> set[tuple[str, str]]:
    """Return the requests with an answer that is not applied yet, as pairs of run and request id.

    Reads only the runs that have pending signals.
    """
    runs = list(dict.fromkeys(question.run_id for question in requests))
    # One query for all runs: most have no signals, and reading a checkpoint for each would cost far
    # more.
    signalled = await find_signalled(storage._store, runs)
    questions = [question for run_id in signalled for question in await open_requests(storage, run_id)]
    return {(question.run_id, question.request_id) for question in questions if question.answered}


async def respond(
    storage: BuiltInStorage,
    run: str,
    request_id: str,
    value: Any,
    *,
    by: str | None = None,
    comment: str | None = None,
) -> None:
    """Send an answer to an open request of a run, in plain JSON. Durable when it returns.

    The next drive of the run converts it to the requested type and applies it. If the conversion
    fails, the request stays open: that drive raises ResponseRejected, or emits a `warning` if it
    has other work to do, and another answer can be sent. The first answer that converts wins;
    `responses` passed to the workflow take precedence. `by` and `comment` are stored with it.

    Raises NotFound or Ambiguous for the run, UnknownRequest or RequestExpired for the request,
    RunError for the run of a sub-workflow, EditRefused for a value that is not JSON, and ValueError
    for a `by` or `comment` that is not text.
    """
    check_words("by", by)
    check_words("comment", comment)
    head = await load_head(storage, run)
    answers = encode_answers(head, {request_id: value}, by=by, comment=comment)
    await send_answers(StoreArchive(storage._store, DEFAULT_CODEC), head.header, answers)


async def send_response(
    storage: BuiltInStorage, question: OpenRequest, value: Any, *, by: str | None = None, comment: str | None = None
) -> None:
    """Send an answer to a request as it was read; the run is not read again.

    If the request was closed since, the answer is never applied. Raises RequestExpired, and
    EditRefused for a value that is not JSON.
    """
    check_deadline(question.run_id, question.request_id, question.deadline)
    answer = _encode_answer(question.request_id, value, by, comment)
    key = plain_key(question._epoch, question.request_id, question.asked_at, new_run_id())
    await StoreArchive(storage._store, DEFAULT_CODEC).send(question.run_id, key, answer)


def encode_answers(
    checkpoint: Checkpoint, responses: Mapping[str, Any], *, by: str | None = None, comment: str | None = None
) -> list[tuple[Request, ReceivedJson]]:
    """Encode answers to open requests for `send_answers`.

    Raises as `respond` does, before anything is changed.
    """
    answers = []
    for id, value in responses.items():
        request = checkpoint.requests.get(id)
        if request is None:
            open_ids = ", ".join(map(repr, checkpoint.requests)) or "none"
            raise UnknownRequest(
                f"run {checkpoint.run_id!r} has no open request {id!r} at commit {checkpoint.number}; "
                f"open requests: {open_ids}",
                run_id=checkpoint.run_id,
                request_id=id,
            )
        check_deadline(checkpoint.run_id, id, request.deadline)
        answers.append((request, _encode_answer(id, value, by, comment)))
    return answers


async def send_answers(archive: StoreArchive, header: RunHeader, answers: list[tuple[Request, ReceivedJson]]) -> None:
    for request, answer in answers:
        # Each answer has its own key. With one key per request, an answer of the wrong type would
        # be the first signal and would keep every later answer out.
        await archive.send(header.run_id, plain_key(header.epoch, request.id, request.at, new_run_id()), answer)


def check_deadline(run_id: str, request_id: str, deadline: str | None) -> None:
    """Raise RequestExpired if the deadline of a request has passed."""
    if deadline is not None and clock.until(deadline) <= timedelta(0):
        problem = f"request {request_id!r} has expired: its deadline was {deadline}"
        raise RequestExpired(problem, run_id=run_id, request_id=request_id)


def _encode_answer(request_id: str, value: Any, by: str | None, comment: str | None) -> ReceivedJson:
    check_plain(value, f"the answer to {request_id!r}")
    return ReceivedJson(request_id, msgspec.json.encode(value), by=by, comment=comment, at=clock.stamp())


def _make_question(checkpoint: Checkpoint, request: Request, *, answered: bool) -> OpenRequest:
    what = f"the schema of the question {request.id!r} of run {checkpoint.run_id!r}"
    return OpenRequest(
        checkpoint.run_id,
        request.id,
        executor=request.executor,
        data=plain_value(request.payload),
        request_type=request.request_type,
        response_type=request.response_type,
        response_schema=decode_stored(_read_schema, request.schema.encode(), what),
        asked_at=request.at,
        deadline=request.deadline,
        answered=answered,
        _epoch=checkpoint.header.epoch,
    )
