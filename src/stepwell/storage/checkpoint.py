"""What users see of a commit: `WorkflowCheckpoint`, an immutable view whose values open when looked at."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from stepwell.codec.codec import DEFAULT_CODEC, Codec, Encoded
from stepwell.codec.traversal import key_step, shorten
from stepwell.errors import CheckpointCorrupt, CodecError
from stepwell.graph.graph import signature_hash
from stepwell.kernel.commit_events import request_events
from stepwell.kernel.lifecycle import apply
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.model.payload import Payload
from stepwell.model.superstep import Checkpoint, Commit, Reply, RoutedMessage
from stepwell.storage import clock
from stepwell.storage.checkpoint_validation import check_parts
from stepwell.storage.json_text import json_of
from stepwell.storage.port import Entry, Record
from stepwell.storage.wire.format import header_of, read_commit, read_requests, write_commit
from stepwell.storage.wire.shapes import FORMAT

VERSION = "1"
_NUMBERED = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})*")  # the id of a message that an engine sent


class PayloadMapping(Mapping[str, Any]):
    """Parcels by name; each look at one gives a fresh copy."""

    __slots__ = ("payloads",)

    def __init__(self, payloads: Mapping[str, Payload]) -> None:
        self.payloads = payloads

    def __getitem__(self, key: str) -> Any:
        return self.payloads[key].open()

    def __iter__(self) -> Iterator[str]:
        return iter(self.payloads)

    def __len__(self) -> int:
        return len(self.payloads)

    def __contains__(self, key: object) -> bool:
        return key in self.payloads

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return PayloadMapping, ({key: Encoded(json_of(p), DEFAULT_CODEC) for key, p in self.payloads.items()},)


@dataclass(frozen=True, slots=True)
class WorkflowMessage:
    """A message that was sent: who sent it, to whom it goes, and what it says."""

    id: str
    source_id: str | None
    payload: Payload = field(repr=False)
    target_id: str | None = None
    takers: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    reply: Reply | None = field(default=None, repr=False)  # the question it answers

    @property
    def data(self) -> Any:
        """What was sent, as a copy of the reader's own."""
        return self.payload.open()


def _now() -> str:
    return clock.stamp()


