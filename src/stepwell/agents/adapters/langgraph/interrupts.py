"""Interrupts of a graph: turning them into requests, and people's responses into a resume command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import Command, StateSnapshot

from stepwell.agents.requests import ToolApprovalRequest, ToolApprovalResponse
from stepwell.agents.turn import Turn
from stepwell.errors import RunError

Tools = Mapping[str, BaseTool]
_EVERYTHING = ("approve", "edit", "reject", "respond")


@dataclass(slots=True)
class _ApprovalInterrupt:
    """An interrupt that asks for approvals: its calls, and the decisions allowed for each."""

    id: str
    calls: list[ToolApprovalRequest]
    allowed: list[Sequence[str]]
    one_by_one: bool = False

    def resume(self, replies: Sequence[ToolApprovalResponse], turn: Turn) -> Any:
        decisions = [
            _decision(call, reply, allowed, turn)
            for call, reply, allowed in zip(self.calls, replies, self.allowed, strict=True)
        ]
        return decisions[0] if self.one_by_one else {"decisions": decisions}


async def answer_interrupts(snapshot: StateSnapshot, turn: Turn, tools: Tools) -> Command[Any]:
    """Return the command that resumes the graph. Raises Interrupted until people have responded."""
    messages = reversed(snapshot.values.get("messages", []))
    calls = list(next((message.tool_calls for message in messages if isinstance(message, AIMessage)), []))
    resume: dict[str, Any] = {}
    approvals: list[_ApprovalInterrupt] = []
    for interrupt in snapshot.interrupts:
        match interrupt.value:
            # HumanInTheLoopMiddleware: all calls of a reply in one interrupt.
            case {"action_requests": list() as actions, "review_configs": list() as configs}:
                allowed = {config["action_name"]: config["allowed_decisions"] for config in configs}
                requests = [_request(action, _id_of(action, calls), turn, tools) for action in actions]
                approvals.append(
                    _ApprovalInterrupt(
                        interrupt.id, requests, [allowed.get(request.tool, _EVERYTHING) for request in requests]
                    )
                )
            # The same middleware in its per-call mode.
            case {"type": "tool_approval", "tool_call_id": id} as action:
                approvals.append(
                    _ApprovalInterrupt(
                        interrupt.id, [_request(action, id, turn, tools)], [_EVERYTHING], one_by_one=True
                    )
                )
    # Approvals first and all together; each other interrupt is a question of its own.
    if approvals:
        replies = await turn.approvals([call for approval in approvals for call in approval.calls])
        for approval in approvals:
            own, replies = replies[: len(approval.calls)], replies[len(approval.calls) :]
            resume[approval.id] = approval.resume(own, turn)
    for interrupt in snapshot.interrupts:
        if interrupt.id not in resume:
            resume[interrupt.id] = await turn.ask("interrupt", interrupt.value, Any)
    return Command(resume=resume)


def _id_of(action: Mapping[str, Any], calls: list[Any]) -> str:
    """Find the id of the call that an action stands for, which the interrupt does not contain."""
    # Each match is removed, so that two equal calls get different ids.
    for at, call in enumerate(calls):
        if (call["name"], call["args"]) == (action["name"], action["args"]):
            return str(calls.pop(at)["id"])
    return ""


def _request(action: Mapping[str, Any], id: str, turn: Turn, tools: Tools) -> ToolApprovalRequest:
    tool = tools.get(action["name"])
    description = action.get("description") if tool is None else tool.description
    parameters = {} if tool is None else parameters_of(tool)
    return ToolApprovalRequest(turn.executor_id, action["name"], action["args"], id, description, parameters)


def parameters_of(tool: BaseTool) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments."""
    parameters: dict[str, Any] = convert_to_openai_tool(tool)["function"].get("parameters", {})
    return parameters


def _decision(
    call: ToolApprovalRequest, reply: ToolApprovalResponse, allowed: Sequence[str], turn: Turn
) -> dict[str, Any]:
    decision: dict[str, Any]
    match reply:
        case ToolApprovalResponse(decision="deny", reason=reason):
            decision = {"type": "reject", **({"message": reason} if reason else {})}
        case ToolApprovalResponse(decision="answer", result=result):
            decision = {"type": "respond", "message": text_of(result)}
        case ToolApprovalResponse(arguments=dict() as edited) if edited != call.arguments:
            decision = {"type": "edit", "edited_action": {"name": call.tool, "args": edited}}
        case _:
            decision = {"type": "approve"}
    if decision["type"] not in allowed:
        raise RunError(
            f"the agent {turn.executor_id!r} in run {turn.run_id!r} does not allow the decision {decision['type']!r} "
            f"for calls of {call.tool!r}, only {', '.join(allowed)}; restore the run to a checkpoint before the "
            f"response, or change what its HumanInTheLoopMiddleware allows",
            run_id=turn.run_id,
        )
    return decision


def text_of(result: Any) -> str:
    """Return a tool's result as text."""
    return result if isinstance(result, str) else json.dumps(result, default=str)
