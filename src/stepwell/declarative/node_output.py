"""What an agent's answer comes to: text, an object of a type, or one of several types."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stepwell.agents.messages import AgentResponse
from stepwell.declarative.definition import Node
from stepwell.declarative.errors import OutputRejected
from stepwell.declarative.value_paths import as_fields
from stepwell.storage.response_types import NotOfType, answer_as

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


def parse_outputs(node: Node, response: AgentResponse, types: Mapping[str, type], *, run_id: str) -> dict[str, Any]:
    """What a node gives, by keys. Raises OutputRejected, in words for the agent, if the answer is not like that."""
    if node.output_mode == "text":
        return {node.gives: response.text if response.messages else response.value}
    problems: list[str] = []
    for candidate in _candidates(response):
        for name, reading in _readings(candidate, node.output_types, types):
            try:
                whole = _as_type(reading, name, types)
            except NotOfType as error:
                problems.append(f"as {name}: {error}" if name else str(error))
                continue
            fields = {key: value for key, value in as_fields(whole).items() if key != "input"}  # that of the run stays
            matched = {f"{node.gives}_type": name} if node.output_mode == "union" else {}
            return {**fields, **matched, node.gives: whole}
    wanted = " or ".join(node.output_types) or "a JSON object"
    why = problems[-1] if problems else "there is no JSON object in it"
    raise OutputRejected(
        f"The answer could not be read as {wanted}: {why}. Answer again, with nothing but the JSON object.",
        run_id=run_id,
    )


def _readings(value: Any, names: tuple[str, ...], types: Mapping[str, type]) -> Iterator[tuple[str | None, Any]]:
    """What a value may be meant as, likeliest first: types that have all its keys, then any, without the other keys."""
    if not names:
        yield None, value
    if not isinstance(value, Mapping):
        yield from ((name, value) for name in names)
        return
    partial: list[tuple[str, Any]] = []
    for name in names:
        keys = _keys_of(types[name])
        if keys is None or value.keys() <= keys:
            yield name, value
        else:
            partial.append((name, {key: field for key, field in value.items() if key in keys}))
    yield from partial


def _keys_of(cls: type) -> set[str] | None:
    """The keys of the fields of a class; None if any may be."""
    if dataclasses.is_dataclass(cls):
        return {field.name for field in dataclasses.fields(cls)}
    if issubclass(cls, msgspec.Struct):
        return {field.encode_name for field in msgspec.structs.fields(cls)}
    fields = getattr(cls, "model_fields", None)  # of a pydantic model, which may know a field by another name too
    if not isinstance(fields, Mapping):
        return None
    plain = all(field.alias is None and field.validation_alias is None for field in fields.values())
    return {*fields} if plain else None


def _as_type(value: Any, name: str | None, types: Mapping[str, type]) -> Any:
    if name is None:
        if not isinstance(value, Mapping) and not as_fields(value):
            raise NotOfType(f"a {type(value).__name__} is no JSON object")
        return value
    return answer_as(value, [types[name]])


def _candidates(response: AgentResponse) -> Iterator[Any]:
    """What may be the object that was meant, likeliest first."""
    if response.value is not None:
        yield response.value
    text = response.text.strip()
    for part in (text, *reversed(_FENCED.findall(text)), *_objects(text)):
        try:
            yield json.loads(part)
        except ValueError:
            continue


def _objects(text: str) -> Iterator[str]:
    """The texts of the JSON objects in a text, the last one first."""
    objects, at, decoder = list[str](), 0, json.JSONDecoder()
    while (at := text.find("{", at)) >= 0:
        try:
            _, end = decoder.raw_decode(text, at)
        except ValueError:
            at += 1
            continue
        objects.append(text[at:end])
        at = end
    return reversed(objects)
