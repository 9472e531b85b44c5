"""What a run came to, or where it rests, in words and as data. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stepwell.cli.views.requests import request_to_dict

if TYPE_CHECKING:
    from stepwell.model.superstep import Checkpoint

_ANSWERS = ("stepwell:AgentResponse",)
_OUTCOMES = ("stepwell:NodeOutcome",)


@dataclass
class Result:
    """What a drive of a run came to: where the run is now, what it gave, and what it failed with."""

    at: Checkpoint
    outputs: list[Any] = field(default_factory=list)  # as they are stored
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """For a program."""
        at = self.at
        return {
            "run_id": at.run_id,
            "workflow": at.header.workflow,
            "status": at.status.value,
            "number": at.number,
            "checkpoint_id": at.stamp.checkpoint_id,
            "iteration": at.iteration,
            "outputs": self.outputs,
            "requests": [request_to_dict(request) for request in at.requests.values()],
            "wakes_at": at.wake,
            "error": self.error,
        }


def to_plain(output: Any) -> Any:
    """What a person wants of an output that is given as it is stored: of an agent's answer the text."""
    tag = output.get("$") if isinstance(output, dict) else None
    fields = output.get("v") if tag in (*_ANSWERS, *_OUTCOMES) else None
    if not isinstance(fields, dict):
        return output
    if tag in _OUTCOMES:
        return to_plain(fields.get("output"))
    texts = [_text(message) for message in _inside(fields.get("messages"))]
    return "\n".join(text for text in texts if text)


def _inside(stored: Any) -> list[Any]:
    """The items of a stored list or tuple."""
    inside = stored.get("v") if isinstance(stored, dict) else stored
    return inside if isinstance(inside, list) else []


def _text(message: Any) -> str:
    fields = message.get("v") if isinstance(message, dict) else None
    text = fields.get("text") if isinstance(fields, dict) else None
    return text if isinstance(text, str) else ""
