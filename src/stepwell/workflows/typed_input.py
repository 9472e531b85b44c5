"""Reads the input of a run as people type it: text, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

import msgspec

from stepwell.codec.codec import Codec
from stepwell.errors import CodecError
from stepwell.graph.type_matching import describe, flatten
from stepwell.storage.response_types import NotOfType, answer_as


class NoInput(NotOfType):
    """The workflow needs an input, and there is none."""


def read_typed_input(text: str | None, types: Sequence[object], codec: Codec) -> Any:
    """Convert the input to one of the types that the start executor accepts.

    If only `str` is accepted, this is the text. Otherwise the text is read as JSON and converted to
    the first type it matches; if it matches none and `str` is accepted, too, it is the text. JSON
    in the stored form (`{"$": ..., "v": ...}`) names its class. Raises NotOfType that says
    where the input does not match, and NoInput.
    """
    # A union stands for its members, in the order in which they are declared.
    members = [member for input_type in types for member in flatten(input_type)]
    wanted = " | ".join(dict.fromkeys(map(describe, members)))
    if text is None:
        if any(member in (NoneType, Any, object) for member in members):
            return None
        raise NoInput(f"the workflow needs an input of type {wanted}")
    others = [member for member in members if member is not str]
    if not others:
        return text
    value, flaw = _decode(text, codec)
    try:
        return answer_as(value, others)
    except NotOfType as error:
        if str in members:
            return text
        raise NotOfType(f"the input does not match {wanted}, the input type of the workflow: {flaw or error}") from None


def read_any_input(text: str | None) -> Any:
    """Convert the input of a workflow that accepts anything: parse JSON objects and lists."""
    if text is None or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _decode(text: str, codec: Codec) -> tuple[Any, str]:
    """Return the value of the input, and what is wrong with it as JSON."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return text, f"it is not JSON ({error})"
    except RecursionError:
        return text, "it is nested too deeply"
    if not isinstance(value, dict) or "$" not in value:
        return value, ""
    try:
        return codec.decode(text.encode()), ""
    except CodecError as error:
        return value, str(error)