def _new_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class WorkflowCheckpoint:
    """The whole of a run at a commit. Immutable: what is read from it is a copy.

    `state` and `executor_states` hold the values themselves; `messages` those on their way, by sender.
    `to_dict` gives plain JSON data with everything needed to go on from here, and `from_dict` takes it back.
    """

    workflow_name: str
    graph_signature_hash: str = ""
    checkpoint_id: str = field(default_factory=_new_id)
    previous_checkpoint_id: str | None = None
    timestamp: str = field(default_factory=_now)
    messages: Mapping[str, Sequence[WorkflowMessage]] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    executor_states: Mapping[str, Any] = field(default_factory=dict)
    pending_request_info_events: Mapping[str, Any] = field(default_factory=dict)
    iteration_count: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: str = VERSION
    run_id: str = field(default_factory=_new_id)
    number: int = 0
    status: WorkflowRunState = WorkflowRunState.IDLE
    graph_signature: Mapping[str, Any] = field(default_factory=dict)
    position: Mapping[str, Any] = field(default_factory=dict, repr=False)  # what only the engine needs

    def __post_init__(self) -> None:
        frozen = ("messages", "state", "executor_states", "pending_request_info_events")
        for name in (*frozen, "metadata", "graph_signature", "position"):
            value = getattr(self, name)
            if isinstance(value, dict):
                object.__setattr__(self, name, MappingProxyType(dict(value)))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data. Raises CodecError, naming the path, if a part put in by hand cannot be stored."""
        check_parts(self, WorkflowMessage)
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["state"] = _plain(self.state, "$.state")
        plain["executor_states"] = _plain(self.executor_states, "$.executor_states")
        plain["messages"] = {source: [_plain_message(m) for m in sent] for source, sent in self.messages.items()}
        events = self.pending_request_info_events
        plain["pending_request_info_events"] = {id: _plain_request(event) for id, event in events.items()}
        plain["status"] = self.status.value
        for name in ("metadata", "graph_signature", "position"):
            plain[name] = dict(plain[name])
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> WorkflowCheckpoint:
        """Take back what `to_dict` gave. Raises CheckpointCorrupt, saying what is wrong, for anything else."""
        if not isinstance(data, Mapping):
            raise CheckpointCorrupt(f"a checkpoint is a mapping, as to_dict gives it, not a {type(data).__name__}")
        names = {f.name for f in fields(cls)}
        if unknown := sorted(map(str, set(data) - names)):
            raise CheckpointCorrupt(f"a checkpoint has no field {shorten(unknown[0])!r}")
        what = f"checkpoint {shorten(data.get('checkpoint_id'))!r}"
        if data.get("version", VERSION) != VERSION:
            raise CheckpointCorrupt(
                f"{what} is of version {shorten(data['version'])!r}, and this version "
                f"reads {VERSION!r}; use a newer Stepwell"
            )
        try:
            parts = dict(data)
            for name in ("metadata", "graph_signature", "position"):
                parts[name] = dict(data.get(name, {}))
            parts["state"] = _payload_mapping(data.get("state", {}))
            parts["executor_states"] = _payload_mapping(data.get("executor_states", {}))
            messages = data.get("messages", {})
            parts["messages"] = {source: tuple(map(_read_message, sent)) for source, sent in messages.items()}
            parts["status"] = WorkflowRunState(data.get("status", WorkflowRunState.IDLE))
            parts["pending_request_info_events"] = _request_events(data)
            return cls(**parts)
        except RecursionError:
            raise CheckpointCorrupt(f"{what} is not what to_dict gives: it is nested too deep") from None
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise CheckpointCorrupt(f"{what} is not what to_dict gives: {shorten(error)}") from error

    def __deepcopy__(self, memo: dict[int, Any]) -> WorkflowCheckpoint:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return self.to_dict()

    def __setstate__(self, data: dict[str, Any]) -> None:
        self.__dict__.update(vars(WorkflowCheckpoint.from_dict(data)))


def view(checkpoint: Checkpoint, commit: Commit) -> WorkflowCheckpoint:
    """What users see of a checkpoint, and of the commit that led to it."""
    header = checkpoint.header
    return WorkflowCheckpoint(
        workflow_name=header.workflow,
        graph_signature_hash=signature_hash(header.signature),
        checkpoint_id=checkpoint.stamp.checkpoint_id,
        previous_checkpoint_id=checkpoint.previous_id,
        timestamp=checkpoint.stamp.at,
        messages=by_source(checkpoint.messages),
        state=PayloadMapping(checkpoint.state),
        executor_states=PayloadMapping(checkpoint.executors),
        iteration_count=checkpoint.iteration,
        run_id=header.run_id,
        number=checkpoint.number,
        status=checkpoint.status,
        graph_signature=header.signature,
        pending_request_info_events={event.request_id: event for event in request_events(header.run_id, checkpoint)},
        metadata=commit.metadata,
        position=_position(checkpoint, commit),
    )


def by_source(messages: Sequence[RoutedMessage]) -> dict[str, tuple[WorkflowMessage, ...]]:
    """Messages by sender; those from outside under the name `input`."""
    groups: dict[str, tuple[WorkflowMessage, ...]] = {}
    for message in messages:
        source = message.source or "input"
        groups[source] = (*groups.get(source, ()), view_message(message))
    return groups


def view_message(m: RoutedMessage) -> WorkflowMessage:
    return WorkflowMessage(m.id, m.source, m.payload, m.target, m.takers, m.joins, m.reply)


def record_of(checkpoint: WorkflowCheckpoint) -> Record:
    """The record of a checkpoint that came from outside, standing alone. Raises CodecError, naming the path, if a part
    of it cannot be stored."""
    check_parts(checkpoint, WorkflowMessage)
    sent = sorted((m for group in checkpoint.messages.values() for m in group), key=lambda m: _order(m.id))
    tree = dict(checkpoint.position or _first_position(checkpoint))
    tree["messages"] = [_wire_message(m) for m in sent]
    tree["state"] = {"set": _plain(checkpoint.state, "$.state")}
    tree["executors"] = _plain(checkpoint.executor_states, "$.executor_states")
    tree["metadata"] = dict(checkpoint.metadata)
    try:
        return Record(entry_of(checkpoint), msgspec.json.encode(tree))
    except (RecursionError, TypeError, ValueError) as error:  # what was put in by hand is not looked at before
        raise CodecError(f"this checkpoint cannot be stored: {shorten(error)}", path="$") from error


def entry_of(checkpoint: WorkflowCheckpoint) -> Entry:
    # a commit that takes outputs back belongs among them
    outputs = "restored" in checkpoint.position or any(
        done.get("outputs") for done in checkpoint.position.get("done", ())
    )
    return Entry(
        checkpoint.run_id,
        checkpoint.number,
        checkpoint.checkpoint_id,
        checkpoint.workflow_name,
        checkpoint.status.value,
        checkpoint.iteration_count,
        checkpoint.timestamp,
        is_snapshot=True,
        outputs=outputs,
    )


def unview(checkpoint: WorkflowCheckpoint, codec: Codec) -> tuple[Checkpoint, Commit]:
    """The engine's own values behind a view. Raises CodecError, naming the path, if a part of it is wrong."""
    record = record_of(checkpoint)
    try:
        commit, shape = read_commit(record, codec)
    except CheckpointCorrupt as error:  # the parts are of their types, but what they say cannot be true
        path = "$.position" if checkpoint.position else "$.graph_signature"
        raise CodecError(f"this checkpoint cannot be stored: {error}", path=path) from error
    return apply(header_of(shape), None, commit, previous_id=checkpoint.previous_checkpoint_id), commit


