"""What is posted to a run: an answer. The kind is written down, so that others can be told from it."""

from __future__ import annotations

import msgspec

from ..core.errors import CheckpointCorrupt
from ..core.parcel import Parcel
from ..core.request import Request
from .codec import Codec, encoded
from .wire import json_of

FORMAT = 1


class AnswerLetter(msgspec.Struct, tag_field="kind", tag="answer", forbid_unknown_fields=True):
    format: int
    request_id: str
    value: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnswerLetter).decode


def answer_key(epoch: int, request: Request) -> str:
    """One answer to one question, for ever. An id may be used again for another question, asked at another time;
    a run that was moved back asks in a new epoch."""
    return f"answer/{epoch}/{request.at}/{request.id}"


def answer_letter(request_id: str, value: Parcel) -> bytes:
    return _encode(AnswerLetter(FORMAT, request_id, msgspec.Raw(json_of(value))))


def read_letter(run_id: str, key: str, body: bytes) -> AnswerLetter:
    """Raises CheckpointCorrupt, naming the letter, if it is not one."""
    try:
        letter = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointCorrupt(f"the mail {key!r} of run {run_id!r} is damaged: {error}") from error
    if letter.format != FORMAT:
        raise CheckpointCorrupt(
            f"the mail {key!r} of run {run_id!r} is of format {letter.format}; use a newer Holdfast"
        )
    return letter


def content(raw: msgspec.Raw, codec: Codec) -> Parcel:
    return encoded(bytes(raw), codec)
