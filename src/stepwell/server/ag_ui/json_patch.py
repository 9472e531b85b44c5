"""JSON Patches (RFC 6902): how one value becomes another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def diff_json(before: Any, after: Any, path: str) -> Iterator[dict[str, Any]]:
    """Yield the operations of a JSON Patch (RFC 6902) that turn one value into the other."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() - after.keys():
            yield {"op": "remove", "path": f"{path}/{_escape(key)}"}
        for key, value in after.items():
            if key in before:
                yield from diff_json(before[key], value, f"{path}/{_escape(key)}")
            else:
                yield {"op": "add", "path": f"{path}/{_escape(key)}", "value": value}
    elif isinstance(before, list) and isinstance(after, list) and after[: len(before)] == before:
        for value in after[len(before) :]:
            yield {"op": "add", "path": f"{path}/-", "value": value}
    elif json.dumps(before) != json.dumps(after):  # not `!=`, to which 1, 1.0 and true are the same
        yield {"op": "replace", "path": path, "value": after}


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
