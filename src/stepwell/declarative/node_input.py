"""The prompt of a node, built from the values of the run.

Pure: templates are filled, never executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from stepwell.declarative.definition import Node
from stepwell.declarative.errors import MissingInput
from stepwell.declarative.value_paths import MISSING, as_fields, look_up

# {{path}}, with spaces around the path ignored. The path itself may hold spaces but no braces.
_PLACEHOLDER = re.compile(r"\{\{\s*([^{}\s][^{}]*?)\s*\}\}")


def build_prompt(node: Node, values: Mapping[str, Any], upstream: Mapping[str, Any], *, run_id: str) -> str:
    """Build the prompt of a node.

    `upstream` holds the outputs of the nodes that led to it. An entry node has none and gets the
    input of the run. Raises MissingInput if a value does not exist.
    """
    texts = [f"{key}: {_find_texts([key], node, values, run_id)[key]}" for key in node.context_keys]
    if node.input_key is None and node.input_template is None and upstream:
        texts += [_as_text(output) for output in upstream.values()]
    elif node.input_key is None and node.input_template is not None:
        strings = _find_texts(_PLACEHOLDER.findall(node.input_template), node, values, run_id)
        # One pass over the template: braces inside a value are not filled in again.
        texts.append(_PLACEHOLDER.sub(lambda match: strings[match[1]], node.input_template))
    else:
        key = "input" if node.input_key is None else node.input_key
        texts += _find_texts([key], node, values, run_id).values()
    return "\n\n".join([node.instructions, *texts] if node.instructions else texts)


def _find_texts(paths: Iterable[str], node: Node, values: Mapping[str, Any], run_id: str) -> dict[str, str]:
    """Return the values at some paths as text. Raises MissingInput naming every path without one."""
    by_path = {path: look_up(path, values) for path in paths}
    if missing := [repr(path) for path, value in by_path.items() if value is MISSING]:
        names = ", ".join(map(repr, values)) or "none"
        raise MissingInput(
            f"{node.id!r} in run {run_id!r} needs {', '.join(missing)}, which no agent has produced; there are "
            f"{names}: use one of them, or add an edge from the agent with that output_key",
            run_id=run_id,
        )
    return {path: _as_text(value) for path, value in by_path.items()}


def _as_text(value: Any) -> str:
    """Return a string unchanged, and other data as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(as_fields(value) or value, ensure_ascii=False, default=lambda part: as_fields(part) or str(part))
