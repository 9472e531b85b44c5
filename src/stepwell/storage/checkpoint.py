"""`WorkflowCheckpoint`, the users' view of a checkpoint: immutable, values decoded when read."""

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
from stepwell.kernel.commit import apply, request_events
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, decides
from stepwell.model.event import CheckpointInfo, WorkflowEvent, WorkflowRunState
from stepwell.model.message import Reply, RoutedMessage
from stepwell.model.payload import Payload
from stepwell.storage import clock
from stepwell.storage.checkpoint_validation import check_parts
from stepwell.storage.json_text import json_of
from stepwell.storage.stored_values import Entry, Record
from stepwell.storage.wire.format import header_of, read_commit, read_requests, write_commit
from stepwell.storage.wire.shapes import FORMAT

VERSION = "1"
# The id of a message sent by an engine. At most 18 digits for each number: an id from outside may
# be of any length, and Python refuses to parse very long numbers.
_NUMBERED = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})*")


class PayloadMapping(Mapping[str, Any]):
    """Payloads by name; every access decodes a fresh copy."""

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
        # Payloads refer to a codec, which cannot be pickled: their JSON can.
        return PayloadMapping, ({key: Encoded(json_of(p), DEFAULT_CODEC) for key, p in self.payloads.items()},)


@dataclass(frozen=True, slots=True)
class WorkflowMessage:
    """A message: who sent it, to whom it goes, and its content."""

    id: str
    source_id: str | None
    payload: Payload = field(repr=False)
    target_id: str | None = None
    takers: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    reply: Reply | None = field(default=None, repr=False)  # the request it responds to
    timer: str | None = None  # of a timer, whose name is the data: the time that was set

    @property
    def data(self) -> Any:
        """A fresh copy of what was sent."""
        return self.payload.open()


def _now() -> str:
    return clock.stamp()


