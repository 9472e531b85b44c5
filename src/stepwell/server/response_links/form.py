"""A request as a form in plain HTML, without scripts; and what was entered, as JSON. Pure.

A boolean, a string, a number, a choice, and an object of these have fields of their own; anything
else is entered as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from http import HTTPStatus
from typing import Any

import msgspec

from stepwell.admin.schemas.json_schema import resolved
from stepwell.server.problems import RequestRefused

_WHOLE = "value"  # the name of the only field, if the response is not an object
_FIELD = "field."  # before the name of a field of an object


def form_fields(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of the form as HTML."""
    for name, label, part, is_needed in _fields(schema):
        described = part.get("description")
        hint = f"<small>{escape(str(described))}</small>" if isinstance(described, str) else ""
        yield f"<p><label>{escape(label)} {_input(name, part, is_needed)}</label>{hint}</p>"


def read_form(schema: Mapping[str, Any], entered: Mapping[str, str]) -> Any:
    """Return what was entered as JSON data. Raises RequestRefused for what cannot be read."""
    values: dict[str, Any] = {}
    for name, label, part, is_needed in _fields(schema):
        text = entered.get(name, "")
        if text == "" and (not is_needed or part.get("type") != "string"):
            if is_needed:
                raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{label} is missing")
            continue
        values[name] = _read(text, label, part)
    if set(values) <= {_WHOLE} and not _is_object(schema):
        return values.get(_WHOLE)
    return {name.removeprefix(_FIELD): value for name, value in values.items()}


def _fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any], bool]]:
    """Yield the name, the label and the schema of each field, and whether it must be filled in."""
    whole = resolved(schema, schema)
    if not _is_object(schema):
        yield _WHOLE, str(whole.get("title") or "Your response"), whole, True
        return
    needed = whole.get("required", ())
    for name, part in whole["properties"].items():
        yield f"{_FIELD}{name}", str(name), resolved(schema, part), name in needed


def _is_object(schema: Mapping[str, Any]) -> bool:
    whole = resolved(schema, schema)
    return whole.get("type") == "object" and isinstance(whole.get("properties"), dict) and bool(whole["properties"])


def _input(name: str, part: Mapping[str, Any], is_needed: bool) -> str:
    needed = " required" if is_needed else ""
    named = f'name="{escape(name)}"'
    choices = _choices(part)
    if choices:
        empty = "" if is_needed else '<option value=""></option>'
        options = "".join(f'<option value="{escape(json)}">{escape(label)}</option>' for json, label in choices.items())
        return f"<select {named}{needed}>{empty}{options}</select>"
    match part.get("type"):
        case "string":
            return f"<textarea {named} rows=3></textarea>"
        case "integer" | "number":
            step = "1" if part["type"] == "integer" else "any"
            return f'<input {named} type="number" step="{step}"{needed}>'
    return f'<textarea {named} rows=6 placeholder="JSON"{needed}></textarea>'


def _choices(part: Mapping[str, Any]) -> dict[str, str]:
    """Return what can be chosen, as JSON, with what people read."""
    if part.get("type") == "boolean":
        return {"true": "yes", "false": "no"}
    values = part.get("enum") or ([part["const"]] if "const" in part else [])
    return {msgspec.json.encode(value).decode(): str(value) for value in values}


def _read(text: str, label: str, part: Mapping[str, Any]) -> Any:
    if part.get("type") == "string" and not _choices(part):
        return text.replace("\r\n", "\n")  # browsers send line breaks so
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{label}: this cannot be read as JSON") from None
