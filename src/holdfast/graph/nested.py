"""What a workflow inside a workflow says to the one around it, when that one answers its questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_PLAIN: dict[str, type] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "list": list,
    "dict": dict,
    "NoneType": type(None),
    "None": type(None),
}


@dataclass(frozen=True, slots=True)
class SubWorkflowRequest:
    """A question of a sub-workflow, as plain data: what its `request_info` event says."""

    request_id: str
    data: Any
    source_executor_id: str
    request_type: str
    response_type: str
    response_schema: dict[str, Any]
    deadline: str | None
    child: str  # which call of the sub-workflow asks


@dataclass(frozen=True, slots=True)
class SubWorkflowResponseMessage:
    """The answer to a question of a sub-workflow: send it to the executor that the question came from."""

    data: Any
    source_event: SubWorkflowRequest


@dataclass(frozen=True, slots=True)
class SubWorkflowRequestMessage:
    """A question of a sub-workflow, sent to an executor beside it that may answer.

    `ctx.send_message(request.create_response(answer), target_id=request.executor_id)` does.
    """

    source_event: SubWorkflowRequest
    executor_id: str

    def create_response(self, data: Any) -> SubWorkflowResponseMessage:
        """The answer, ready to be sent. Raises TypeError if it cannot be of the type that is asked for."""
        wanted = self.source_event.response_type
        if not _may_be(data, wanted.split(" | ")):
            raise TypeError(
                f"{self.source_event.request_id!r} of {self.executor_id!r} asks for {wanted}, not for a "
                f"{type(data).__name__}"
            )
        return SubWorkflowResponseMessage(data, self.source_event)


def _may_be(data: Any, words: list[str]) -> bool:
    """False if a value certainly is none of the types in words; the sub-workflow itself looks more closely."""
    if type(data).__name__ in words or {"Any", "object"} & set(words):
        return True
    if all(word in _PLAIN for word in words):
        return any(isinstance(data, _PLAIN[word]) for word in words)
    return any(word not in _PLAIN for word in words)  # of a class of its own, or plain data to make one of
