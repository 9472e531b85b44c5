"""`StepwellMiddleware`: listed by a LangChain agent, it makes each model call and tool call a step.

langgraph/graph.py runs the agent; the two share the turn through the context variable `ACTIVE_TURN`.
"""

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

from stepwell.agents.adapters.langgraph.graph import (
    ACTIVE_TURN,
    ActiveTurn,
    LangChainAgent,
    text_in,
    usage_of,
)
from stepwell.agents.adapters.langgraph.interrupts import parameters_of, text_of
from stepwell.agents.messages import ModelReply, ToolCall
from stepwell.agents.turn import Interrupted
from stepwell.errors import RunError

__all__ = ["LangChainAgent", "StepwellMiddleware"]

_SERDE = JsonPlusSerializer()


class _Marked(AgentState[Any]):
    # A compiled agent does not list its middlewares, but it has their state: this key marks ours.
    stepwell: NotRequired[Annotated[bool, PrivateStateAttr]]


class StepwellMiddleware(AgentMiddleware[Any, Any, Any]):
    """Makes each model call and tool call a step of the run; list it last in `create_agent(middleware=[...])`.

    It does nothing when the agent is used outside a run.
    """

    state_schema = _Marked

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        active = ACTIVE_TURN.get()
        return await handler(request) if active is None else await _model(active, request, handler)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        active = ACTIVE_TURN.get()
        return await handler(request) if active is None else await _tool(active, request, handler)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        return handler(request)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        return handler(request)


async def _model(active: ActiveTurn, request: ModelRequest[Any], handler: Any) -> ModelResponse[Any]:
    turn = active.turn
    _check_failures(active)
    active.tools |= {tool.name: tool for tool in request.tools if isinstance(tool, BaseTool)}
    offered = [_make_handoff_tool(name, description) for name, description in turn.handoffs.items()]

    async def call() -> ModelReply:
        active.streams_text = True
        try:
            response = await handler(request.override(tools=[*request.tools, *offered]))
        finally:
            active.streams_text = False
        messages: list[BaseMessage] = response.result
        data = {"messages": messages_to_dict(messages), "structured": response.structured_response}
        return ModelReply(data, text_in(messages), _tool_calls(messages, active), usage_of(messages))

    try:
        recorded = await turn.model(call, within="")
    except Interrupted:
        if turn.handoff is not None and turn.last_reply is not None:
            reply = messages_from_dict(turn.last_reply.data["messages"])
            results = [
                ToolMessage("The conversation was handed over.", name=call.name, tool_call_id=call.id)
                for call in turn.last_reply.calls
            ]
            active.handoff_messages = [*request.state["messages"], *reply, *results]
        raise
    result: list[Any] = messages_from_dict(recorded.data["messages"])
    return ModelResponse(result=result, structured_response=recorded.data["structured"])


async def _tool(active: ActiveTurn, request: ToolCallRequest, handler: Any) -> ToolMessage | Command[Any]:
    request_call = request.tool_call
    call = ToolCall(request_call["id"] or "", request_call["name"], request_call["args"])

    async def run(arguments: dict[str, Any]) -> Any:
        # The tool is one step: an agent that it calls must not make steps of this turn.
        token = ACTIVE_TURN.set(None)
        try:
            result = await handler(request.override(tool_call={**request_call, "args": arguments}))
        finally:
            ACTIVE_TURN.reset(token)
        return _data(result)

    # Listed as failed until it has succeeded, so that an error in between leaves it on the list.
    active.failed_tools[call.id] = call.name
    result = await active.turn.tool(call, run)
    del active.failed_tools[call.id]
    return _result(result, call)


def _check_failures(active: ActiveTurn) -> None:
    """Raise RunError if another middleware has turned the failure of a tool into a result."""
    # A failure is not stored, so the tool would be called again when the turn is taken again.
    if active.failed_tools:
        raise RunError(
            f"the tool {next(iter(active.failed_tools.values()))!r} of {active.turn.executor_id!r} in run "
            f"{active.turn.run_id!r} failed, and a middleware listed before StepwellMiddleware turned the failure into "
            f"a result; list that middleware after StepwellMiddleware, so that the result is stored",
            run_id=active.turn.run_id,
        )


def _tool_calls(messages: list[BaseMessage], active: ActiveTurn) -> list[ToolCall]:
    calls = [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    called = [active.tools[call["name"]] for call in calls if call["name"] in active.tools]
    about = {tool.name: (tool.description, parameters_of(tool)) for tool in called}
    return [
        ToolCall(call["id"] or "", call["name"], call["args"], False, *about.get(call["name"], (None, {})))
        for call in calls
    ]


def _make_handoff_tool(name: str, description: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _data(result: ToolMessage | Command[Any]) -> Any:
    """Return a tool's result as data: its text if that says it all, else the message or the command."""
    if isinstance(result, Command):
        return {"command": list(_SERDE.dumps_typed(result))}
    # A message with an artifact, a status or other extras is more than its text.
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
