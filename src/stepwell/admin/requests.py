"""Reads the open requests of a run, and answers them in plain JSON, without the classes that asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from stepwell.admin.lookup import find_run, load_checkpoint, require_head
from stepwell.admin.state_edits import check_plain
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import RequestExpired, RunError, UnknownRequest
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.event import CheckpointInfo
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedJson
from stepwell.model.status_words import status_word
from stepwell.model.valid_text import check_words
from stepwell.storage import clock
from stepwell.storage.answers import (
    PendingAnswer,
    answered_error,
    find_answered_error,
    find_pending_answer,
    is_repeated,
    send_answer,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import RequestFilter
from stepwell.storage.pending_requests import PendingRequest, pending_request
from stepwell.storage.record import pending_of
from stepwell.storage.request_bodies import read_request_body
from stepwell.storage.signals import answer_key
from stepwell.storage.store_archive import StoreArchive


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
    # A response was sent, and the next drive of the run will apply it.
    answered: PendingAnswer | None
    _key: str = field(repr=False, compare=False)  # that a response is sent with


async def open_requests(storage: BuiltInStorage, run: str) -> list[OpenRequest]:
    """Return the open requests of a run, in the order in which it asked.

    None of a run that is failed or cancelled, until somebody resumes it. The run is not read.

    Raises NotFound or Ambiguous for the run, and RunError for the run of a sub-workflow: its caller
    asks its questions.
    """
    info = await find_run(storage, run)
    await _check_no_caller(storage, info.run_id)
    return [_listed_question(request) for request in await storage.pending_requests(run_id=info.run_id)]


async def _check_no_caller(storage: BuiltInStorage, run_id: str) -> None:
    entry = await storage._store.run(run_id)
    if entry is not None and entry.metadata.caller is not None:
        await load_head(storage, run_id)


async def load_head(storage: BuiltInStorage, run: str) -> Checkpoint:
    """Return the newest checkpoint of a run that asks its own questions. Raises as `open_requests` does."""
    info = await find_run(storage, run)
    head = require_head(await StoreArchive(storage._store, DEFAULT_CODEC).head(info.run_id), info.run_id)
    if head.header.caller is not None:
        from stepwell.engine.intake.responses import check_no_caller  # lazy: 5 ms, and few runs have a caller

        check_no_caller(head)
    return head


async def load_requests(storage: BuiltInStorage, place: CheckpointInfo) -> list[OpenRequest]:
    """Return the requests that were open at a checkpoint.

    None counts as answered, as a fork could answer them all.
    """
    checkpoint, _ = await load_checkpoint(storage._store, place)
    return [
        _listed_question(pending_request(entry))
        for entry in pending_of(replace(checkpoint.header, caller=None), checkpoint.requests.values())
    ]


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
    has other work to do, and another answer can be sent. `by` and `comment` are stored with it.

    Raises NotFound or Ambiguous for the run, UnknownRequest or RequestExpired for the request,
    ResponseRejected, naming who was first, if it was answered already, RunError for a run that is
    failed or cancelled and for that of a sub-workflow, EditRefused for a value that is not JSON, and
    ValueError for a `by` or `comment` that is not text.
    """
    check_words("by", by)
    check_words("comment", comment)
    questions = {question.request_id: question for question in await open_requests(storage, run)}
    if request_id not in questions:
        raise await _explain_closed(storage, (await find_run(storage, run)).run_id, request_id, list(questions))
    await send_response(storage, questions[request_id], value, by=by, comment=comment)


async def _explain_closed(storage: BuiltInStorage, run_id: str, request_id: str, open_ids: list[str]) -> RunError:
    """Return the error for a request that cannot be answered: its run has stopped, or it is not open."""
    asked = await storage._store.requests(RequestFilter(run_id=run_id, request_id=request_id, stopped=True))
    run = await storage._store.run(run_id)
    if asked and run is not None:
        return RunError(
            f"run {run_id!r} is {status_word(run.status)}, so its requests cannot be answered; resume it first: "
            f"run(run_id={run_id!r}), or `stepwell resume {run_id} MODULE:WORKFLOW`",
            run_id=run_id,
        )
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    if any(answer.request_id == request_id for commit in await archive.commits(run_id) for answer in commit.answers):
        return await find_answered_error(archive, run_id, request_id)
    return _unknown_error(run_id, request_id, open_ids)


def _unknown_error(run_id: str, request_id: str, open_ids: Iterable[str], at: str = "") -> UnknownRequest:
    names = ", ".join(map(repr, open_ids)) or "none"
    return UnknownRequest(
        f"run {run_id!r} has no open request {request_id!r}{at}; open requests: {names}",
        run_id=run_id,
        request_id=request_id,
    )


async def send_response(
    storage: BuiltInStorage, question: OpenRequest, value: Any, *, by: str | None = None, comment: str | None = None
) -> None:
    """Send an answer to a request as it was read; the run is not read again.

    Raises RequestExpired, ResponseRejected if somebody answered it first, and EditRefused for a
    value that is not JSON.
    """
    answer = _encode_answer(question.request_id, value, by, comment)
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    earlier = find_pending_answer(question._key, await archive.pending_signals(question.run_id))
    if earlier is None:
        check_deadline(question.run_id, question.request_id, question.deadline)
    elif not is_repeated(earlier, answer):
        raise answered_error(question.run_id, question.request_id, earlier.by, earlier.at)
    await send_answer(archive, question.run_id, question._key, answer)


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
            raise _unknown_error(checkpoint.run_id, id, checkpoint.requests, f" at commit {checkpoint.number}")
        if request.is_awaited:
            raise UnknownRequest(
                f"request {id!r} of run {checkpoint.run_id!r} cannot be answered with the fork: {request.executor!r} "
                f"waits for it in its handler, which is called afresh and asks anew; fork without it, and answer the "
                f"fork when it has asked",
                run_id=checkpoint.run_id,
                request_id=id,
            )
        check_deadline(checkpoint.run_id, id, request.deadline)
        answers.append((request, _encode_answer(id, value, by, comment)))
    return answers


async def send_answers(archive: StoreArchive, header: RunHeader, answers: list[tuple[Request, ReceivedJson]]) -> None:
    for request, answer in answers:
        await send_answer(archive, header.run_id, answer_key(header.epoch, request), answer)


def check_deadline(run_id: str, request_id: str, deadline: str | None) -> None:
    """Raise RequestExpired if the deadline of a request has passed."""
    if deadline is not None and clock.until(deadline) <= timedelta(0):
        problem = f"request {request_id!r} has expired: its deadline was {deadline}"
        raise RequestExpired(problem, run_id=run_id, request_id=request_id)


def _encode_answer(request_id: str, value: Any, by: str | None, comment: str | None) -> ReceivedJson:
    check_plain(value, f"the answer to {request_id!r}")
    return ReceivedJson(request_id, msgspec.json.encode(value), by=by, comment=comment, at=clock.stamp())


def _listed_question(request: PendingRequest) -> OpenRequest:
    return OpenRequest(
        request.run_id,
        request.request_id,
        executor=request.executor_id,
        data=request.data,
        request_type=request.request_type,
        response_type=request.response_type,
        response_schema=request.response_schema,
        asked_at=request._entry.at,
        deadline=request._entry.deadline,
        answered=request.answered,
        _key=read_request_body(request._entry).key,
    )
