"""Reading JSON objects from the answers of models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from stepwell.agents.messages import AgentResponse

_DECODER = json.JSONDecoder()


def objects_in(response: AgentResponse) -> list[dict[str, Any]]:
    """Return the JSON objects in an answer: its parsed value if it has one, else all objects in its text.

    In a string they may stand alone, in a code fence, between words, or one after the other.
    """
    value: Any = response.value
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    return [dict(value)] if isinstance(value, Mapping) else list(find_objects(response.text))


def find_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a string, in their order."""
    at = text.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except ValueError:  # not the start of an object
            end = at + 1
        except RecursionError:
            # Thousands of nested braces are not an answer, and trying each of them takes quadratic time.
            return
        else:
            yield value
        at = text.find("{", end)
