"""Turns a checkpoint into a JSON document that can be compared, searched and shown."""

from __future__ import annotations

from typing import Any

import msgspec

from stepwell.model.checkpoint import Checkpoint
from stepwell.model.message import RoutedMessage
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.status_words import status_word
from stepwell.storage.json_text import json_of


def document_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the content of a checkpoint as plain JSON data, with classes as their tags.

    Ids of the run, of checkpoints and messages, and times of commits are left out, so that runs
    that did the same differ little: ids of children and of requests stay. The `number` of a child
    is the commit its caller last saw.
    """
    return {
        "status": status_word(checkpoint.status),
        "iteration": checkpoint.iteration,
        "wake": checkpoint.wake,
        "state": {key: plain_value(value) for key, value in checkpoint.state.items()},
        "executors": {key: plain_value(value) for key, value in checkpoint.executors.items()},
        "messages": [_describe_message(message) for message in checkpoint.messages],
        "held": {
            join: {source: [plain_value(payload) for payload in payloads] for source, payloads in held.items()}
            for join, held in checkpoint.held.items()
        },
        "requests": {id: _describe_request(request) for id, request in checkpoint.requests.items()},
        "timers": {executor: dict(by_name) for executor, by_name in checkpoint.timers.items()},
        "children": {
            key: {"run_id": child.run_id, "executor": child.executor, "number": child.number}
            for key, child in checkpoint.children.items()
        },
    }


def plain_value(payload: Payload) -> Any:
    """Return a payload as plain JSON data, with classes as their tags."""
    return msgspec.json.decode(json_of(payload))


def _describe_message(message: RoutedMessage) -> dict[str, Any]:
    # A message without a source came from outside: an input, a response, or a timer.
    return {
        "from": message.source or "input",
        "to": [*message.takers, *message.joins],
        **({} if message.reply is None else {"answers": message.reply.request_id}),
        **({} if message.timer is None else {"timer": message.timer}),
        "data": plain_value(message.payload),
    }


def _describe_request(request: Request) -> dict[str, Any]:
    return {
        "executor": request.executor,
        "question": plain_value(request.payload),
        "request_type": request.request_type,
        "response_type": request.response_type,
        "deadline": request.deadline,
        **({} if request.default is None else {"default": plain_value(request.default)}),
    }
