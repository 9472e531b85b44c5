"""Answers in plain JSON, by somebody who does not have the program that asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell.admin.lookup import NotFound, find_run
from stepwell.admin.state_edits import check_plain
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.engine.responses import check_no_caller, has_passed
from stepwell.errors import RequestExpired, UnknownRequest
from stepwell.model.request import Request
from stepwell.model.superstep import Checkpoint, RunHeader
from stepwell.storage.archive import StoreArchive
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.ids import new_run_id
from stepwell.storage.signals import plain_key, write_plain_response


async def answer(storage: BuiltInStorage, run: str, request_id: str, value: Any) -> None:
    """Leave an answer to an open question of a run, in plain JSON. Durable when it returns.

    Whoever drives the run next makes it into the type that was asked for and takes it in. If that cannot be done, the
    question stays open: that drive raises ResponseRejected, or tells a `warning` if there is something else to go on
    with, and another answer can be given. The first that fits is taken; one given as `responses` of the workflow goes
    before.

    Raises NotFound or Ambiguous for the run, UnknownRequest or RequestExpired for the question, RunError for a run that
    works for another one, and EditRefused for what is no JSON.
    """
    info = await find_run(storage, run)
    archive = StoreArchive(storage._store, DEFAULT_CODEC)
    head = await archive.head(info.run_id)
    if head is None:
        raise NotFound(f"run {info.run_id!r} has gone meanwhile")
    check_no_caller(head)
    await send_answers(archive, head.header, encode_answers(head, {request_id: value}))


def encode_answers(checkpoint: Checkpoint, responses: Mapping[str, Any]) -> list[tuple[Request, bytes]]:
    """Answers to open questions, ready to be posted. Raises as `answer` does, before anything has changed."""
    return [(_find_request(checkpoint, id), _encode_answer(id, value)) for id, value in responses.items()]


async def send_answers(archive: StoreArchive, header: RunHeader, answers: list[tuple[Request, bytes]]) -> None:
    for request, answer in answers:
        await archive.send(header.run_id, plain_key(header.epoch, request, new_run_id()), answer)


def _find_request(checkpoint: Checkpoint, id: str) -> Request:
    request = checkpoint.requests.get(id)
    if request is None:
        open_ids = ", ".join(map(repr, checkpoint.requests)) or "none"
        raise UnknownRequest(
            f"run {checkpoint.run_id!r} does not ask {id!r} at commit {checkpoint.number}; open are: {open_ids}",
            run_id=checkpoint.run_id,
            request_id=id,
        )
    if has_passed(request.deadline):
        raise RequestExpired(
            f"the answer to {id!r} came too late: its deadline was {request.deadline}",
            run_id=checkpoint.run_id,
            request_id=id,
        )
    return request


def _encode_answer(id: str, value: Any) -> bytes:
    check_plain(value, f"the answer to {id!r}")
    return write_plain_response(id, msgspec.json.encode(value))
