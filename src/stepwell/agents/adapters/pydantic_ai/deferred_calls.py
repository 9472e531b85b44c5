"""Calls that pydantic-ai defers, because they need approval or are made elsewhere, as questions to people."""

from __future__ import annotations

import asyncio

from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_core import to_json

from stepwell.agents.requests import (
    AgentInputRequest,
    AgentInputResponse,
    ToolApprovalRequest,
    ToolApprovalResponse,
    denial,
)
from stepwell.engine.handler.internal_context import InternalContext


async def ask_people(ctx: InternalContext, agent: str, requests: DeferredToolRequests) -> DeferredToolResults:
    """Ask about all deferred calls at the same time, and return the results."""
    # By id: the library lists them in the order in which tools have ended.
    approvals = sorted(requests.approvals, key=lambda call: call.tool_call_id)
    external = sorted(requests.calls, key=lambda call: call.tool_call_id)
    decisions, inputs = await asyncio.gather(
        asyncio.gather(*(_ask_approval(ctx, agent, call) for call in approvals)),
        asyncio.gather(*(_ask_result(ctx, agent, call) for call in external)),
    )
    results = DeferredToolResults()
    for call, decision in zip(approvals, decisions, strict=True):
        _apply(decision, call.tool_call_id, results)
    for call, response in zip(external, inputs, strict=True):
        results.calls[call.tool_call_id] = response.value
    return results


async def _ask_approval(ctx: InternalContext, agent: str, call: ToolCallPart) -> ToolApprovalResponse:
    request = ToolApprovalRequest(agent, call.tool_name, call.args_as_dict(), call.tool_call_id)
    return await ctx.ask(request, ToolApprovalResponse)


async def _ask_result(ctx: InternalContext, agent: str, call: ToolCallPart) -> AgentInputResponse:
    data = {"tool": call.tool_name, "arguments": call.args_as_dict(), "tool_call_id": call.tool_call_id}
    return await ctx.ask(AgentInputRequest(agent, data), AgentInputResponse)


def _apply(answer: ToolApprovalResponse, call_id: str, results: DeferredToolResults) -> None:
    match answer:
        case ToolApprovalResponse(decision="deny", reason=reason):
            results.approvals[call_id] = ToolDenied(denial(reason))
        case ToolApprovalResponse(decision="answer", result=result):
            # The library has no other way to return a result for a call that needs approval.
            results.approvals[call_id] = ToolDenied(result if isinstance(result, str) else to_json(result).decode())
        case ToolApprovalResponse(arguments=arguments):
            results.approvals[call_id] = ToolApproved(override_args=arguments)
