"""Validation of checkpoints that come from users: every part must be there and have the right type.

Every error is a CodecError whose path names the part. Values inside are checked by the codec when
they are encoded. The classes of a checkpoint are defined in a module that imports this one, so
their attributes are looked up by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stepwell.codec.codec import Encoded
from stepwell.codec.traversal import key_step, shorten
from stepwell.errors import CodecError
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.model.message import Reply
from stepwell.model.payload import ChunkedList, PayloadDict
from stepwell.storage.json_text import json_of
from stepwell.storage.limits import flaw_in_count, flaw_in_name, flaw_in_time
from stepwell.storage.wire.shapes import WireCommit

_MAPPINGS = (
    "messages",
    "state",
    "executor_states",
    "pending_request_info_events",
    "metadata",
    "graph_signature",
    "position",
)
_POSITION = msgspec.json.Decoder(WireCommit)
_WHERE = re.compile(r" - at `\$(.*)`$", re.DOTALL)


def check_parts(checkpoint: Any, message_type: type) -> None:
    """Raise CodecError, naming the path, if a part is missing or has the wrong type."""
    names = ("workflow_name", "checkpoint_id", "run_id")
    flaws = {f"$.{name}": flaw_in_name(getattr(checkpoint, name)) for name in names}
    if checkpoint.previous_checkpoint_id is not None:
        flaws["$.previous_checkpoint_id"] = flaw_in_name(checkpoint.previous_checkpoint_id)
    flaws |= {f"$.{name}": flaw_in_count(getattr(checkpoint, name)) for name in ("number", "iteration_count")}
    flaws["$.timestamp"] = flaw_in_time(checkpoint.timestamp)
    for path, why in flaws.items():
        if why is not None:
            raise _wrong(path, why)
    _check_type(checkpoint.status, WorkflowRunState, "$.status")
    for name in ("graph_signature_hash", "version"):
        _check_type(getattr(checkpoint, name), str, f"$.{name}")
    for name in _MAPPINGS:
        _check_mapping(getattr(checkpoint, name), f"$.{name}")
    for source, sent in checkpoint.messages.items():
        _check_messages(sent, message_type, f"$.messages{key_step(source)}")
    for id, event in checkpoint.pending_request_info_events.items():
        _check_type(event, WorkflowEvent, f"$.pending_request_info_events{key_step(id)}")
    for name in ("metadata", "graph_signature", "position"):
        _check_json(getattr(checkpoint, name), f"$.{name}")
    if checkpoint.position:
        _check_position(checkpoint)


def _check_messages(sent: Any, message_type: type, path: str) -> None:
    if isinstance(sent, str) or not isinstance(sent, Sequence):
        raise _wrong(path, f"is a {type(sent).__name__}, not a sequence of {message_type.__name__}")
    for n, message in enumerate(sent):
        _check_type(message, message_type, f"{path}[{n}]")
        _check_message(message, f"{path}[{n}]")


def _check_message(message: Any, path: str) -> None:
    if (why := flaw_in_name(message.id)) is not None:
        raise _wrong(f"{path}.id", why)
    for name in ("source_id", "target_id", "timer"):
        if getattr(message, name) is not None:
            _check_type(getattr(message, name), str, f"{path}.{name}")
    _check_payload(message.payload, f"{path}.payload")
    for name in ("takers", "joins"):
        ids = getattr(message, name)
        _check_type(ids, tuple, f"{path}.{name}")
        for n, id in enumerate(ids):
            _check_type(id, str, f"{path}.{name}[{n}]")
    if message.reply is not None:
        _check_type(message.reply, Reply, f"{path}.reply")
        _check_type(message.reply.request_id, str, f"{path}.reply.request_id")
        _check_payload(message.reply.question, f"{path}.reply.question")


def _check_payload(payload: Any, path: str) -> None:
    if not isinstance(payload, Encoded | ChunkedList | PayloadDict):
        raise _wrong(path, f"is a {type(payload).__name__}, not the payload of a stored message")
    try:
        json_of(payload)
    except CodecError as error:
        raise CodecError(error.message, path=f"{path}{error.path[1:]}") from error


def _check_mapping(value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        raise _wrong(path, f"is a {type(value).__name__}, not a mapping")
    for key in value:
        if not isinstance(key, str):
            raise _wrong(path, f"has a key that is a {type(key).__name__}, not a str: {shorten(key)}")


def _check_json(value: Mapping[str, Any], path: str) -> None:
    for key, inner in value.items():
        try:
            msgspec.json.encode(inner)
        except (RecursionError, TypeError, ValueError) as error:
            raise _wrong(f"{path}{key_step(key)}", f"is not plain JSON data: {shorten(error)}") from error


def _check_position(checkpoint: Any) -> None:
    try:
        shape = _POSITION.decode(msgspec.json.encode(dict(checkpoint.position)))
    except msgspec.ValidationError as error:
        # msgspec ends its messages with the path, which belongs into the path of our error.
        where = _WHERE.search(str(error))
        inner = where[1] if where else ""
        raise _wrong(f"$.position{inner}", f"is wrong: {shorten(_WHERE.sub('', str(error)))}") from error
    if shape.run is None:
        raise _wrong("$.position.run", "is missing")
    pairs = {
        "run.run_id": (shape.run.run_id, "run_id", checkpoint.run_id),
        "run.workflow": (shape.run.workflow, "workflow_name", checkpoint.workflow_name),
        "status": (shape.status, "status", checkpoint.status),
        "iteration": (shape.iteration, "iteration_count", checkpoint.iteration_count),
    }
    # These facts are stored twice. If the copies differed, lists and the engine would disagree.
    for inner, (there, name, here) in pairs.items():
        if there != here:
            raise _wrong(f"$.position.{inner}", f"is {shorten(there)!r}, but `$.{name}` is {shorten(here)!r}")


def _check_type(value: Any, wanted: type, path: str) -> None:
    if not isinstance(value, wanted):
        raise _wrong(path, f"is a {type(value).__name__}, not a {wanted.__name__}")


def _wrong(path: str, why: str) -> CodecError:
    return CodecError(f"this checkpoint cannot be stored: a part of it {why}", path=path)
