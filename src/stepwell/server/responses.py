"""Sends responses that came over HTTP: checked against the schema of the request, repeated without harm."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from stepwell.admin.diffs.json_diff import pointer_of
from stepwell.admin.requests import open_requests, respond
from stepwell.admin.schemas.validation import UnusableSchema, find_flaws
from stepwell.admin.state_edits import check_plain
from stepwell.admin.values import to_data
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.error_ids import ErrorId
from stepwell.errors import ResponseRejected
from stepwell.server.problems import FieldError, RequestRefused
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.json_text import json_of
from stepwell.storage.store_archive import StoreArchive

_SHOWN = 5  # problems of one response


async def send_checked_response(
    storage: BuiltInStorage, run_id: str, request_id: str, value: Any, *, by: str, comment: str | None = None
) -> None:
    """Send a response in plain JSON. The same one by the same person may be sent again.

    Raises RequestRefused if it does not match the schema of the request, and what `admin.respond`
    raises.
    """
    for request in await open_requests(storage, run_id):
        if request.request_id == request_id:
            check_value(request.response_schema, value, f"{request_id!r}, which expects {request.response_type}")
    try:
        await respond(storage, run_id, request_id, value, by=by, comment=comment)
    except ResponseRejected:
        if not await _was_applied(storage, run_id, request_id, value, by):
            raise


def check_value(schema: dict[str, Any], value: Any, what: str) -> None:
    """Raise RequestRefused if a value does not match the schema of a request, EditRefused if it cannot be stored."""
    check_plain(value, "the response")
    try:
        flaws = find_flaws(schema, value)[:_SHOWN]
    except UnusableSchema:
        return  # the process that drives the run converts it, and rejects what does not fit
    if flaws:
        raise RequestRefused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"this is not a valid response to {what}: {'; '.join(map(str, flaws))}",
            errors=[FieldError(pointer_of(flaw.path), flaw.message) for flaw in flaws],
            code=ErrorId.WRONG_RESPONSE,
        )


async def _was_applied(storage: BuiltInStorage, run_id: str, request_id: str, value: Any, by: str) -> bool:
    """Return whether the run has applied this very response of this person."""
    wanted = msgspec.json.encode(value, order="deterministic")
    for commit in reversed(await StoreArchive(storage._store, DEFAULT_CODEC).commits(run_id)):
        for answer in commit.answers:
            if answer.request_id == request_id and answer.by == by:
                applied = msgspec.json.decode(json_of(answer.value))
                return msgspec.json.encode(to_data(applied), order="deterministic") == wanted
    return False
