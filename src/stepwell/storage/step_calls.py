"""Descriptions of calls, stored with the results of steps to notice a different call.

`charge(Order#3f0c9a1be27d, currency=str#91ab02c4e7f1)`: the names of the function and of the types,
and a digest of each argument. Never the argument itself, which may be a secret. A value that cannot
be stored, such as a client, is described by its type alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from stepwell.codec.codec import Codec
from stepwell.errors import CodecError

_LONGEST = 1_000  # characters; a call with a hundred arguments is described by one digest
_write = msgspec.json.Encoder(order="deterministic", enc_hook=lambda value: _fields(value)).encode
# What msgspec, and the classes it looks into, raise for a value it cannot encode.
_NOT_ENCODABLE = (
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
    NotImplementedError,
    msgspec.MsgspecError,
)


def describe_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], codec: Codec) -> str:
    """Describe a call: the text is equal for the same function and equal arguments."""
    # A partial is described as the call it makes, so wrapping a call changes nothing.
    while isinstance(function, partial):
        args, kwargs, function = (*function.args, *args), {**function.keywords, **kwargs}, function.func
    shown = [describe_value(value, codec) for value in args]
    # Sorted: the order of keyword arguments means nothing.
    shown += [f"{name}={describe_value(kwargs[name], codec)}" for name in sorted(kwargs)]
    text = ", ".join(shown)
    if len(text) > _LONGEST:
        text = f"{len(shown)} arguments#{blake2b(text.encode(), digest_size=6).hexdigest()}"
    return f"{name_of(function)}({text})"


def name_of(function: Callable[..., Any]) -> str:
    """Return the qualified name of a function; for a callable object, that of its class."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def describe_value(value: Any, codec: Codec) -> str:
    """Return the type of a value, with a digest of it if it is data."""
    kind = type(value).__qualname__
    written = _write_stable(value, codec)
    return kind if written is None else f"{kind}#{blake2b(written, digest_size=6).hexdigest()}"


def _write_stable(value: Any, codec: Codec) -> bytes | None:
    """Return bytes that are equal for equal values; None if the value is not data."""
    # msgspec alone is many times faster than the codec, and enough for most arguments.
    try:
        return _write(value)
    except _NOT_ENCODABLE:
        pass
    try:
        return codec.digest(value).encode()
    except CodecError:
        return None


def _fields(value: Any) -> Any:
    # Recognised without importing pydantic, which is optional. Extra fields are part of the value.
    if (fields := getattr(type(value), "__pydantic_fields__", None)) is not None:
        named = {name: value.__dict__[name] for name in fields if name in value.__dict__}
        return {**named, **(getattr(value, "__pydantic_extra__", None) or {})}
    raise NotImplementedError(f"{type(value).__qualname__} is left to the codec")
