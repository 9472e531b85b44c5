"""What a call of an agent came to, in short, for its record in the commit."""

from __future__ import annotations

import json
from typing import Any

from stepwell.agents.messages import ModelReply
from stepwell.model.timing import CallSummary

_SHOWN = 120  # characters: a record grows by this much for each call, whatever a tool returns or raises


def summarise_reply(reply: ModelReply) -> CallSummary:
    """Return what a model call consumed."""
    usage = reply.usage
    return CallSummary(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost="" if usage.cost is None else f"{usage.cost:.6f}".rstrip("0").rstrip("."),
    )


def summarise_tool(arguments: dict[str, Any], result: Any, error: str | None) -> CallSummary:
    """Return how a tool was called and what it returned, or the error the agent was shown.

    The arguments are whole: a model wrote them, and readers parse them.
    """
    return CallSummary(
        arguments=_storable(_write(arguments)) if arguments else "",
        result="" if error is not None or result is None else _begin(result),
        error="" if error is None else _begin(error),
    )


def _begin(value: Any) -> str:
    text = value if isinstance(value, str) else _write(value)
    text = _storable(text[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _write(value: Any) -> str:
    # `default`: a result may be any object that can be stored, and this is only its description.
    return json.dumps(value, ensure_ascii=False, default=str)


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate cannot be stored
