"""A message as it is sent: JSON, and an id by which a receiver knows that it has it already."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import DurabilityError
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.outbox import OutboxRow
from stepwell.storage.pending_requests import pending_request
from stepwell.storage.stored_values import RequestEntry
from stepwell.storage.wire.format import read_commit

MakeLink = Callable[[RequestEntry], str]
"""Returns the address of a page on which a request can be answered."""


def message_id(message: OutboxRow) -> str:
    """Return the id of a message: the same for every attempt, and different for all others."""
    request = "" if message.request is None else message.request.request_id
    parts = [message.webhook, message.run_id, message.at, message.number, message.kind, request]
    return "msg_" + hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


async def build_payload(storage: BuiltInStorage, message: OutboxRow, make_link: MakeLink | None) -> bytes:
    """Return what is sent: what the outbox holds and, of a failure, the error, while its commit is stored."""
    content: dict[str, Any] = {
        "id": message_id(message),
        "type": message.kind,
        "timestamp": message.at,
        "data": {"run_id": message.run_id, "workflow": message.workflow, "commit": message.number},
    }
    if message.request is not None:
        content["data"]["request"] = _describe_request(message.request)
        if make_link is not None and message.kind == "request.asked":
            content["data"]["request"]["respond_at"] = make_link(message.request)
    if message.kind == "run.failed":
        content["data"]["errors"] = await _find_errors(storage, message)
    return msgspec.json.encode(content)


def _describe_request(entry: RequestEntry) -> dict[str, Any]:
    request = pending_request(entry)
    try:
        question: str | None = request.question
    except DurabilityError:  # it is sealed, and we have no key; the receiver can still show who asks
        question = None
    return {
        "id": request.request_id,
        "executor": request.executor_id,
        "question": question,
        "type": request.request_type,
        "response_type": request.response_type,
        "response_schema": request.response_schema,
        "asked_at": entry.at,
        "deadline": entry.deadline,
    }


async def _find_errors(storage: BuiltInStorage, message: OutboxRow) -> list[dict[str, Any]]:
    """Return the errors of a commit; none, if the run keeps only its latest checkpoint and has moved."""
    records = await storage._store.history(message.run_id, after=message.number - 1, upto=message.number)
    return [
        {"type": failure.error_type, "message": failure.message, "executor": failure.executor_id}
        for record in records
        for failure in read_commit(record, DEFAULT_CODEC)[0].failures
    ]
