"""What a node is told: values of the run, found by their keys, or a text with places for them. Pure; nothing is run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from stepwell.declarative.definition import Node
from stepwell.declarative.errors import MissingInput
from stepwell.declarative.value_paths import MISSING, as_fields, look_up

_PLACE = re.compile(r"\{\{\s*([^{}\s][^{}]*?)\s*\}\}")


def find(values: Mapping[str, Any], path: str) -> Any:
    """The value at a path. Raises KeyError if there is none."""
    value = look_up(path, values)
    if value is MISSING:
        raise KeyError(path)
    return value


def placeholders(template: str) -> list[str]:
    """The paths in a template, in order, each once."""
    return list(dict.fromkeys(_PLACE.findall(template)))


def fill_template(template: str, values: Mapping[str, Any], node: str, run_id: str) -> str:
    """A template with values in its places. Raises MissingInput with every place that has none."""
    texts: dict[str, str] = {}
    missing: list[str] = []
    for path in placeholders(template):
        try:
            texts[path] = as_text(find(values, path))
        except KeyError:
            missing.append(path)
    if missing:
        raise _make_missing_error(node, missing, values, run_id)
    return _PLACE.sub(lambda match: texts[match[1]], template)


def as_text(value: Any) -> str:
    """A text as it is; other data as JSON."""
    if isinstance(value, str):
        return value
    fields = as_fields(value)
    return json.dumps(fields or value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return as_fields(value) or str(value)


def build_prompt(node: Node, values: Mapping[str, Any], upstream: Mapping[str, Any], *, run_id: str) -> str:
    """What a node is told. `upstream` is what those gave that led to it; an entry has none and is told the input."""
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
        f"{node!r} in run {run_id!r} wants {wanted}, which nobody has given; there are {names}: name one of them, or "
        f"add an edge from the agent whose output_key it is",
        run_id=run_id,
    )
