"""Outputs of a node, parsed from its agent's answer: text, or objects of declared types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stepwell.agents.messages import AgentResponse
from stepwell.declarative.definition import Node
from stepwell.declarative.errors import OutputRejected
from stepwell.declarative.value_paths import as_fields, field_names
from stepwell.orchestrations.model_json import find_objects
from stepwell.storage.response_types import NotOfType, answer_as

# Models often wrap JSON in a Markdown code block.
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


def parse_outputs(node: Node, response: AgentResponse, types: Mapping[str, type], *, run_id: str) -> dict[str, Any]:
    """Return the outputs of a node by key.

    Raises OutputRejected, worded for the agent, if the answer is not of a declared type.
    """
    if node.output_mode == "text":
        return {node.value_key: response.text if response.messages else response.value}
    problems: list[str] = []
    for candidate in _candidates(response):
        for name, data in _match_types(candidate, node.output_types, types):
            try:
                if name is None and not isinstance(data, Mapping) and not as_fields(data):
                    raise NotOfType(f"a {type(data).__name__} is not a JSON object")
                parsed = data if name is None else answer_as(data, [types[name]])
            except NotOfType as error:
                problems.append(f"as {name}: {error}" if name else str(error))
                continue
            # Each field is a value of the run too, but none may replace the run's input.
            fields = {key: value for key, value in as_fields(parsed).items() if key != "input"}
            matched = {f"{node.value_key}_type": name} if node.output_mode == "union" else {}
            return {**fields, **matched, node.value_key: parsed}
    wanted = " or ".join(node.output_types) or "a JSON object"
    # One clear sentence helps a model more than a list of everything that was tried.
    why = problems[-1] if problems else "it contains no JSON object"
    raise OutputRejected(
        f"The answer could not be read as {wanted}: {why}. Answer again, with nothing but the JSON object.",
        run_id=run_id,
    )


def _match_types(value: Any, names: tuple[str, ...], types: Mapping[str, type]) -> Iterator[tuple[str | None, Any]]:
    """Yield the types a value may be meant as, most likely first, with the data to parse.

    First the types that have all its keys, then the others without the keys they do not have.
    """
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
    """Return the keys that a class accepts; None if that is not known."""
    if issubclass(cls, msgspec.Struct):
        return {field.encode_name for field in msgspec.structs.fields(cls)}
    # A pydantic model, recognised without importing pydantic. With aliases, its keys are not known.
    described = getattr(cls, "model_fields", None) or {}
    aliased = any(field.alias is not None or field.validation_alias is not None for field in described.values())
    names = field_names(cls)
    return None if aliased or names is None else set(names)


def _candidates(response: AgentResponse) -> Iterator[Any]:
    """Yield the values an answer may mean, most likely first.

    A structured value of the library, the text as JSON, code blocks, then objects anywhere in the
    text; of several, the last, because models think aloud before they answer.
    """
    if response.value is not None:
        yield response.value
    text = response.text.strip()
    for part in (text, *reversed(_FENCED.findall(text))):
        try:
            yield json.loads(part)
        except ValueError:
            continue
    yield from reversed(list(find_objects(text)))
