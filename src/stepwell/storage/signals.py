"""What is posted to a run: an answer, one in plain JSON, further input, or the wish that it stops."""

from __future__ import annotations

import msgspec

from stepwell.codec.codec import Codec, Encoded
from stepwell.errors import NewerFormat
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.storage.damage import damage_error, decode_stored
from stepwell.storage.json_text import json_of

FORMAT = 1
READABLE = (1,)


class ResponseSignal(msgspec.Struct, tag_field="kind", tag="answer", forbid_unknown_fields=True):
    format: int
    request_id: str
    value: msgspec.Raw


class PlainResponseSignal(msgspec.Struct, tag_field="kind", tag="plain", forbid_unknown_fields=True):
    """An answer in plain JSON, by somebody who has not the type that is asked for: whoever drives the run has it."""

    format: int
    request_id: str
    value: msgspec.Raw


class InputSignal(msgspec.Struct, tag_field="kind", tag="input", forbid_unknown_fields=True):
    format: int
    value: msgspec.Raw


class CancelSignal(msgspec.Struct, tag_field="kind", tag="cancel", forbid_unknown_fields=True):
    """The run is to stop. `number` is where it was when somebody wanted that."""

    format: int
    number: int


Signal = ResponseSignal | PlainResponseSignal | InputSignal | CancelSignal

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Signal).decode


def answer_key(epoch: int, request: Request) -> str:
    """One answer to one question, for ever. An id may be used again for another question, asked at another time;
    a run that was moved back asks in a new epoch."""
    return f"answer/{epoch}/{request.at}/{request.id}"


def plain_key(epoch: int, request: Request, unique: str) -> str:
    """Any number of plain answers to one question: if the first is not accepted, another may be."""
    return f"plain/{epoch}/{unique}/{request.at}/{request.id}"


def input_key(epoch: int, unique: str) -> str:
    return f"input/{epoch}/{unique}"


def cancel_key(epoch: int, number: int) -> str:
    """One wish to stop for each place a run was at, however many have it."""
    return f"cancel/{epoch}/{number}"


def is_of_epoch(key: str, epoch: int) -> bool:
    """False for mail to a run as it was before it was moved back."""
    return key.split("/", 2)[1:2] == [str(epoch)]


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
    """Raises CheckpointCorrupt, naming the letter, if it is not one."""
    signal: Signal = decode_stored(_decode, body, f"the mail {key!r} of run {run_id!r}")
    if signal.format < min(READABLE):
        raise damage_error(f"the mail {key!r} of run {run_id!r}", f"there is no format {signal.format}")
    if signal.format not in READABLE:
        raise NewerFormat(f"the mail {key!r} of run {run_id!r} is of format {signal.format}; use a newer Stepwell")
    return signal


def content(raw: msgspec.Raw, codec: Codec) -> Payload:
    return Encoded(bytes(raw), codec)
