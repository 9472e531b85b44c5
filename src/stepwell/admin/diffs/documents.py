"""A checkpoint as a JSON document that can be compared: what its run is and holds there, in the form it is stored."""

from __future__ import annotations

from typing import Any

import msgspec

from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.superstep import Checkpoint, RoutedMessage
from stepwell.storage.json_text import json_of


def document_of(at: Checkpoint) -> dict[str, Any]:
    """What a checkpoint holds, as plain JSON data: values as they are stored, classes as their tags.

    What only says where and when it was made (ids of run, checkpoint and messages, times of commits) is left out: two
    runs that did the same have the same document. In a run inside, `number` says where it was left.
    """
    return {
        "status": at.status.value,
        "iteration": at.iteration,
        "wake": at.wake,
        "state": {key: _plain(value) for key, value in at.state.items()},
        "executors": {key: _plain(value) for key, value in at.executors.items()},
        "messages": [_message(message) for message in at.messages],
        "held": {
            join: {source: [_plain(one) for one in payloads] for source, payloads in held.items()}
            for join, held in at.held.items()
        },
        "requests": {id: _request(request) for id, request in at.requests.items()},
        "children": {
            key: {"run_id": child.run_id, "executor": child.executor, "number": child.number}
            for key, child in at.children.items()
        },
    }


def _plain(value: Payload) -> Any:
    return msgspec.json.decode(json_of(value))


def _message(message: RoutedMessage) -> dict[str, Any]:
    known: dict[str, Any] = {"from": message.source or "input", "to": [*message.takers, *message.joins]}
    if message.reply is not None:
        known["answers"] = message.reply.request_id
    return {**known, "data": _plain(message.payload)}


def _request(request: Request) -> dict[str, Any]:
    known = {
        "executor": request.executor,
        "question": _plain(request.payload),
        "request_type": request.request_type,
        "response_type": request.response_type,
        "deadline": request.deadline,
    }
    return known if request.default is None else {**known, "default": _plain(request.default)}