def _new_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class WorkflowCheckpoint:
    """The whole of a run at a commit. Immutable: what is read from it is a copy.

    `state` and `executor_states` hold the values themselves; `messages` those in flight, by sender.
    `to_dict` returns plain JSON data with everything needed to continue from here, and `from_dict`
    reads it back.
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
    # What only the engine needs.
    position: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        # A frozen dataclass does not freeze its dicts: copies behind proxies keep callers from
        # changing what the view shows.
        frozen = ("messages", "state", "executor_states", "pending_request_info_events")
        for name in (*frozen, "metadata", "graph_signature", "position"):
            value = getattr(self, name)
            if isinstance(value, dict):
                object.__setattr__(self, name, MappingProxyType(dict(value)))

    @property
    def parent(self) -> CheckpointInfo | None:
        """The checkpoint that its run was forked from, which may be deleted by now."""
        header = self.position.get("run", {})
        run_id, id, number = (header.get(name) for name in ("parent_run", "parent_id", "parent_number"))
        return None if run_id is None or id is None or number is None else CheckpointInfo(run_id, id, number)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data.

        Raises CodecError, naming the path, if a part set by hand cannot be stored.
        """
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
        """Read what `to_dict` returned.

        Raises CheckpointCorrupt, with the reason, for anything else.
        """
        if not isinstance(data, Mapping):
            raise CheckpointCorrupt(f"expected a mapping from to_dict, got {type(data).__name__}")
        names = {f.name for f in fields(cls)}
        if unknown := sorted(map(str, set(data) - names)):
            raise CheckpointCorrupt(f"a checkpoint has no field {shorten(unknown[0])!r}")
        what = f"checkpoint {shorten(data.get('checkpoint_id'))!r}"
        if data.get("version", VERSION) != VERSION:
            raise CheckpointCorrupt(
                f"{what} has version {shorten(data['version'])!r}, and this Stepwell reads version {VERSION!r}; "
                f"use a newer Stepwell"
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
            raise CheckpointCorrupt(f"{what} does not come from to_dict: it is nested too deep") from None
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise CheckpointCorrupt(f"{what} does not come from to_dict: {shorten(error)}") from error

    # It is immutable, so a deep copy is the object itself. Pickles hold the dict, because mapping
    # proxies cannot be pickled.

    def __deepcopy__(self, memo: dict[int, Any]) -> WorkflowCheckpoint:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return self.to_dict()

    def __setstate__(self, data: dict[str, Any]) -> None:
        self.__dict__.update(vars(WorkflowCheckpoint.from_dict(data)))


def view(checkpoint: Checkpoint, commit: Commit) -> WorkflowCheckpoint:
    """Return what users see of a checkpoint and of the commit that led to it."""
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
    """Group messages by sender; those from outside under the name `input`."""
    groups: dict[str, tuple[WorkflowMessage, ...]] = {}
    for message in messages:
        source = message.source or "input"  # a message from outside has no source
        groups[source] = (*groups.get(source, ()), view_message(message))
    return groups


def view_message(m: RoutedMessage) -> WorkflowMessage:
    routed: dict[str, Any] = {"target_id": m.target, "takers": m.takers, "joins": m.joins}
    return WorkflowMessage(m.id, m.source, payload=m.payload, **routed, reply=m.reply, timer=m.timer)


def record_of(checkpoint: WorkflowCheckpoint) -> Record:
    """Return the record, a snapshot, of a checkpoint that came from outside.

    Raises CodecError, naming the path, if a part of it cannot be stored.
    """
    check_parts(checkpoint, WorkflowMessage)
    # The view groups messages by sender; the engine needs them in the order in which they were
    # sent.
    sent = sorted((m for group in checkpoint.messages.values() for m in group), key=lambda m: _order(m.id))
    tree = dict(checkpoint.position or _first_position(checkpoint))
    tree["messages"] = [_wire_message(m) for m in sent]
    tree["state"] = {"set": _plain(checkpoint.state, "$.state")}
    tree["executors"] = _plain(checkpoint.executor_states, "$.executor_states")
    tree["metadata"] = dict(checkpoint.metadata)
    try:
        return Record(entry_of(checkpoint), msgspec.json.encode(tree))
    except (RecursionError, TypeError, ValueError) as error:  # of values that a user set by hand
        raise CodecError(f"this checkpoint cannot be stored: {shorten(error)}", path="$") from error


def entry_of(checkpoint: WorkflowCheckpoint) -> Entry:
    # A restore withdraws outputs, so readers of outputs alone must see it too.
    outputs = "restored" in checkpoint.position or any(
        done.get("outputs") for done in checkpoint.position.get("done", ())
    )
    position = checkpoint.position
    return Entry(
        checkpoint.run_id,
        checkpoint.number,
        checkpoint_id=checkpoint.checkpoint_id,
        workflow=checkpoint.workflow_name,
        status=checkpoint.status.value,
        iteration=checkpoint.iteration_count,
        at=checkpoint.timestamp,
        is_snapshot=True,
        outputs=outputs,
        decisions=decides(
            position.get("kind", ""),
            caller=position.get("run", {}).get("caller"),
            by=position.get("by"),
            has_answers=bool(position.get("answers")),
        ),
    )


def unview(checkpoint: WorkflowCheckpoint, codec: Codec) -> tuple[Checkpoint, Commit]:
    """Return the engine's values behind a view.

    Raises CodecError, naming the path, if a part of it is wrong.
    """
    record = record_of(checkpoint)
    try:
        commit, shape = read_commit(record, codec)
    # Every part has its type, but together they contradict each other.
    except CheckpointCorrupt as error:
        path = "$.position" if checkpoint.position else "$.graph_signature"
        raise CodecError(f"this checkpoint cannot be stored: {error}", path=path) from error
    return apply(header_of(shape), None, commit, previous_id=checkpoint.previous_checkpoint_id), commit


def _position(checkpoint: Checkpoint, commit: Commit) -> dict[str, Any]:
    """Return everything in a snapshot that the view does not show in a field of its own."""
    requests = tuple(checkpoint.requests.values())
    parts: dict[str, Any] = {"held": checkpoint.held, "asked": requests, "children": checkpoint.children}
    parts["timers"] = checkpoint.timers
    bare = replace(commit, messages=None, state={}, executors={}, closed=(), metadata={}, **parts)
    tree: dict[str, Any] = msgspec.json.decode(write_commit(bare, checkpoint.header, checkpoint.previous_id))
    return tree


def _first_position(checkpoint: WorkflowCheckpoint) -> dict[str, Any]:
    """Return the position of a checkpoint made by hand: the start of a new run."""
    run = {
        "run_id": checkpoint.run_id,
        "workflow": checkpoint.workflow_name,
        "signature": dict(checkpoint.graph_signature),
        "input_digest": "",
    }
    counted = {"iteration": checkpoint.iteration_count, "since_input": 0, "place": checkpoint.number}
    return {"format": FORMAT, "kind": "saved", "status": checkpoint.status.value, **counted, "run": run}


def _order(message_id: str) -> tuple[int, ...]:
    """Return a sort key: the ids of messages count up in the order of the plan that sent them."""
    return tuple(map(int, message_id.split("."))) if _NUMBERED.fullmatch(message_id) else ()


def _plain(values: Mapping[str, Any], what: str) -> dict[str, Any]:
    if isinstance(values, PayloadMapping):
        return {key: msgspec.json.decode(json_of(payload)) for key, payload in values.payloads.items()}
    return {
        key: msgspec.json.decode(DEFAULT_CODEC.encode(value, f"{what}{key_step(key)}")) for key, value in values.items()
    }


def _payload_mapping(plain: Mapping[str, Any]) -> PayloadMapping:
    return PayloadMapping({str(key): _encoded(value) for key, value in plain.items()})


def _encoded(plain: object) -> Encoded:
    return Encoded(msgspec.json.encode(plain), DEFAULT_CODEC)


def _plain_message(m: WorkflowMessage) -> dict[str, Any]:
    head = {"id": m.id, "source_id": m.source_id, "target_id": m.target_id}
    reply = None
    if m.reply is not None:
        question = msgspec.json.decode(json_of(m.reply.question))
        reply = {"request_id": m.reply.request_id, "question": question, "child": m.reply.child}
    routed = {"takers": list(m.takers), "joins": list(m.joins), "reply": reply, "timer": m.timer}
    return {**head, **routed, "data": msgspec.json.decode(json_of(m.payload))}


def _read_message(m: Mapping[str, Any]) -> WorkflowMessage:
    answered = m.get("reply")
    reply = None
    if answered is not None:
        reply = Reply(answered["request_id"], _encoded(answered["question"]), answered.get("child"))
    source, target = m["source_id"], m["target_id"]
    takers, joins, payload = tuple(m["takers"]), tuple(m["joins"]), _encoded(m["data"])
    routed: dict[str, Any] = {"target_id": target, "takers": takers, "joins": joins, "timer": m.get("timer")}
    return WorkflowMessage(m["id"], source, payload=payload, reply=reply, **routed)


def _plain_request(event: WorkflowEvent) -> dict[str, Any]:
    """Return a request for people who read the dict; the engine reads `position`."""
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
        r.id: WorkflowEvent("request_info", payload=r.payload, executor_id=r.executor, request=r, **origin)
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
    if m.timer is not None:
        named["timer"] = m.timer
    return {**named, "payload": msgspec.Raw(json_of(m.payload))}
