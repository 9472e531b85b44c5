"""Requests and responses as JSON data: what is asked, of what kind the response is, and who gave one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from stepwell.admin.diffs.documents import plain_value
from stepwell.admin.questions import question_of
from stepwell.admin.values import to_data
from stepwell.errors import CannotUnseal
from stepwell.model.request import AnswerRecord, Request
from stepwell.model.signal import ReceivedJson
from stepwell.storage.answers import Response
from stepwell.storage.pending_requests import PendingRequest


def request_to_dict(request: Request, pending: Response | None = None) -> dict[str, Any]:
    """Return a request of a run as JSON data, with the response that is not applied yet, if there is one."""
    stored = plain_value(request.payload)
    return {
        "request_id": request.id,
        "executor": request.executor,
        "request_type": request.request_type,
        "response_type": request.response_type,
        "response_schema": msgspec.json.decode(request.schema),
        "asked_at": request.at,
        "deadline": request.deadline,
        "question": question_of(stored),
        "data": to_data(stored),
        "is_awaited": request.is_awaited,
        "answer": None if pending is None else pending_answer_to_dict(pending),
    }


def value_of(pending: Response) -> Any:
    """Return the value of a response that is not applied yet, in its stored form or as plain JSON."""
    return msgspec.json.decode(pending.value) if isinstance(pending, ReceivedJson) else plain_value(pending.value)


def pending_answer_to_dict(pending: Response) -> dict[str, Any]:
    """Return a response that is not applied yet as JSON data."""
    return {
        "value": to_data(value_of(pending)),
        "by": pending.by,
        "comment": pending.comment,
        "at": pending.at or None,
    }


def pending_request_to_dict(request: PendingRequest, now: datetime) -> dict[str, Any]:
    """Return a request from the list of all runs as JSON data.

    `question` and `data` are None if they are sealed and there is no key.
    """
    answer = request.answered
    try:
        stored, is_sealed = request.data, False
    except CannotUnseal:
        stored, is_sealed = None, True
    return {
        "request_id": request.request_id,
        "run_id": request.run_id,
        "workflow": request.workflow_name,
        "executor": request.executor_id,
        "request_type": request.request_type,
        "response_type": request.response_type,
        "response_schema": request.response_schema,
        "asked_at": request.asked_at.isoformat(),
        "age_seconds": int((now - request.asked_at).total_seconds()),
        "question": None if is_sealed else question_of(stored),
        "data": None if is_sealed else to_data(stored),
        "answered": answer is not None,
        "answered_by": None if answer is None else answer.by,
        "answered_at": None if answer is None else answer.at,
        "deadline": None if request.deadline is None else request.deadline.isoformat(),
        "sealed": is_sealed,
    }


def answer_to_dict(answer: AnswerRecord) -> dict[str, Any]:
    """Return a response that was applied as JSON data."""
    return {
        "request_id": answer.request_id,
        "executor": answer.executor,
        "value": to_data(plain_value(answer.value)),
        "by": answer.by,
        "comment": answer.comment,
        "at": answer.at,
    }
