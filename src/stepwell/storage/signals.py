"""Signals as bytes, and the keys under which they are stored."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stepwell.codec.codec import DEFAULT_CODEC, Codec, Encoded
from stepwell.errors import NewerFormat
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedCancel, ReceivedInput, ReceivedJson, ReceivedResponse, Signal
from stepwell.storage.checked_reads import damage_error, decode_stored, read_moment
from stepwell.storage.json_text import json_of
from stepwell.storage.port import Store
from stepwell.storage.stored_values import SignalRow

FORMAT = 1
READABLE = (1,)


class _SignalShape(msgspec.Struct, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    format: int


class _ResponseShape(_SignalShape, tag="answer"):
    request_id: str
    value: msgspec.Raw
    by: str | None = None
    comment: str | None = None
    at: str = ""


class _JsonShape(_SignalShape, tag="plain"):
    request_id: str
    value: msgspec.Raw
    by: str | None = None
    comment: str | None = None
    at: str = ""


class _InputShape(_SignalShape, tag="input"):
    value: msgspec.Raw


class _CancelShape(_SignalShape, tag="cancel"):
    number: int
    by: str | None = None
    reason: str | None = None
    at: str = ""


_Shape = _ResponseShape | _JsonShape | _InputShape | _CancelShape

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Shape).decode


# A key can be used once in a run, permanently, so it says what counts as a duplicate.


def answer_key(epoch: int, request: Request) -> str:
    """Return the key that every response to this request shares: only the first is stored.

    The time is part of it because a request id may be used again for a later request, and the epoch
    because a restored run asks anew.
    """
    return f"answer/{epoch}/{request.at}/{request.id}"


def plain_key(epoch: int, request_id: str, asked_at: str, unique: str) -> str:
    """Return a key of its own for each plain response: if one is rejected, another may follow."""
    return f"plain/{epoch}/{unique}/{asked_at}/{request_id}"


def input_key(epoch: int, unique: str) -> str:
    return f"input/{epoch}/{unique}"


def cancel_key(epoch: int, number: int) -> str:
    """Return the key that all requests to cancel a run at this commit share: one is enough."""
    return f"cancel/{epoch}/{number}"


def is_of_epoch(key: str, epoch: int) -> bool:
    """Return False for a signal that was sent before the run was restored."""
    return key.split("/", 2)[1:2] == [str(epoch)]


async def find_signalled(store: Store, run_ids: Iterable[str]) -> set[str]:
    """Return those of the runs that have pending signals."""
    from asyncio import to_thread  # lazy: 15 ms, and most programs that read signals do not need it

    fences = dict.fromkeys(run_ids, 0)  # nothing is renewed, so the fences do not matter
    return set((await to_thread(store.renew, fences, seconds=None)).signalled) if fences else set()


def write_signal(signal: Signal) -> bytes:
    match signal:
        case ReceivedResponse(request_id=id, value=value, by=by, comment=comment, at=at):
            return _encode(_ResponseShape(FORMAT, id, msgspec.Raw(json_of(value)), by=by, comment=comment, at=at))
        case ReceivedJson(request_id=id, value=text, by=by, comment=comment, at=at):
            return _encode(_JsonShape(FORMAT, id, msgspec.Raw(text), by=by, comment=comment, at=at))
        case ReceivedInput(value=value):
            return _encode(_InputShape(FORMAT, msgspec.Raw(json_of(value))))
        case ReceivedCancel(number=number, by=by, reason=reason, at=at):
            return _encode(_CancelShape(FORMAT, number, by=by, reason=reason, at=at))


def read_signal(run_id: str, row: SignalRow, codec: Codec = DEFAULT_CODEC) -> Signal:
    """Decode a stored signal. Raises CheckpointCorrupt, naming the signal, if it is damaged."""
    what = f"signal {row.key!r} of run {run_id!r}"
    shape: _Shape = decode_stored(_decode, row.body, what)
    if shape.format < min(READABLE):
        raise damage_error(what, f"there is no format {shape.format}")
    if shape.format not in READABLE:
        raise NewerFormat(f"{what} has format {shape.format}, which this version cannot read; use a newer Stepwell")
    if not isinstance(shape, _InputShape) and shape.at:
        read_moment(shape.at, what)
    match shape:
        case _ResponseShape(request_id=id, value=raw, by=by, comment=comment, at=at):
            return ReceivedResponse(id, Encoded(bytes(raw), codec), by=by, comment=comment, at=at)
        case _JsonShape(request_id=id, value=raw, by=by, comment=comment, at=at):
            return ReceivedJson(id, bytes(raw), by=by, comment=comment, at=at)
        case _InputShape(value=raw):
            return ReceivedInput(Encoded(bytes(raw), codec))
        case _CancelShape(number=number, by=by, reason=reason, at=at):
            return ReceivedCancel(number, by=by, reason=reason, at=at)


def read_signals(run_id: str, rows: Iterable[SignalRow], codec: Codec) -> dict[str, Signal]:
    """Return stored signals by their keys, oldest first."""
    return {row.key: read_signal(run_id, row, codec) for row in rows}
