"""Format 1: commits as JSON, and the parts they share with the superstep log. `docs/format.md` explains it.

The shapes are frozen once published: a change is a new format number, and the old one stays
readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from stepwell.codec.codec import Codec, Encoded
from stepwell.errors import CheckpointCorrupt, CodecError, NewerFormat
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.child import Child
from stepwell.model.commit import Commit, Done, Stamp
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.message import Held, Output, Reply, RoutedMessage
from stepwell.model.payload import Payload
from stepwell.model.request import AnswerRecord, Request
from stepwell.model.state_writes import Appended, Assigned, Deleted, Edited, Write
from stepwell.storage.checked_reads import damage_error, decode_stored, read_moment
from stepwell.storage.deltas import WORTH_IT, Splice, StoredEdit, splice_of
from stepwell.storage.json_text import json_of
from stepwell.storage.stored_values import Entry, Record
from stepwell.storage.wire.shapes import (
    FORMAT,
    NOTHING,
    READABLE,
    Raw,
    WireAnswer,
    WireChild,
    WireCommit,
    WireDone,
    WireFailure,
    WireMessage,
    WireOutput,
    WireReply,
    WireRequest,
    WireRun,
    WireSplice,
    WireWrites,
)
from stepwell.storage.wire.validation import check_commit

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode_commit = msgspec.json.Decoder(WireCommit).decode
_decode_requests = msgspec.json.Decoder(list[WireRequest]).decode


# -------------------------------------------------------------------- commits


def write_commit(
    commit: Commit, header: RunHeader | None, previous_id: str | None, before: Checkpoint | None = None
) -> bytes:
    """Return the body of a record: with a header a snapshot, otherwise a delta to `before`."""
    held = commit.held
    # Most commits have few of these parts: a helper is called only for those that are there.
    executors, splices = _executors(commit.executors, before) if commit.executors else ({}, {})
    shape = WireCommit(
        format=FORMAT,
        kind=commit.kind,
        status=commit.status,
        iteration=commit.iteration,
        since_input=commit.since_input,
        place=commit.place,
        run=None if header is None else convert(header, WireRun),
        previous_id=None if header is None else previous_id,
        messages=None if commit.messages is None else [_message(m) for m in commit.messages],
        held=None if held is None else _held(held),
        state=write_state(commit.state, before) if commit.state else None,
        executors=executors,
        executor_splices=splices,
        asked=[write_request(r) for r in commit.asked] if commit.asked else [],
        questions=commit.questions,
        closed=commit.closed,
        answers=[write_answer(a) for a in commit.answers] if commit.answers else [],
        withdrawn=commit.withdrawn,
        children=convert_children(commit.children, WireChild) if commit.children else {},
        tags=dict(commit.tags) if commit.tags else {},
        timers={id: dict(by_name) for id, by_name in commit.timers.items()} if commit.timers else {},
        wake=commit.wake,
        restored=commit.restored,
        migrated=commit.migrated,
        done=[
            WireDone(
                d.delivery,
                d.executor,
                sent=d.sent,
                outputs=write_outputs(d.outputs) if d.outputs else [],
                asked=d.asked,
                attempts=d.attempts,
                time=d.time,
                steps=d.steps,
            )
            for d in commit.done
        ],
        failures=[convert(f, WireFailure) for f in commit.failures] if commit.failures else [],
        warnings=commit.warnings,
        by=commit.by,
        reason=commit.reason,
        metadata=dict(commit.metadata) if commit.metadata else {},
    )
    return _encode(shape)


def read_shape(record: Record) -> WireCommit:
    """Decode the body of a record.

    Raises CheckpointCorrupt, naming the checkpoint, if it is damaged.
    """
    entry = record.entry
    shape = decode_stored(_decode_commit, record.body, entry)
    check_format(shape.format, entry)
    check_commit(shape, entry)
    # Entry and body may be stored apart: a body that was copied from another run is refused.
    if shape.run is not None and shape.run.run_id != entry.run_id:
        raise CheckpointCorrupt(
            f"checkpoint {entry.checkpoint_id} is stored under run {entry.run_id!r} but was written by run "
            f"{shape.run.run_id!r}"
        )
    return shape


def read_changes(shape: WireCommit, entry: Entry, codec: Codec) -> Commit:
    """Return what a commit changed, without what was done to change it: enough to apply it."""
    held = shape.held
    read_moment(entry.at, entry)  # times of answers are compared with it
    return Commit(
        number=entry.number,
        kind=shape.kind,
        stamp=Stamp(entry.checkpoint_id, entry.at),
        status=shape.status,
        iteration=shape.iteration,
        since_input=shape.since_input,
        place=shape.place,
        messages=None if shape.messages is None else tuple([_read_message(m, codec) for m in shape.messages]),
        held=None if held is None else _read_held(held, codec),
        state={} if shape.state is None else _read_writes(shape.state, codec, entry),
        executors=_read_executors(shape, codec, entry) if shape.executors or shape.executor_splices else {},
        asked=tuple([read_request(r, codec) for r in shape.asked]),
        questions=shape.questions,
        closed=shape.closed,
        children=convert_children(shape.children, Child) if shape.children else {},
        tags=shape.tags,
        timers=shape.timers,
        wake=shape.wake,
    )


def read_commit(record: Record, codec: Codec) -> tuple[Commit, WireCommit]:
    """Decode the commit in a record.

    Raises CheckpointCorrupt, naming the checkpoint, if it is damaged.
    """
    shape = read_shape(record)
    return msgspec.structs.replace(
        read_changes(shape, record.entry, codec),
        restored=shape.restored,
        migrated=shape.migrated,
        answers=tuple([read_answer(a, codec) for a in shape.answers]),
        withdrawn=shape.withdrawn,
        done=tuple(
            Done(
                d.delivery,
                d.executor,
                sent=d.sent,
                outputs=read_outputs(d.outputs, codec),
                asked=d.asked,
                attempts=d.attempts,
                time=d.time,
                steps=d.steps,
            )
            for d in shape.done
        ),
        failures=tuple(convert(f, WorkflowErrorDetails) for f in shape.failures),
        warnings=shape.warnings,
        by=shape.by,
        reason=shape.reason,
        metadata=shape.metadata,
    ), shape


def header_of(shape: WireCommit) -> RunHeader:
    """Return the run header in a snapshot."""
    assert shape.run is not None
    # Not `convert`, which looks at all types of the header first: half a millisecond in a new process.
    return RunHeader(**msgspec.structs.asdict(shape.run))


# -------------------------------------------------------------------- parts: each written and read


def check_format(version: int, what: object) -> None:
    if version in READABLE:
        return
    if version < min(READABLE):
        raise damage_error(what, f"there is no format {version}")
    raise NewerFormat(f"{what} has format {version}, and this Stepwell reads {READABLE}; use a newer Stepwell")


def raw_of(payload: Payload) -> Raw:
    return Raw(payload.json if isinstance(payload, Encoded) else json_of(payload))


def payload_of(raw: Raw, codec: Codec) -> Payload:
    return Encoded(bytes(raw), codec)


def convert(value: object, kind: type[T]) -> T:
    """Return a value of ours as the shape that has the same fields, or the other way round."""
    return msgspec.convert(value, kind, from_attributes=True)


def convert_children(children: Mapping[str, object], kind: type[T]) -> dict[str, T | None]:
    return {key: None if child is None else convert(child, kind) for key, child in children.items()}


def _message(m: RoutedMessage) -> WireMessage:
    reply = None if m.reply is None else WireReply(m.reply.request_id, raw_of(m.reply.question), m.reply.child)
    payload = raw_of(m.payload)
    return WireMessage(
        m.id, m.source, payload=payload, target=m.target, takers=m.takers, joins=m.joins, reply=reply, timer=m.timer
    )


def _read_message(m: WireMessage, codec: Codec) -> RoutedMessage:
    reply = None if m.reply is None else Reply(m.reply.request_id, payload_of(m.reply.question, codec), m.reply.child)
    payload = payload_of(m.payload, codec)
    return RoutedMessage(
        m.id, m.source, payload=payload, target=m.target, takers=m.takers, joins=m.joins, reply=reply, timer=m.timer
    )


def write_request(r: Request) -> WireRequest:
    return WireRequest(
        r.id,
        r.executor,
        payload=raw_of(r.payload),
        request_type=r.request_type,
        response_type=r.response_type,
        schema=Raw(r.schema.encode()),
        at=r.at,
        deadline=r.deadline,
        default=NOTHING if r.default is None else raw_of(r.default),
        child=r.child,
        waiting=r.waiting,
    )


def write_answer(a: AnswerRecord) -> WireAnswer:
    return WireAnswer(a.request_id, a.executor, value=raw_of(a.value), at=a.at, by=a.by, comment=a.comment)


def read_answer(a: WireAnswer, codec: Codec) -> AnswerRecord:
    return AnswerRecord(a.request_id, a.executor, value=payload_of(a.value, codec), at=a.at, by=a.by, comment=a.comment)


def _held(held: Held) -> dict[str, dict[str, list[Raw]]]:
    return {key: {s: [raw_of(p) for p in ps] for s, ps in v.items()} for key, v in held.items()}


def read_requests(plain: list[Any], codec: Codec) -> list[Request]:
    """Read requests from plain JSON data."""
    return [read_request(r, codec) for r in _decode_requests(_encode(plain))]


def read_request(r: WireRequest, codec: Codec) -> Request:
    return Request(
        r.id,
        r.executor,
        payload=payload_of(r.payload, codec),
        request_type=r.request_type,
        response_type=r.response_type,
        schema=bytes(r.schema).decode(),
        at=r.at,
        deadline=r.deadline,
        default=payload_of(r.default, codec) if bytes(r.default) else None,
        child=r.child,
        waiting=r.waiting,
    )


def _read_held(held: dict[str, dict[str, list[Raw]]], codec: Codec) -> Held:
    return {key: {s: tuple(payload_of(p, codec) for p in ps) for s, ps in v.items()} for key, v in held.items()}


def write_outputs(outputs: tuple[Output, ...]) -> list[WireOutput]:
    return [WireOutput(output.kind, raw_of(output.payload)) for output in outputs]


def read_outputs(outputs: list[WireOutput], codec: Codec) -> tuple[Output, ...]:
    return tuple(Output(output.kind, payload_of(output.payload, codec)) for output in outputs)


# -------------------------------------------------------------------- state, and deltas of it


def write_state(writes: Mapping[str, Write | Edited], before: Checkpoint | None) -> WireWrites:
    earlier = before.state if before is not None else {}
    shape = WireWrites({}, {}, [], {})
    for key, write in writes.items():
        match write:
            case Assigned(value=value):
                if (splice := _splice(earlier.get(key), value)) is not None:
                    shape.splice[key] = splice
                else:
                    shape.set[key] = raw_of(value)
            case Deleted():
                shape.delete.append(key)
            case Appended(items=items):
                shape.append[key] = [raw_of(item) for item in items]
            case Edited():
                # An edit exists only between reading a delta and applying it.
                raise CodecError("an edit must be applied to its value before it is stored", path=f"$.state.{key}")
    return shape


def _executors(
    saved: Mapping[str, Payload | Edited], before: Checkpoint | None
) -> tuple[dict[str, Raw], dict[str, WireSplice]]:
    """Return the states of executors: some whole, and for the others what changed."""
    earlier = before.executors if before is not None else {}
    texts: dict[str, Raw] = {}
    splices: dict[str, WireSplice] = {}
    for id, payload in saved.items():
        if isinstance(payload, Edited):
            continue
        if (splice := _splice(earlier.get(id), payload)) is not None:
            splices[id] = splice
        else:
            texts[id] = raw_of(payload)
    return texts, splices


def _splice(before: Payload | None, after: Payload) -> WireSplice | None:
    """Return what changed in a value, if it is large and changed only a little."""
    if before is None or (isinstance(after, Encoded) and len(after.json) < WORTH_IT):
        return None
    splice = splice_of(before, after)
    return None if splice is None else WireSplice(splice.start, splice.tail, splice.text.decode())


def _read_splice(shape: WireSplice, codec: Codec, what: str) -> Edited:
    if shape.start < 0 or shape.tail < 0:
        raise CheckpointCorrupt(f"{what} is damaged: it changes text that does not exist")
    return Edited(StoredEdit(Splice(shape.start, shape.tail, shape.text.encode()), codec, what))


def _read_executors(shape: WireCommit, codec: Codec, entry: Entry) -> dict[str, Payload | Edited]:
    saved: dict[str, Payload | Edited] = {id: payload_of(raw, codec) for id, raw in shape.executors.items()}
    for id, splice in shape.executor_splices.items():
        saved[id] = _read_splice(splice, codec, f"executor {id!r} in {entry}")
    return saved


def _read_writes(shape: WireWrites, codec: Codec, entry: Entry) -> dict[str, Write | Edited]:
    writes: dict[str, Write | Edited] = {**read_writes(shape, codec)}
    for key, splice in shape.splice.items():
        writes[key] = _read_splice(splice, codec, f"state[{key!r}] in {entry}")
    return writes


def read_writes(shape: WireWrites, codec: Codec) -> dict[str, Write]:
    writes: dict[str, Write] = {key: Assigned(payload_of(raw, codec)) for key, raw in shape.set.items()}
    for key, raws in shape.append.items():
        writes[key] = Appended(tuple([payload_of(raw, codec) for raw in raws]))
    return writes | {key: Deleted() for key in shape.delete} if shape.delete else writes
