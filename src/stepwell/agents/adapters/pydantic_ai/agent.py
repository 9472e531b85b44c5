"""Agents of pydantic-ai: a capability, added to each run, makes calls of the model and of tools steps.

The agent itself is not changed. Calls that the library defers, because they need approval or are made
outside the run, are requested after the other calls of the reply; the library then continues with the
responses.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import RunContext, ToolsetTool, WrapperToolset, capture_run_messages
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ToolReturn,
    ToolReturnContent,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDefinition, ToolDenied
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset
from pydantic_core import to_json, to_jsonable_python

from stepwell.agents.messages import Answer, Message, ModelReply, ToolCall, Usage, as_heard
from stepwell.agents.requests import ToolApprovalRequest, ToolApprovalResponse, denial
from stepwell.agents.turn import Interrupted, Turn, handoff_answer

_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_CONTENT: TypeAdapter[Any] = TypeAdapter(ToolReturnContent)
_RETURN: TypeAdapter[ToolReturn] = TypeAdapter(ToolReturn)


class PydanticAIAgent:
    """An agent of pydantic-ai, with its dependencies."""

    def __init__(self, agent: AbstractAgent[Any, Any], *, deps: Any = None, name: str | None = None) -> None:
        self.agent, self.deps = agent, deps
        self.name, self.description = name or agent.name, agent.description

    async def take_turn(self, turn: Turn) -> Answer:
        before = ModelMessagesTypeAdapter.validate_python(turn.history)
        parts = [_part(message) for message in turn.messages]
        # The library adds the system prompt only to a run without any message history, and ours always has one.
        if not turn.history:
            prompt = turn.messages[-1].text if turn.messages else None
            parts = [*await self.agent.system_prompt_parts(deps=self.deps, prompt=prompt), *parts]
        conversation = f"{turn.run_id}/{turn.executor_id}"
        # New in each turn, because messages of the turn are found by it; stable when it is taken again.
        run_id = f"{conversation}/{len(before)}"
        offered = [ToolDefinition(name=name, description=text) for name, text in turn.handoffs.items()]
        with capture_run_messages() as captured:
            try:
                result = await self.agent.run(
                    message_history=[*before, ModelRequest(parts)],
                    deps=self.deps,
                    capabilities=[_Steps(turn)],
                    toolsets=[ExternalToolset(offered)] if offered else None,
                    conversation_id=conversation,
                    run_id=run_id,
                    infer_name=False,
                    output_type=self._output_type(turn.rules.answer_type),
                )
            except Interrupted:
                if turn.handoff is None:
                    raise
                return _finish_handoff(turn, _of_run(captured, run_id))
        history = _data(_of_run(result.all_messages(), run_id))
        if isinstance(result.output, str):
            return Answer([Message("assistant", result.output)], history)
        value = to_jsonable_python(result.output) if turn.rules.answer_type is not None else result.output
        return Answer([Message("assistant", to_json(result.output).decode())], history, value=value)

    def _output_type(self, answer_type: Any) -> Any:
        """Return what the run may answer: what its agent says, or a decision or text if that is asked for."""
        return [answer_type, str] if answer_type is not None and self.agent.output_type is str else None

    def __repr__(self) -> str:
        return f"<PydanticAIAgent {self.name!r}>"


ADAPTED = (AbstractAgent, PydanticAIAgent)


@dataclass
class _Steps(AbstractCapability[Any]):
    """The capability that is added to a run of the library."""

    turn: Turn
    calls: dict[str, ToolCall] = field(default_factory=dict)  # of the latest reply, by id
    decisions: dict[str, ToolApprovalResponse] = field(default_factory=dict)  # on deferred calls, by id

    def get_wrapper_model(self, model: Model) -> Model:
        return _StepModel(model, self)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _StepToolset(toolset, self)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        needing_approval, external = (
            {part.tool_call_id for part in parts} for parts in (requests.approvals, requests.calls)
        )
        results = DeferredToolResults()
        # In the order of the reply, not of the library's lists, so that requests have stable places.
        for call, reply in await self._approvals([call for call in self.calls.values() if call.id in needing_approval]):
            if reply.decision == "deny":
                results.approvals[call.id] = ToolDenied(denial(reply.reason))
            else:
                # Edited arguments and supplied results are applied when the tool is called.
                results.approvals[call.id] = ToolApproved()
                self.decisions[call.id] = reply
        for call in [call for call in self.calls.values() if call.id in external]:
            data = {"tool": call.name, "arguments": call.arguments, "tool_call_id": call.id}
            results.calls[call.id] = await self.turn.ask(f"tool {call.name}", data, Any)
        return results

    async def _approvals(self, deferred: list[ToolCall]) -> list[tuple[ToolCall, ToolApprovalResponse]]:
        """Return people's decisions about calls that the library defers."""
        # Calls of tools in the turn's rules were approved before the library saw them.
        rules = self.turn.rules.approve
        approved = [(call, ToolApprovalResponse("approve")) for call in deferred if call.name in rules]
        undecided = [call for call in deferred if call.name not in rules]
        if not undecided:
            return approved
        agent = self.turn.executor_id
        requests = [
            ToolApprovalRequest(agent, call.name, call.arguments, call.id, call.description, call.parameters)
            for call in undecided
        ]
        return [*approved, *zip(undecided, await self.turn.approvals(requests), strict=True)]


