"""Answers requests in plain JSON, without the program and the classes that asked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from stepwell.admin.requests import OpenRequest, load_head
from stepwell.admin.state_edits import check_plain
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import RequestExpired, UnknownRequest
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedJson
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import new_run_id
from stepwell.storage.signals import plain_key
from stepwell.storage.store_archive import StoreArchive


async def respond(storage: BuiltInStorage, run: str, request_id: str, value: Any) -> None:
    """Send an answer to an open request of a run, in plain JSON. Durable when it returns.

    The next drive of the run converts it to the requested type and applies it. If the conversion
    fails, the request stays open: that drive raises ResponseRejected, or emits a `warning` if it
    has other work to do, and another answer can be sent. The first answer that converts wins;
    `responses` passed to the workflow take precedence.

    Raises NotFound or Ambiguous for the run, UnknownRequest or RequestExpired for the request,
    RunError for the run of a sub-workflow, and EditRefused for a value that is not JSON.
    """
    head = await load_head(storage, run)
    answers = encode_answers(head, {request_id: value})
    await send_answers(StoreArchive(storage._store, DEFAULT_CODEC), head.header, answers)


async def send_response(storage: BuiltInStorage, question: OpenRequest, value: Any) -> None:
    """Send an answer to a request as it was read; the run is not read again.

    If the request was closed since, the answer is never applied. Raises RequestExpired, and
    EditRefused for a value that is not JSON.
    """
    answer = _encode_answer(question.run_id, question.request_id, question.deadline, value)
    key = plain_key(question._epoch, question.request_id, question.asked_at, new_run_id())
    await StoreArchive(storage._store, DEFAULT_CODEC).send(question.run_id, key, answer)


def encode_answers(checkpoint: Checkpoint, responses: Mapping[str, Any]) -> list[tuple[Request, ReceivedJson]]:
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
        answers.append((request, _encode_answer(checkpoint.run_id, id, request.deadline, value)))
    return answers


async def send_answers(archive: StoreArchive, header: RunHeader, answers: list[tuple[Request, ReceivedJson]]) -> None:
    for request, answer in answers:
        # Each answer has its own key. With one key per request, an answer of the wrong type would
        # be the first signal and would keep every later answer out.
        await archive.send(header.run_id, plain_key(header.epoch, request.id, request.at, new_run_id()), answer)


def _encode_answer(run_id: str, request_id: str, deadline: str | None, value: Any) -> ReceivedJson:
    if deadline is not None and clock.until(deadline) <= timedelta(0):
        problem = f"request {request_id!r} has expired: its deadline was {deadline}"
        raise RequestExpired(problem, run_id=run_id, request_id=request_id)
    check_plain(value, f"the answer to {request_id!r}")
    return ReceivedJson(request_id, msgspec.json.encode(value))
