"""The OpenAPI document, computed from the types of the operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

import stepwell
from stepwell.server.api.operation import IDEMPOTENCY_KEY, Operation
from stepwell.server.problems import MEDIA_TYPE, Problem

_REFERENCE = "#/components/schemas/{name}"


def make_document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the document (OpenAPI 3.1) of the operations."""
    types = [*_types_of(operations)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _describe(one, by_type, components)
    # Parameters are listed with their operations.
    for one in operations:
        components.pop(one.query.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Stepwell",
            "version": stepwell.__version__,
            "description": "Runs of agent workflows: see, start, answer and move them. Nothing here drives a run.",
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types_of(operations: Iterable[Operation]) -> Iterable[Any]:
    types: list[Any] = [Problem]
    for one in operations:
        types += [one.query]
        types += [] if one.body is None else [one.body]
        types += [] if one.answer is Response else [one.answer]
    return dict.fromkeys(types)


def _describe(one: Operation, schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    answer = {} if one.answer is Response else {"schema": schemas[one.answer]}
    described: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "description": f"Needs the role `{one.role.value}`.",
        "parameters": [*_parameters(one, components[one.query.__name__])],
        "responses": {
            str(one.status.value): {"description": one.status.phrase, "content": {one.media_type: answer}},
            "default": {
                "description": "Why it was refused, or failed.",
                "content": {MEDIA_TYPE: {"schema": schemas[Problem]}},
            },
        },
    }
    if one.body is not None:
        needs_body = any(field.required for field in msgspec.structs.fields(one.body))
        described["requestBody"] = {
            "required": needs_body,
            "content": {"application/json": {"schema": schemas[one.body]}},
        }
    return described


def _parameters(one: Operation, schema: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for name, described in schema.get("properties", {}).items():
        is_in_path = name in one.parameters_in_path
        yield {
            "name": name,
            "in": "path" if is_in_path else "query",
            "required": is_in_path or name in schema.get("required", ()),
            "schema": described,
        }
    if one.writes:
        meaning = "Sent again with the same key, the request has no second effect."
        yield {
            "name": IDEMPOTENCY_KEY,
            "in": "header",
            "required": False,
            "description": meaning,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }
