"""Signals: what is sent to a run from outside, as bytes, and the keys under which it is stored.

A signal is a response, a response in plain JSON, more input, or a request to cancel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from stepwell.codec.codec import Codec, Encoded
from stepwell.errors import NewerFormat
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.storage.checked_reads import damage_error, decode_stored
from stepwell.storage.json_text import json_of
from stepwell.storage.port import Store

FORMAT = 1
READABLE = (1,)


class ResponseSignal(msgspec.Struct, tag_field="kind", tag="answer", forbid_unknown_fields=True):
    format: int
    request_id: str
    value: msgspec.Raw


class PlainResponseSignal(msgspec.Struct, tag_field="kind", tag="plain", forbid_unknown_fields=True):
    """A response in plain JSON; the driver of the run, which has the type, converts it."""

    format: int
    request_id: str
    value: msgspec.Raw


class InputSignal(msgspec.Struct, tag_field="kind", tag="input", forbid_unknown_fields=True):
    format: int
    value: msgspec.Raw


class CancelSignal(msgspec.Struct, tag_field="kind", tag="cancel", forbid_unknown_fields=True):
    """A request to cancel the run. `number` is the commit it was at when it was sent."""

    format: int
    number: int


Signal = ResponseSignal | PlainResponseSignal | InputSignal | CancelSignal

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Signal).decode


# A key can be used once in a run, permanently, so it says what counts as a duplicate.


def answer_key(epoch: int, request: Request) -> str:
    """Return the key that every response to this request shares: only the first is stored.

    The time is part of it because a request id may be used again for a later request, and the epoch
    because a restored run asks anew.
    """
    return f"answer/{epoch}/{request.at}/{request.id}"


def plain_key(epoch: int, request: Request, unique: str) -> str:
    """Return a key of its own for each plain response: if one is rejected, another may follow."""
    return f"plain/{epoch}/{unique}/{request.at}/{request.id}"


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
    return set((await asyncio.to_thread(store.renew, fences, seconds=None)).signalled) if fences else set()


def write_response(request_id: str, value: Payload) -> bytes:
    return _encode(ResponseSignal(FORMAT, request_id, msgspec.Raw(json_of(value))))


def write_plain_response(request_id: str, value: bytes) -> bytes:
    """`value` is JSON text."""
    return _encode(PlainResponseSignal(FORMAT, request_id, msgspec.Raw(value)))


def write_input(value: Payload) -> bytes:
    return _encode(InputSignal(FORMAT, msgspec.Raw(json_of(value))))


def write_cancel(number: int) -> bytes:
    return _encode(CancelSignal(FORMAT, number))


def read_signal(run_id: str, key: str, body: bytes) -> Signal:
    """Decode a stored signal. Raises CheckpointCorrupt, naming the signal, if it is damaged."""
    what = f"signal {key!r} of run {run_id!r}"
    signal: Signal = decode_stored(_decode, body, what)
    if signal.format < min(READABLE):
        raise damage_error(what, f"there is no format {signal.format}")
    if signal.format not in READABLE:
        raise NewerFormat(f"{what} has format {signal.format}, which this version cannot read; use a newer Stepwell")
    return signal


def content(raw: msgspec.Raw, codec: Codec) -> Payload:
    """Return the value of a signal as a payload."""
    return Encoded(bytes(raw), codec)