def _position(checkpoint: Checkpoint, commit: Commit) -> dict[str, Any]:
    """Everything of a frame that a checkpoint does not show under a name of its own."""
    requests = tuple(checkpoint.requests.values())
    parts: dict[str, Any] = {"held": checkpoint.held, "asked": requests, "children": checkpoint.children}
    bare = replace(commit, messages=None, state={}, executors={}, closed=(), metadata={}, **parts)
    tree: dict[str, Any] = msgspec.json.decode(write_commit(bare, checkpoint.header, checkpoint.previous_id))
    return tree


def _first_position(checkpoint: WorkflowCheckpoint) -> dict[str, Any]:
    """The position of a checkpoint made by hand: the beginning of a run of its own."""
    run = {
        "run_id": checkpoint.run_id,
        "workflow": checkpoint.workflow_name,
        "signature": dict(checkpoint.graph_signature),
        "input_digest": "",
    }
    counted = {"iteration": checkpoint.iteration_count, "since_input": 0, "place": checkpoint.number}
    return {"format": FORMAT, "kind": "saved", "status": checkpoint.status.value, **counted, "run": run}


def _order(message_id: str) -> tuple[int, ...]:
    """Messages in the order of the plan that sent them; their ids say it."""
    return tuple(map(int, message_id.split("."))) if _NUMBERED.fullmatch(message_id) else ()


def _plain(values: Mapping[str, Any], what: str) -> dict[str, Any]:
    if isinstance(values, PayloadMapping):
        return {key: msgspec.json.decode(json_of(payload)) for key, payload in values.payloads.items()}
    return {
        key: msgspec.json.decode(DEFAULT_CODEC.encode(value, f"{what}{key_step(key)}")) for key, value in values.items()
    }


def _payload_mapping(plain: Mapping[str, Any]) -> PayloadMapping:
    return PayloadMapping({str(key): _close(value) for key, value in plain.items()})


def _close(plain: object) -> Encoded:
    return Encoded(msgspec.json.encode(plain), DEFAULT_CODEC)


def _plain_message(m: WorkflowMessage) -> dict[str, Any]:
    head = {"id": m.id, "source_id": m.source_id, "target_id": m.target_id}
    reply = None
    if m.reply is not None:
        question = msgspec.json.decode(json_of(m.reply.question))
        reply = {"request_id": m.reply.request_id, "question": question, "child": m.reply.child}
    routed = {"takers": list(m.takers), "joins": list(m.joins), "reply": reply}
    return {**head, **routed, "data": msgspec.json.decode(json_of(m.payload))}


def _read_message(m: Mapping[str, Any]) -> WorkflowMessage:
    answered = m.get("reply")  # not there in what was written before there were requests
    reply = None
    if answered is not None:
        reply = Reply(answered["request_id"], _close(answered["question"]), answered.get("child"))
    source, target = m["source_id"], m["target_id"]
    return WorkflowMessage(m["id"], source, _close(m["data"]), target, tuple(m["takers"]), tuple(m["joins"]), reply)


def _plain_request(event: WorkflowEvent) -> dict[str, Any]:
    """What a person who reads the dict wants to know of a question; `position` holds it for the engine."""
    return {
        "request_id": event.request_id,
        "source_executor_id": event.source_executor_id,
        "request_type": event.request_type,
        "response_type": event.response_type,
        "response_schema": event.response_schema,
        "deadline": event.deadline,
    }


def _request_events(data: Mapping[str, Any]) -> dict[str, WorkflowEvent]:
    requests = read_requests(data.get("position", {}).get("asked", []), DEFAULT_CODEC)
    origin: dict[str, Any] = {"run_id": data.get("run_id"), "commit": data.get("number"), "replayed": True}
    return {
        r.id: WorkflowEvent.from_payload("request_info", r.payload, executor_id=r.executor, request=r, **origin)
        for r in requests
    }


def _wire_message(m: WorkflowMessage) -> dict[str, Any]:
    named: dict[str, Any] = {
        "id": m.id,
        "source": m.source_id,
        "target": m.target_id,
        "takers": m.takers,
        "joins": m.joins,
    }
    if m.reply is not None:
        named["reply"] = {"request_id": m.reply.request_id, "question": msgspec.Raw(json_of(m.reply.question))}
        if m.reply.child is not None:
            named["reply"]["child"] = m.reply.child
    return {**named, "payload": msgspec.Raw(json_of(m.payload))}
