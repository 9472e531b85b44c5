"""Agents of LangChain: a middleware that the agent lists makes each call of its model or of a tool a step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr, ToolCallRequest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
    messages_to_dict,
)
from langchain_core.tools import BaseTool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command

from stepwell.agents.adapters.langgraph.graph import COURSE, Course, LangChainAgent, results_for, text_in, usage_of
from stepwell.agents.adapters.langgraph.interrupts import parameters_of, text_of
from stepwell.agents.replies import ModelReply, ToolCall
from stepwell.agents.turn import Interrupted
from stepwell.errors import RunError

__all__ = ["LangChainAgent", "StepwellMiddleware"]

_SERDE = JsonPlusSerializer()


class _Marked(AgentState[Any]):
    stepwell: NotRequired[Annotated[bool, PrivateStateAttr]]  # how a compiled agent is known to have the middleware


class StepwellMiddleware(AgentMiddleware[Any, Any, Any]):
    """Makes each call of the model and of a tool a step of the run; list it last: `create_agent(middleware=[...])`.

    Where the agent does not take a turn in a run, it does nothing.
    """

    state_schema = _Marked

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        course = COURSE.get()
        return await handler(request) if course is None else await _model(course, request, handler)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        course = COURSE.get()
        return await handler(request) if course is None else await _tool(course, request, handler)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        return handler(request)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        return handler(request)


async def _model(course: Course, request: ModelRequest[Any], handler: Any) -> ModelResponse[Any]:
    turn = course.turn
    _check_failures(course)
    course.tools |= {tool.name: tool for tool in request.tools if isinstance(tool, BaseTool)}
    offered = [_offer(name, description) for name, description in turn.handoffs.items()]

    async def call() -> ModelReply:
        course.speaking = True
        try:
            response = await handler(request.override(tools=[*request.tools, *offered]))
        finally:
            course.speaking = False
        messages: list[BaseMessage] = response.result
        data = {"messages": messages_to_dict(messages), "structured": response.structured_response}
        return ModelReply(data, text_in(messages), _tool_calls(messages, course), usage_of(messages))

    try:
        recorded = await turn.model(call, within="")
    except Interrupted:
        if turn.handoff is not None and turn.last_reply is not None:
            reply = messages_from_dict(turn.last_reply.data["messages"])
            results = results_for(reply, "The conversation was handed over.")
            course.handoff_messages = [*request.state["messages"], *reply, *results]
        raise
    result: list[Any] = messages_from_dict(recorded.data["messages"])
    return ModelResponse(result=result, structured_response=recorded.data["structured"])


async def _tool(course: Course, request: ToolCallRequest, handler: Any) -> ToolMessage | Command[Any]:
    request_call = request.tool_call
    call = ToolCall(request_call["id"] or "", request_call["name"], request_call["args"])

    async def run(arguments: dict[str, Any]) -> Any:
        token = COURSE.set(None)  # an agent that the tool calls takes no part in this turn: the tool is one step
        try:
            result = await handler(request.override(tool_call={**request_call, "args": arguments}))
        finally:
            COURSE.reset(token)
        return _data(result)

    course.failed_tools[call.id] = call.name
    result = await course.turn.tool(call, run)
    del course.failed_tools[call.id]
    return _result(result, call)


def _check_failures(course: Course) -> None:
    """A failure is no result, so the tool would be called again when the turn is taken again: nobody may go on."""
    if course.failed_tools:
        raise RunError(
            f"the tool {next(iter(course.failed_tools.values()))!r} of {course.turn.executor_id!r} in run "
            f"{course.turn.run_id!r} failed, and a middleware listed before StepwellMiddleware made a result of it; "
            f"list that one after StepwellMiddleware, so that the result is kept",
            run_id=course.turn.run_id,
        )


def _tool_calls(messages: list[BaseMessage], course: Course) -> list[ToolCall]:
    calls = [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    return [_describe(ToolCall(call["id"] or "", call["name"], call["args"]), course) for call in calls]


def _describe(call: ToolCall, course: Course) -> ToolCall:
    tool = course.tools.get(call.name)
    if tool is None:
        return call
    return ToolCall(call.id, call.name, call.arguments, False, tool.description, parameters_of(tool))


def _offer(name: str, description: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _data(result: ToolMessage | Command[Any]) -> Any:
    """What a tool gave, as data: a text, or the message or the command that it is."""
    if isinstance(result, Command):
        return {"command": list(_SERDE.dumps_typed(result))}
    plain = ToolMessage(result.content, name=result.name, tool_call_id=result.tool_call_id, id=result.id)
    if isinstance(result.content, str) and result == plain:
        return result.content
    return {"message": message_to_dict(result)}


def _result(recorded: Any, call: ToolCall) -> ToolMessage | Command[Any]:
    match recorded:
        case {"command": [str() as kind, bytes() as data], **rest} if not rest:
            command: Command[Any] = _SERDE.loads_typed((kind, data))
            return command
        case {"message": dict() as data, **rest} if not rest:
            (message,) = messages_from_dict([data])
            assert isinstance(message, ToolMessage)
            return message
    return ToolMessage(text_of(recorded), name=call.name, tool_call_id=call.id)
