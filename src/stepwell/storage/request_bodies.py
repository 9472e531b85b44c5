"""The body of a listed request: what is asked, and what a response to it is sent with."""

from __future__ import annotations

from typing import Any

import msgspec

from stepwell.errors import CannotUnseal
from stepwell.model.request import Request
from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.json_text import json_of
from stepwell.storage.signals import answer_key
from stepwell.storage.stored_values import RequestEntry

_SHOWN = 200  # characters of a question in a list
# Where a class of a user keeps the words that people are to read.
_TEXT_FIELDS = ("question", "prompt", "text", "message", "title")


class RequestBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is asked, in its stored JSON form."""

    payload: msgspec.Raw = msgspec.Raw(b"null")
    key: str = ""  # of the first response to it
    sealed: Any = None  # an encrypted body has this instead


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RequestBody).decode


def write_request_body(epoch: int, request: Request) -> str:
    return _encode(RequestBody(msgspec.Raw(json_of(request.payload)), answer_key(epoch, request))).decode()


def read_request_body(entry: RequestEntry) -> RequestBody:
    """Decode the body of a request. Raises CheckpointCorrupt, naming the request, if it is damaged or sealed."""
    what = f"request {entry.request_id!r} of run {entry.run_id!r}"
    body = decode_stored(_decode, entry.body.encode(), what)
    if body.sealed is not None:
        raise CannotUnseal(f"{what} is sealed: open the storage with its key, seal=Seal(...)")
    return body


def question_text(data: Any) -> str:
    """Return the text of a question, or a short form of it, on one line; at most 200 characters."""
    value = data.get("v", data) if isinstance(data, dict) and isinstance(data.get("$"), str) else data
    if isinstance(value, dict):
        value = next((value[name] for name in _TEXT_FIELDS if isinstance(value.get(name), str)), value)
    text = " ".join((value if isinstance(value, str) else _encode(value).decode()).split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
