"""The prompt of a node, built from the values of the run.

Pure: templates are filled, never executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from stepwell.declarative.definition import Node
from stepwell.declarative.errors import MissingInput
from stepwell.declarative.value_paths import MISSING, as_fields, look_up

# {{path}}, with spaces around the path ignored. The path itself may hold spaces but no braces.
_PLACEHOLDER = re.compile(r"\{\{\s*([^{}\s][^{}]*?)\s*\}\}")


def find(values: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path. Raises KeyError if there is none."""
    value = look_up(path, values)
    if value is MISSING:
        raise KeyError(path)
    return value


def find_placeholders(template: str) -> list[str]:
    """List the paths in a template, in order, each once."""
    return list(dict.fromkeys(_PLACEHOLDER.findall(template)))


def fill_template(template: str, values: Mapping[str, Any], node: str, run_id: str) -> str:
    """Fill in a template. Raises MissingInput naming every path without a value."""
    strings: dict[str, str] = {}
    missing: list[str] = []
    for path in find_placeholders(template):
        try:
            strings[path] = as_text(find(values, path))
        except KeyError:
            missing.append(path)
    if missing:
        raise _make_missing_error(node, missing, values, run_id)
    # One pass over the template: braces inside a value are not filled in again.
    return _PLACEHOLDER.sub(lambda match: strings[match[1]], template)


def as_text(value: Any) -> str:
    """Return a string unchanged, and other data as JSON."""
    if isinstance(value, str):
        return value
    fields = as_fields(value)
    return json.dumps(fields or value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return as_fields(value) or str(value)


def build_prompt(node: Node, values: Mapping[str, Any], upstream: Mapping[str, Any], *, run_id: str) -> str:
    """Build the prompt of a node.

    `upstream` holds the outputs of the nodes that led to it. An entry node has none and gets the
    input of the run. Raises MissingInput if a value does not exist.
    """
    parts = [node.instructions] if node.instructions else []
    parts += [f"{key}: {_find_text(node, key, values, run_id)}" for key in node.context_keys]
    if node.input_key is not None:
        parts.append(_find_text(node, node.input_key, values, run_id))
    elif node.input_template is not None:
        parts.append(fill_template(node.input_template, values, node.id, run_id))
    elif upstream:
        parts += [as_text(output) for output in upstream.values()]
    else:
        parts.append(_find_text(node, "input", values, run_id))
    return "\n\n".join(parts)


def _find_text(node: Node, path: str, values: Mapping[str, Any], run_id: str) -> str:
    try:
        return as_text(find(values, path))
    except KeyError:
        raise _make_missing_error(node.id, [path], values, run_id) from None


def _make_missing_error(node: str, paths: list[str], values: Mapping[str, Any], run_id: str) -> MissingInput:
    wanted, names = ", ".join(map(repr, paths)), ", ".join(map(repr, values)) or "none"
    return MissingInput(
        f"{node!r} in run {run_id!r} needs {wanted}, which no agent has produced; there are {names}: use one of "
        f"them, or add an edge from the agent with that output_key",
        run_id=run_id,
    )
