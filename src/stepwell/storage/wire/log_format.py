"""Format 1: the superstep log as JSON: outcomes, and all other entries. `docs/format.md` explains it."""

from __future__ import annotations

import msgspec

from stepwell.codec.codec import Codec
from stepwell.model.child import Child
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.log_keys import LogEntry
from stepwell.model.message import Outcome, Sent
from stepwell.storage.checked_reads import damage_error, decode_stored, read_moment
from stepwell.storage.wire.format import (
    check_format,
    convert,
    convert_children,
    payload_of,
    raw_of,
    read_answer,
    read_outputs,
    read_request,
    read_writes,
    write_answer,
    write_outputs,
    write_request,
    write_state,
)
from stepwell.storage.wire.shapes import (
    FORMAT,
    NOTHING,
    WireChild,
    WireFailure,
    WireLogEntry,
    WireOutcome,
    WireSent,
)
from stepwell.storage.wire.validation import check_requests

_encode = msgspec.json.Encoder().encode
_decode_outcome = msgspec.json.Decoder(WireOutcome).decode
_decode_entry = msgspec.json.Decoder(WireLogEntry).decode


def write_outcome(outcome: Outcome) -> bytes:
    return _encode(
        WireOutcome(
            format=FORMAT,
            delivery=outcome.delivery,
            executor=outcome.executor,
            sent=[WireSent(raw_of(s.payload), s.target) for s in outcome.sent],
            outputs=write_outputs(outcome.outputs),
            state=write_state(outcome.writes, None) if outcome.writes else None,
            saved=NOTHING if outcome.saved is None else raw_of(outcome.saved),
            requests=[write_request(r) for r in outcome.requests],
            withdrawn=outcome.withdrawn,
            children=convert_children(outcome.children, WireChild),
            tags=dict(outcome.tags),
            timers=dict(outcome.timers),
            attempts=outcome.attempts,
            version=outcome.version,
            time=outcome.time,
            steps=outcome.steps,
        )
    )


def read_outcome(run_id: str, key: str, body: bytes, codec: Codec) -> Outcome:
    """Decode an outcome of the superstep log.

    Raises CheckpointCorrupt, naming it, if it is damaged.
    """
    what = f"outcome {key!r} in the superstep log of run {run_id!r}"
    shape = decode_stored(_decode_outcome, body, what)
    check_format(shape.format, what)
    if shape.delivery != key:
        raise damage_error(what, f"it is the outcome of another delivery, {shape.delivery!r}")
    check_requests(shape.requests, what)
    for due in shape.timers.values():
        if due is not None:
            read_moment(due, f"a timer in {what}")
    return Outcome(
        delivery=shape.delivery,
        executor=shape.executor,
        sent=tuple(Sent(payload_of(s.payload, codec), s.target) for s in shape.sent),
        outputs=read_outputs(shape.outputs, codec),
        writes={} if shape.state is None else read_writes(shape.state, codec),
        saved=payload_of(shape.saved, codec) if bytes(shape.saved) else None,
        requests=tuple(read_request(r, codec) for r in shape.requests),
        withdrawn=shape.withdrawn,
        tags=shape.tags,
        timers=shape.timers,
        children=convert_children(shape.children, Child),
        attempts=shape.attempts,
        version=shape.version,
        time=shape.time,
        steps=shape.steps,
    )


def write_log_entry(entry: LogEntry) -> bytes:
    failure = None if entry.failure is None else convert(entry.failure, WireFailure)
    value = NOTHING if entry.value is None else raw_of(entry.value)
    return _encode(
        WireLogEntry(
            FORMAT,
            entry.due,
            failure=failure,
            final=entry.final,
            value=value,
            call=entry.call,
            request=None if entry.request is None else write_request(entry.request),
            answer=None if entry.answer is None else write_answer(entry.answer),
            time=entry.time,
            attempts=entry.attempts,
        )
    )


def read_log_entry(run_id: str, key: str, body: bytes, codec: Codec) -> LogEntry:
    """Decode an entry of the superstep log.

    Raises CheckpointCorrupt, naming it, if it is damaged.
    """
    what = f"entry {key!r} in the superstep log of run {run_id!r}"
    shape = decode_stored(_decode_entry, body, what)
    check_format(shape.format, what)
    if shape.due:  # the result of a step has no time
        read_moment(shape.due, what)
    if shape.request is not None:
        check_requests([shape.request], what)
    if shape.answer is not None:
        read_moment(shape.answer.at, what)
    failure = None if shape.failure is None else convert(shape.failure, WorkflowErrorDetails)
    value = payload_of(shape.value, codec) if bytes(shape.value) else None
    return LogEntry(
        shape.due,
        failure,
        final=shape.final,
        value=value,
        call=shape.call,
        request=None if shape.request is None else read_request(shape.request, codec),
        answer=None if shape.answer is None else read_answer(shape.answer, codec),
        time=shape.time,
        attempts=shape.attempts,
    )
