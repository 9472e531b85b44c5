"""What a model answered, read as data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from stepwell.agents.messages import AgentResponse

_DECODER = json.JSONDecoder()


def objects_in(response: AgentResponse) -> list[dict[str, Any]]:
    """The JSON objects in an answer, in order: its parsed value if it has one, else those that stand in its text,
    alone, in a fence, in the middle of words or one after the other."""
    value = response.value
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    return [dict(value)] if isinstance(value, Mapping) else list(_in_text(response.text))


def _in_text(text: str) -> Iterator[dict[str, Any]]:
    at = text.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except ValueError:  # a brace that begins no object
            end = at + 1
        except RecursionError:  # nobody means that; trying every brace of it would take for ever
            return
        else:
            yield value
        at = text.find("{", end)