class _StepModel(WrapperModel):
    """Makes each request a model call of the turn, and emits the text while it arrives."""

    def __init__(self, wrapped: Model, steps: _Steps) -> None:
        super().__init__(wrapped)
        self._steps = steps

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        async def call() -> ModelReply:
            response = await self._request(messages, model_settings, model_request_parameters)
            return _reply(response, model_request_parameters)

        reply = await self._steps.turn.model(call, within="")
        self._steps.calls = {call.id: call for call in reply.calls}
        return _RESPONSE.validate_python(reply.data)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Return the complete reply as a stream, for agents with an event stream handler."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)

    async def _request(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        if not self._steps.turn.streaming or not _can_stream(self.wrapped):
            return await self.wrapped.request(messages, settings, parameters)
        async with self.wrapped.request_stream(messages, settings, parameters) as stream:
            async for event in stream:
                match event:
                    case (
                        PartStartEvent(part=TextPart(content=text))
                        | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                    ):
                        self._steps.turn.delta(text)
            return stream.get()


def _reply(response: ModelResponse, parameters: ModelRequestParameters) -> ModelReply:
    tools = {tool.name: tool for tool in parameters.function_tools}
    # "Calls" of output tools are how the model gives its answer; there is no tool to run.
    output = {tool.name for tool in parameters.output_tools}
    calls = []
    for part in response.tool_calls:
        if part.tool_name not in output:
            tool = tools.get(part.tool_name)
            about = (tool.description, tool.parameters_json_schema) if tool is not None else (None, {})
            calls.append(ToolCall(part.tool_call_id, part.tool_name, part.args_as_dict(), False, *about))
    usage = Usage(response.usage.input_tokens, response.usage.output_tokens, calls=1)
    return ModelReply(_RESPONSE.dump_python(response, mode="json"), response.text or "", calls, usage)


@dataclass
class _StepToolset(WrapperToolset[Any]):
    """Makes each tool call a tool call of the turn."""

    steps: _Steps

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        id = ctx.tool_call_id or name
        # A call that is not in the reply is made by another tool.
        call = self.steps.calls.get(id) or ToolCall(id, name, to_jsonable_python(tool_args))
        requested, decision = call.arguments, self.steps.decisions.pop(call.id, None)
        if decision is not None and decision.decision == "answer":
            return _as_return_value(decision.result)
        if decision is not None and decision.arguments is not None:
            call = replace(call, arguments=decision.arguments)

        async def run(arguments: dict[str, Any]) -> Any:
            try:
                checked = tool_args if arguments == requested else await _validate_arguments(arguments, ctx, tool)
                value = await self.wrapped.call_tool(name, checked, ctx, tool)
            except ToolFailed as failure:
                return ToolFailure(failure.message)
            if isinstance(value, ToolReturn):
                return RichReturn(_RETURN.dump_python(value, mode="json"))
            return _CONTENT.dump_python(value, mode="json")

        return _as_return_value(await self.steps.turn.tool(call, run, errors=(ModelRetry,), as_error=ModelRetry))


@dataclass(frozen=True, slots=True)
class RichReturn:
    """A `ToolReturn` as data: a result with content or metadata besides."""

    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """A tool failed permanently, and the model is to see it."""

    message: str


def _as_return_value(data: Any) -> Any:
    match data:
        case ToolFailure(message=message):
            raise ToolFailed(message)
        case RichReturn(data=data):
            return _RETURN.validate_python(data)
    return _CONTENT.validate_python(data)


async def _validate_arguments(
    arguments: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
) -> dict[str, Any]:
    """Validate arguments that a person edited; the library has validated only those of the model."""
    try:
        checked: dict[str, Any] = tool.args_validator.validate_json(to_json(arguments), context=ctx.validation_context)
    except ValidationError as problem:
        raise ToolFailed(f"A person edited the arguments, and they are not valid for the tool: {problem}") from problem
    if tool.args_validator_func is not None:
        outcome = tool.args_validator_func(ctx, **checked)
        if inspect.isawaitable(outcome):
            await outcome
    return checked


def _can_stream(model: Model) -> bool:
    # A model that cannot stream fails when asked to, and there is no flag that says so.
    while isinstance(model, WrapperModel):
        model = model.wrapped
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return type(model).request_stream is not Model.request_stream


def _part(message: Message) -> ModelRequestPart:
    role, text = as_heard(message)
    return SystemPromptPart(text) if role == "system" else UserPromptPart(text)


def _of_run(messages: Sequence[ModelMessage], run_id: str) -> list[ModelMessage]:
    return [message for message in messages if message.run_id == run_id]


def _data(messages: list[ModelMessage]) -> list[Any]:
    """Return messages as data, without timestamps, which would differ each time a turn is taken."""
    data: list[Any] = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    for message in data:
        for dated in (message, *message["parts"]):
            dated.pop("timestamp", None)
    return data


def _finish_handoff(turn: Turn, messages: list[ModelMessage]) -> Answer:
    """Return the answer of an agent whose model called a handoff tool."""
    assert turn.last_reply is not None
    # Each call gets a result: services reject a history in which a call has none.
    results: list[ModelRequestPart] = [
        ToolReturnPart(
            call.name, f"Handed over to {call.name}." if call.name == turn.handoff else "Not called.", call.id
        )
        for call in turn.last_reply.calls
    ]
    ending: list[ModelMessage] = [_RESPONSE.validate_python(turn.last_reply.data), ModelRequest(results)]
    return handoff_answer(turn, _data([*messages, *ending]))
