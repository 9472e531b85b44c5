"""Format 1: commits, outcomes and log entries as JSON. `docs/format.md` explains it.

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
from stepwell.model.log_keys import LogEntry
from stepwell.model.message import Held, Outcome, Output, Reply, RoutedMessage, Sent
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.state_writes import Appended, Assigned, Deleted, Edited, Write
from stepwell.storage.checked_reads import damage_error, decode_stored, read_moment
from stepwell.storage.deltas import WORTH_IT, Splice, StoredEdit, splice_of
from stepwell.storage.json_text import json_of
from stepwell.storage.stored_values import Record
from stepwell.storage.wire.shapes import (
    FORMAT,
    NOTHING,
    READABLE,
    Raw,
    WireChild,
    WireCommit,
    WireDone,
    WireFailure,
    WireMessage,
    WireNote,
    WireOutcome,
    WireOutput,
    WireReply,
    WireRequest,
    WireRun,
    WireSent,
    WireSplice,
    WireWrites,
)
from stepwell.storage.wire.validation import check_commit, check_requests

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_decode_commit = msgspec.json.Decoder(WireCommit).decode
_decode_requests = msgspec.json.Decoder(list[WireRequest]).decode
_decode_outcome = msgspec.json.Decoder(WireOutcome).decode
_decode_note = msgspec.json.Decoder(WireNote).decode


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
        run=None if header is None else _convert(header, WireRun),
        previous_id=None if header is None else previous_id,
        messages=None if commit.messages is None else [_message(m) for m in commit.messages],
        held=None if held is None else {k: {s: [_raw(p) for p in ps] for s, ps in v.items()} for k, v in held.items()},
        state=_writes(commit.state, before) if commit.state else None,
        executors=executors,
        executor_splices=splices,
        asked=[_request(r) for r in commit.asked],
        closed=commit.closed,
        children=_children(commit.children, WireChild) if commit.children else {},
        wake=commit.wake,
        restored=commit.restored,
        migrated=commit.migrated,
        done=[
            WireDone(d.delivery, d.executor, d.sent, _outputs(d.outputs) if d.outputs else [], d.asked, d.attempts)
            for d in commit.done
        ],
        failures=[_convert(f, WireFailure) for f in commit.failures],
        warnings=commit.warnings,
        metadata=dict(commit.metadata),
    )
    return _encode(shape)


def read_commit(record: Record, codec: Codec) -> tuple[Commit, WireCommit]:
    """Decode the commit in a record.

    Raises CheckpointCorrupt, naming the checkpoint, if it is damaged.
    """
    entry = record.entry
    what = f"checkpoint {entry.checkpoint_id} of run {entry.run_id!r}"
    shape = decode_stored(_decode_commit, record.body, what)
    _check_format(shape.format, what)
    check_commit(shape, what)
    # Entry and body may be stored apart: a body that was copied from another run is refused.
    if shape.run is not None and shape.run.run_id != entry.run_id:
        raise CheckpointCorrupt(
            f"checkpoint {entry.checkpoint_id} is stored under run {entry.run_id!r} but was written by run "
            f"{shape.run.run_id!r}"
        )
    held = shape.held
    return Commit(
        number=entry.number,
        kind=shape.kind,
        stamp=Stamp(entry.checkpoint_id, entry.at),
        status=shape.status,
        iteration=shape.iteration,
        since_input=shape.since_input,
        place=shape.place,
        messages=None if shape.messages is None else tuple(_read_message(m, codec) for m in shape.messages),
        held=None if held is None else _read_held(held, codec),
        state=_read_writes(shape.state, codec, what),
        executors=_read_executors(shape, codec, what),
        asked=tuple(_read_request(r, codec) for r in shape.asked),
        closed=shape.closed,
        children=_children(shape.children, Child),
        wake=shape.wake,
        restored=shape.restored,
        migrated=shape.migrated,
        done=tuple(
            Done(d.delivery, d.executor, d.sent, _read_outputs(d.outputs, codec), d.asked, d.attempts)
            for d in shape.done
        ),
        failures=tuple(_convert(f, WorkflowErrorDetails) for f in shape.failures),
        warnings=shape.warnings,
        metadata=shape.metadata,
    ), shape


def header_of(shape: WireCommit) -> RunHeader:
    """Return the run header in a snapshot."""
    return _convert(shape.run, RunHeader)


# -------------------------------------------------------------------- the superstep log


def write_outcome(outcome: Outcome) -> bytes:
    return _encode(
        WireOutcome(
            format=FORMAT,
            delivery=outcome.delivery,
            executor=outcome.executor,
            sent=[WireSent(_raw(s.payload), s.target) for s in outcome.sent],
            outputs=_outputs(outcome.outputs),
            state=_writes(outcome.writes, None) if outcome.writes else None,
            saved=NOTHING if outcome.saved is None else _raw(outcome.saved),
            requests=[_request(r) for r in outcome.requests],
            children=_children(outcome.children, WireChild),
            attempts=outcome.attempts,
            version=outcome.version,
        )
    )


def read_outcome(run_id: str, key: str, body: bytes, codec: Codec) -> Outcome:
    """Decode an outcome of the superstep log.

    Raises CheckpointCorrupt, naming it, if it is damaged.
    """
    what = f"outcome {key!r} in the superstep log of run {run_id!r}"
    shape = decode_stored(_decode_outcome, body, what)
    _check_format(shape.format, what)
    if shape.delivery != key:
        raise damage_error(what, f"it is the outcome of another delivery, {shape.delivery!r}")
    check_requests(shape.requests, what)
    return Outcome(
        delivery=shape.delivery,
        executor=shape.executor,
        sent=tuple(Sent(_payload(s.payload, codec), s.target) for s in shape.sent),
        outputs=_read_outputs(shape.outputs, codec),
        writes=_read_plain_writes(shape.state, codec),
        saved=_payload(shape.saved, codec) if bytes(shape.saved) else None,
        requests=tuple(_read_request(r, codec) for r in shape.requests),
        children=_children(shape.children, Child),
        attempts=shape.attempts,
        version=shape.version,
    )


def write_log_entry(entry: LogEntry) -> bytes:
    failure = None if entry.failure is None else _convert(entry.failure, WireFailure)
    value = NOTHING if entry.value is None else _raw(entry.value)
    return _encode(WireNote(FORMAT, entry.due, failure=failure, final=entry.final, value=value, call=entry.call))


def read_log_entry(run_id: str, key: str, body: bytes, codec: Codec) -> LogEntry:
    """Decode an entry of the superstep log.

    Raises CheckpointCorrupt, naming it, if it is damaged.
    """
    what = f"entry {key!r} in the superstep log of run {run_id!r}"
    shape = decode_stored(_decode_note, body, what)
    _check_format(shape.format, what)
    if shape.due:  # the result of a step has no time
        read_moment(shape.due, what)
    failure = None if shape.failure is None else _convert(shape.failure, WorkflowErrorDetails)
    value = _payload(shape.value, codec) if bytes(shape.value) else None
    return LogEntry(shape.due, failure, shape.final, value, shape.call)


# -------------------------------------------------------------------- parts: each written and read


def _check_format(version: int, what: str) -> None:
    if version in READABLE:
        return
    if version < min(READABLE):
        raise damage_error(what, f"there is no format {version}")
    raise NewerFormat(f"{what} has format {version}, and this Stepwell reads {READABLE}; use a newer Stepwell")


def _raw(payload: Payload) -> Raw:
    return Raw(payload.json if isinstance(payload, Encoded) else json_of(payload))


def _payload(raw: Raw, codec: Codec) -> Payload:
    return Encoded(bytes(raw), codec)


def _convert(value: object, kind: type[T]) -> T:
    """Return a value of ours as the shape that has the same fields, or the other way round."""
    return msgspec.convert(value, kind, from_attributes=True)


def _children(children: Mapping[str, object], kind: type[T]) -> dict[str, T | None]:
    return {key: None if child is None else _convert(child, kind) for key, child in children.items()}


def _message(m: RoutedMessage) -> WireMessage:
    reply = None if m.reply is None else WireReply(m.reply.request_id, _raw(m.reply.question), m.reply.child)
    return WireMessage(
        m.id, m.source, payload=_raw(m.payload), target=m.target, takers=m.takers, joins=m.joins, reply=reply
    )


def _read_message(m: WireMessage, codec: Codec) -> RoutedMessage:
    reply = None if m.reply is None else Reply(m.reply.request_id, _payload(m.reply.question, codec), m.reply.child)
    payload = _payload(m.payload, codec)
    return RoutedMessage(m.id, m.source, payload=payload, target=m.target, takers=m.takers, joins=m.joins, reply=reply)


def _request(r: Request) -> WireRequest:
    return WireRequest(
        r.id,
        r.executor,
        payload=_raw(r.payload),
        request_type=r.request_type,
        response_type=r.response_type,
        schema=Raw(r.schema.encode()),
        at=r.at,
        deadline=r.deadline,
        default=NOTHING if r.default is None else _raw(r.default),
        child=r.child,
    )


def read_requests(plain: list[Any], codec: Codec) -> list[Request]:
    """Read requests from plain JSON data."""
    return [_read_request(r, codec) for r in _decode_requests(_encode(plain))]


def _read_request(r: WireRequest, codec: Codec) -> Request:
    return Request(
        r.id,
        r.executor,
        payload=_payload(r.payload, codec),
        request_type=r.request_type,
        response_type=r.response_type,
        schema=bytes(r.schema).decode(),
        at=r.at,
        deadline=r.deadline,
        default=_payload(r.default, codec) if bytes(r.default) else None,
        child=r.child,
    )


def _read_held(held: dict[str, dict[str, list[Raw]]], codec: Codec) -> Held:
    return {key: {s: tuple(_payload(p, codec) for p in ps) for s, ps in v.items()} for key, v in held.items()}


def _outputs(outputs: tuple[Output, ...]) -> list[WireOutput]:
    return [WireOutput(output.kind, _raw(output.payload)) for output in outputs]


def _read_outputs(outputs: list[WireOutput], codec: Codec) -> tuple[Output, ...]:
    return tuple(Output(output.kind, _payload(output.payload, codec)) for output in outputs)


# -------------------------------------------------------------------- state, and deltas of it


def _writes(writes: Mapping[str, Write | Edited], before: Checkpoint | None) -> WireWrites:
    earlier = before.state if before is not None else {}
    shape = WireWrites({}, {}, [], {})
    for key, write in writes.items():
        match write:
            case Assigned(value=value):
                if (splice := _splice(earlier.get(key), value)) is not None:
                    shape.splice[key] = splice
                else:
                    shape.set[key] = _raw(value)
            case Deleted():
                shape.delete.append(key)
            case Appended(items=items):
                shape.append[key] = [_raw(item) for item in items]
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
            texts[id] = _raw(payload)
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


def _read_executors(shape: WireCommit, codec: Codec, what: str) -> dict[str, Payload | Edited]:
    saved: dict[str, Payload | Edited] = {id: _payload(raw, codec) for id, raw in shape.executors.items()}
    edits = {
        id: _read_splice(splice, codec, f"executor {id!r} in {what}") for id, splice in shape.executor_splices.items()
    }
    return {**saved, **edits}


def _read_writes(shape: WireWrites | None, codec: Codec, what: str) -> dict[str, Write | Edited]:
    if shape is None:
        return {}
    edits = {key: _read_splice(splice, codec, f"state[{key!r}] in {what}") for key, splice in shape.splice.items()}
    return {**_read_plain_writes(shape, codec), **edits}


def _read_plain_writes(shape: WireWrites | None, codec: Codec) -> dict[str, Write]:
    if shape is None:
        return {}
    writes: dict[str, Write] = {key: Assigned(_payload(raw, codec)) for key, raw in shape.set.items()}
    writes |= {key: Appended(tuple(_payload(raw, codec) for raw in raws)) for key, raws in shape.append.items()}
    return writes | {key: Deleted() for key in shape.delete}
