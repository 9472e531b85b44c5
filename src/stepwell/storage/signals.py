"""Signals as bytes, and the keys under which they are stored."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial

import msgspec

from stepwell.codec.codec import DEFAULT_CODEC, Codec, Encoded
from stepwell.errors import NewerFormat
from stepwell.kernel.requests import inner_id
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
    """Return the key that the first response to this request has, so that only one is stored.

    The time is part of it because a request id may be used again for a later request, and the epoch
    because a restored run asks anew. A request of a sub-workflow has the id that the sub-workflow
    knows: its caller may have to change it.
    """
    id = request.id if request.child is None else inner_id(request.id, request.child)
    return f"answer/{epoch}/0/{request.at}/{id}"


def next_answer_key(key: str) -> str:
    """Return the key of the response that may follow if the run has rejected the one with this key."""
    kind, epoch, count, rest = key.split("/", 3)
    return f"{kind}/{epoch}/{int(count) + 1}/{rest}"


def first_answer_key(key: str) -> str | None:
    """Return the key that the first response to the same request has; None for another signal."""
    kind, epoch, _, *rest = [*key.split("/", 3), ""]
    return f"{kind}/{epoch}/0/{rest[0]}" if kind == "answer" else None


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
    fences = dict.fromkeys(run_ids, 0)  # nothing is renewed, so the fences do not matter
    if not fences:
        return set()
    renew = partial(store.renew, fences, seconds=None)
    asyncio = sys.modules.get("asyncio")  # 15 ms; a command that needs no event loop does not load it
    if asyncio is None or asyncio._get_running_loop() is None:
        return set(renew().signalled)
    return set((await asyncio.to_thread(renew)).signalled)


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
