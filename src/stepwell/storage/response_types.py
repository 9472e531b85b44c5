"""The types of responses: their names, their JSON schemas, and conversion from plain JSON."""

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
    """Return the name of a type, the same in every process."""
    return " | ".join(describe(member) for member in flatten(annotation))


def named_in(names: str, annotation: object) -> bool:
    """Return whether a type is among those that `type_words` named."""
    return f" | {describe(annotation)} | " in f" | {names} | "


def schema_of(annotation: object) -> str:
    """Return the JSON schema of a type as JSON text; one with only a title if the type has none.

    Definitions are inlined, so that forms elsewhere need not follow references; only what contains
    itself is referred to.
    """
    try:
        schema: Any = msgspec.json.schema(annotation)
    except (TypeError, NotImplementedError, KeyError):  # KeyError: two classes of the same name
        schema = _pydantic_schema(annotation)
    return json.dumps(flatten_schema(schema), separators=(",", ":"))


_DEFINITIONS = "#/$defs/"
_DATA = ("default", "const", "enum", "examples", "mapping")  # not schemas, whatever they look like
_MOST_PARTS = 2000  # of a schema: definitions that use each other may have billions when they are inlined


def flatten_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without a reference at its root, and as far as possible without any."""
    definitions = schema.get("$defs", {})
    root = {key: value for key, value in schema.items() if key != "$defs"}
    try:
        flat: dict[str, Any] = _Inlining(definitions).inline(root)
    except _TooManyParts:
        flat = {**definitions.get(_referred(root), {}), **{key: root[key] for key in root if key != "$ref"}}
    # What is still referred to, by values that contain themselves for example, and by those in turn.
    kept: dict[str, Any] = {}
    while missing := [name for name in definitions if name not in kept and _mentions((flat, kept), name)]:
        kept |= {name: definitions[name] for name in missing}
    return {**flat, "$defs": kept} if kept else flat


class _TooManyParts(Exception):
    pass


class _Inlining:
    """Puts definitions in place of references, as long as that gives few parts."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions, self._left = definitions, _MOST_PARTS

    def inline(self, node: Any, inside: tuple[str, ...] = ()) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _TooManyParts
        if isinstance(node, list):
            return [self.inline(item, inside) for item in node]
        if not isinstance(node, dict):
            return node
        name = _referred(node)
        if name in self._definitions and name not in inside:
            node = {**self._definitions[name], **{key: value for key, value in node.items() if key != "$ref"}}
            inside = (*inside, name)
        return {key: value if key in _DATA else self.inline(value, inside) for key, value in node.items()}


def _referred(node: Mapping[str, Any]) -> str:
    reference = node.get("$ref")
    return reference.removeprefix(_DEFINITIONS) if isinstance(reference, str) else ""


def _mentions(document: object, name: str) -> bool:
    return json.dumps(f"{_DEFINITIONS}{name}") in json.dumps(document)


# pydantic is optional and never imported here: a program that uses its models has loaded it.


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
    """The value does not have the requested type and cannot be converted to it."""


def answer_as(value: Any, annotations: Sequence[object]) -> Any:
    """Return a response as one of the requested types, converting plain JSON data if necessary.

    Raises NotOfType if no type fits.
    """
    members = [member for annotation in annotations for member in flatten(annotation)]
    if any(is_instance_of(value, member) for member in members):
        return value
    reasons = []
    for member in members:
        try:
            converted = _convert(value, member)
        except Exception as error:  # noqa: BLE001 - constructors of users' classes raise anything
            reasons.append(f"{describe(member)}: {error}")
            continue
        # Checked again: a constructor may return something else.
        if is_instance_of(converted, member):
            return converted
    wanted = " | ".join(describe(member) for member in members) or "nothing"
    details = f" ({'; '.join(reasons)})" if reasons else ""
    raise NotOfType(f"a {type(value).__name__} is not {wanted}{details}")


def _convert(value: Any, member: Any) -> Any:
    if is_dataclass(member) and isinstance(value, Mapping):
        names = [field.name for field in fields(member)]
        # msgspec ignores unknown keys; here one is a typo, and the intended field would be lost.
        if unknown := [name for name in value if name not in names]:
            raise ValueError(f"it has no {', '.join(map(repr, unknown))}, only {', '.join(map(repr, names))}")
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and any(issubclass(cls, pydantic.BaseModel) for cls in reachable_types([member])):
        return pydantic.TypeAdapter(member).validate_python(value)
    with _CONVERTING:
        return msgspec.convert(value, member, str_keys=True)


# msgspec inspects a class when it first meets it. Two threads that do so at the same time crash the
# interpreter, so all conversions of this process share one lock. Reentrant, because constructors of
# users' classes may convert values too.
_CONVERTING = threading.RLock()
