"""The result of driving a run, as JSON and as text. Pure functions."""

from __future__ import annotations

from typing import Any

from stepwell.cli.type_names import Checkpoint
from stepwell.cli.views.requests import request_to_dict
from stepwell.model.status_words import status_word

# Stored names of classes. Outputs are shown as they are stored, without loading the classes.
_RESPONSES = ("stepwell:AgentResponse",)
_OUTCOMES = ("stepwell:NodeOutcome",)


def result_to_dict(at: Checkpoint, *, outputs: list[Any], error: str | None) -> dict[str, Any]:
    """Return where a run is after a drive as JSON, with its outputs in their stored form."""
    return {
        "run_id": at.run_id,
        "workflow": at.header.workflow,
        "status": status_word(at.status, wake=at.wake),
        "number": at.number,
        "checkpoint_id": at.stamp.checkpoint_id,
        "iteration": at.iteration,
        "outputs": outputs,
        "requests": [request_to_dict(request) for request in at.requests.values()],
        "wakes_at": at.wake,
        "error": error,
    }


def to_plain(output: Any) -> Any:
    """Return what a person wants to read of a stored output: of an agent's response, its text."""
    # Anything else is printed as JSON: only these two classes have an obvious text.
    tag = output.get("$") if isinstance(output, dict) else None
    fields = output.get("v") if tag in (*_RESPONSES, *_OUTCOMES) else None
    if not isinstance(fields, dict):
        return output
    if tag in _OUTCOMES:
        return to_plain(fields.get("output"))
    texts = [_text(message) for message in _items(fields.get("messages"))]
    return "\n".join(text for text in texts if text)


def _items(stored: Any) -> list[Any]:
    """Return the items of a stored list or tuple."""
    items = stored.get("v") if isinstance(stored, dict) else stored
    return items if isinstance(items, list) else []


def _text(message: Any) -> str:
    fields = message.get("v") if isinstance(message, dict) else None
    text = fields.get("text") if isinstance(fields, dict) else None
    return text if isinstance(text, str) else ""
