"""Results of tools as data, and back."""

from __future__ import annotations

from typing import Any

from agent_framework import Content, FunctionTool


def tool_data(result: Any) -> Any:
    """Return a tool's result as data: its text, or the contents it consists of."""
    is_contents = isinstance(result, list) and all(isinstance(content, Content) for content in result)
    contents = result if is_contents else FunctionTool.parse_result(result)
    data = [content.to_dict() for content in contents]
    plain = len(data) == 1 and data[0].keys() <= {"type", "text"} and data[0]["type"] == "text"
    return data[0]["text"] if plain else {"contents": data}


def tool_result(recorded: Any) -> Any:
    match recorded:
        case str():
            return recorded
        case {"contents": list() as contents, **rest} if not rest:
            return [Content.from_dict(data) for data in contents]
    return FunctionTool.parse_result(recorded)  # a response of a person
