"""Answers: what type is asked for, its JSON schema, and plain JSON made into it."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from stepwell.codec.codec import reachable_types
from stepwell.graph.type_matching import describe, flatten, is_instance_of


def type_words(annotation: object) -> str:
    """A type in words; the same words in every process."""
    return " | ".join(describe(member) for member in flatten(annotation))


def named_in(words: str, annotation: object) -> bool:
    """Whether a type is one of those that `type_words` named."""
    return f" | {describe(annotation)} | " in f" | {words} | "


def schema_of(annotation: object) -> str:
    """The JSON schema of a type, as JSON text; where there is none to be had, one that says its name."""
    try:
        schema: Any = msgspec.json.schema(annotation)
    except (TypeError, NotImplementedError, KeyError):  # KeyError: of two classes that have one name
        schema = _pydantic_schema(annotation)
    return json.dumps(schema, separators=(",", ":"))


def _pydantic_schema(annotation: object) -> dict[str, Any]:
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None:
        try:
            schema: dict[str, Any] = pydantic.TypeAdapter(annotation).json_schema()
            return schema
        except (TypeError, pydantic.errors.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError):
            pass
    return {"title": type_words(annotation)}


class NotOfType(ValueError):
    """The value is not, and cannot be made, what was asked for."""


def answer_as(value: Any, annotations: Sequence[object]) -> Any:
    """The answer itself if it is of a type asked for, else what plain JSON data can be made into."""
    members = [member for annotation in annotations for member in flatten(annotation)]
    if any(is_instance_of(value, member) for member in members):
        return value
    reasons = []
    for member in members:
        try:
            converted = _convert(value, member)
        except Exception as error:  # noqa: BLE001 - also what a class of the user's own raises when it is made
            reasons.append(f"{describe(member)}: {error}")
            continue
        if is_instance_of(converted, member):
            return converted
    wanted = " | ".join(describe(member) for member in members) or "nothing"
    raise NotOfType(f"a {type(value).__name__} is not {wanted}" + (f" ({'; '.join(reasons)})" if reasons else ""))


def _convert(value: Any, member: Any) -> Any:
    if is_dataclass(member) and isinstance(value, Mapping):
        names = [field.name for field in fields(member)]
        if unknown := [name for name in value if name not in names]:  # a slip, and what was meant would be left out
            raise ValueError(f"it has no {', '.join(map(repr, unknown))}, only {', '.join(map(repr, names))}")
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and any(issubclass(cls, pydantic.BaseModel) for cls in reachable_types([member])):
        return pydantic.TypeAdapter(member).validate_python(value)
    with _LEARNING:
        return msgspec.convert(value, member, str_keys=True)


# What a class is like is found out when it is first needed: two threads that do so at once crash the process.
_LEARNING = threading.RLock()
