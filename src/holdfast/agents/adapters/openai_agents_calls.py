"""Models and tools of the OpenAI Agents SDK that are called through a turn."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agents.items import TResponseStreamEvent
from agents.tool import get_function_tool_origin, invoke_function_tool
from agents.tool_context import ToolContext
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseUsage,
)
from openai.types.responses.response_prompt_param import ResponsePromptParam
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from agents import Agent as SDKAgent
from agents import (
    AgentOutputSchemaBase,
    FunctionTool,
    Handoff,
    Model,
    ModelBehaviorError,
    ModelProvider,
    ModelResponse,
    ModelRetryAdvice,
    ModelRetryAdviceRequest,
    ModelSettings,
    ModelTracing,
    RunContextWrapper,
    Tool,
    ToolOriginType,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    TResponseInputItem,
    Usage,
)

from ...core.errors import HoldfastError
from ..asking import ToolApprovalResponse
from ..replies import ModelReply, ToolCall
from ..turn import RunTool, Turn
from ..values import Usage as Used
from ..values import total

_OUTPUT: TypeAdapter[list[ResponseOutputItem]] = TypeAdapter(list[ResponseOutputItem])
_USAGE: TypeAdapter[Usage] = TypeAdapter(Usage)


class Broken(BaseException):
    """A promise of Holdfast cannot be kept. Not an Exception: the SDK would tell the model of it, and carry on."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(eq=False)
class Steps:
    """What the copies of a turn have in common."""

    turn: Turn
    calls: dict[str, ToolCall] = field(default_factory=dict)  # that models wanted in this turn, by id
    asked: list[Any] = field(default_factory=list)  # what the model was asked last
    decided: dict[str, ToolApprovalResponse] = field(default_factory=dict)  # about calls that the SDK held back
    paused: dict[str, dict[str, Any]] = field(default_factory=dict)  # calls in whose middle the SDK had to wait
    used: dict[str, Used] = field(default_factory=dict)  # by the part of the turn

    def count(self, part: str, used: Used) -> None:
        self.used[part] = self.used.get(part, Used()) + used

    async def used_in(self, part: str) -> Used:
        """What was used up in a part of the turn, and in the parts of that; once it is over, it stays the same."""

        async def used() -> Used:
            return total(one for at, one in self.used.items() if f"{at}/".startswith(f"{part}/"))

        found: Used = await self.turn.step(f"used in {part}", used)
        return found

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        """What is called in this block belongs to a part of the turn: the turn itself, or an agent used as a tool."""
        token = _PLACE.set((self, part))
        try:
            yield
        finally:
            _PLACE.reset(token)


_PLACE: ContextVar[tuple[Steps, str] | None] = ContextVar("holdfast_openai_agents_place", default=None)
"""Where we are; None outside of turns, and within a tool, whose call is one step whatever it does."""


@contextmanager
def _outside() -> Iterator[None]:
    token = _PLACE.set(None)
    try:
        yield
    finally:
        _PLACE.reset(token)


class StepProvider(ModelProvider):
    """For agents that name their models."""

    def __init__(self, provider: ModelProvider, steps: Steps) -> None:
        self._provider, self._steps = provider, steps

    def get_model(self, model_name: str | None) -> Model:
        return StepModel(self._provider.get_model(model_name), self._steps)

    async def aclose(self) -> None:
        await self._provider.aclose()


class StepModel(Model):
    """Each request is a call of the model through the turn; what the model says is told meanwhile."""

    def __init__(self, model: Model, steps: Steps) -> None:
        self._model, self._steps = model, steps

    async def close(self) -> None:
        await self._model.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        return self._model.get_retry_advice(request)

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> ModelResponse:
        place = _PLACE.get()
        known = {"previous_response_id": previous_response_id, "conversation_id": conversation_id, "prompt": prompt}
        given = (system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        if place is None:
            return await self._model.get_response(*given, **known)  # type: ignore[arg-type]
        part = place[1]
        if not part:
            self._steps.asked = _items(input)

        async def call() -> ModelReply:
            response = await self._request(given, known, told=not part)
            return _reply(response, _wanted(response, tools, handoffs, part), told=not part)

        try:
            reply = await self._steps.turn.model(call, within=part)
        except HoldfastError as error:
            raise Broken(error) from error
        self._steps.count(part, reply.usage)
        self._steps.calls |= {call.id: call for call in reply.calls}
        return _response(reply.data)

    async def stream_response(self, *given: Any, **known: Any) -> AsyncIterator[TResponseStreamEvent]:
        """For agents used as tools whose events somebody listens to: they hear of the whole reply once it is there."""
        response = await self.get_response(*given, **known)
        yield ResponseCompletedEvent(type="response.completed", response=_as_streamed(response), sequence_number=0)

    async def _request(self, given: tuple[Any, ...], known: dict[str, Any], *, told: bool) -> ModelResponse:
        if told and self._steps.turn.streaming:
            try:
                return await self._told(self._model.stream_response(*given, **known))
            except NotImplementedError:
                pass  # the model can only speak at once
        return await self._model.get_response(*given, **known)

    async def _told(self, events: AsyncIterator[TResponseStreamEvent]) -> ModelResponse:
        done: Response | None = None
        items: list[ResponseOutputItem] = []
        async for event in events:
            match event.type:
                case "response.output_text.delta":
                    self._steps.turn.delta(event.delta)
                case "response.output_item.done":
                    items.append(event.item)
                case "response.completed":
                    done = event.response
                case "response.incomplete" | "response.failed" | "error":
                    raise ModelBehaviorError(f"the model broke off: {event.model_dump_json(exclude_none=True):.500}")
        if done is None:
            raise ModelBehaviorError("the model stopped without an end of its reply")
        return ModelResponse(done.output or items, _usage(done.usage), done.id)


def stepped(tool: Tool, steps: Steps) -> Tool:
    """The tool, called through the turn, which also asks about it if it always needs approval."""
    if not isinstance(tool, FunctionTool):
        return tool
    made = copy.copy(tool)
    origin = get_function_tool_origin(tool)
    is_agent = origin is not None and origin.type is ToolOriginType.AGENT_AS_TOOL
    made.on_invoke_tool = _InvokeAgent(tool, steps) if is_agent else _Invoke(tool, steps)
    made.timeout_seconds = None  # it is kept inside the step, so that a call that took too long is not made again
    if tool.needs_approval is True:
        made.needs_approval = False
    return made


class _Invoke:
    """How the copy of a tool is called."""

    def __init__(self, tool: FunctionTool, steps: Steps) -> None:
        self.tool, self._steps = tool, steps

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        place = _PLACE.get()
        part = place[1] if place is not None else ""
        call = self._steps.calls.get(_id(part, context.tool_call_id))
        if place is None or call is None:
            return await invoke_function_tool(function_tool=self.tool, context=context, arguments=arguments)
        decided = self._steps.decided.get(context.tool_call_id)
        if decided is not None and decided.decision == "answer":
            return decided.result
        wanted = call.arguments
        if decided is not None and decided.arguments is not None:
            call = replace(call, arguments=decided.arguments)

        async def run(now: dict[str, Any]) -> Any:
            return await self._run(context, arguments if now == wanted else json.dumps(now))

        try:
            result = await self._once(call, run)
        except HoldfastError as error:
            raise Broken(error) from error
        self._steps.count(part, Used(tool_calls=1))
        return result

    async def _once(self, call: ToolCall, run: RunTool) -> Any:
        return await self._steps.turn.tool(call, run)

    async def _run(self, context: ToolContext[Any], arguments: str) -> Any:
        with _outside():
            value = await invoke_function_tool(function_tool=self.tool, context=context, arguments=arguments)
        return _data(value, self.tool)


class _Paused(Exception):
    """An agent that is used as a tool waits for an approval: the call has no result yet."""


class _InvokeAgent(_Invoke):
    """How an agent that is used as a tool is called. What it does are steps of their own."""

    async def _once(self, call: ToolCall, run: RunTool) -> Any:
        """If it came to its end in one go, all of it is recalled as one, with what was used up. If the SDK had to wait
        in the middle, it is made again each time, and waits at the same place."""
        steps, went = self._steps, False

        async def go(now: dict[str, Any]) -> Any:
            nonlocal went
            went = True
            with steps.within(call.id):
                value = await run(now)
            if value is None:
                steps.paused[call.id] = now
                raise _Paused
            await steps.used_in(call.id)
            return value

        try:
            if call.id in steps.paused:
                result = await go(steps.paused[call.id])
                steps.turn.usage += Used(tool_calls=1)
                return result
            result = await steps.turn.tool(call, go)
        except _Paused:
            return None
        if not went:
            used = await steps.used_in(call.id)
            steps.count(call.id, used)
            steps.turn.usage += used
        return result

    async def _run(self, context: ToolContext[Any], arguments: str) -> Any:
        agent: SDKAgent[Any] = self.tool._agent_instance  # the SDK has no public way to it, nor to its tools
        _watch_tools(agent)
        context = _with_model(context, agent, self._steps)
        value = await invoke_function_tool(function_tool=self.tool, context=context, arguments=arguments)
        return _data(value, self.tool)


def _with_model(context: ToolContext[Any], agent: SDKAgent[Any], steps: Steps) -> ToolContext[Any]:
    """What an agent used as a tool is called with, so that the model it brings is called through the turn.

    A model in the settings of a run holds for everybody, so not if the agent can hand over to others.
    """
    config = context.run_config
    if config is None or config.model is not None or agent.handoffs or not isinstance(agent.model, Model):
        return context
    made = copy.copy(context)
    made.run_config = replace(config, model=StepModel(agent.model, steps))
    return made


def _watch_tools(agent: SDKAgent[Any]) -> None:
    """Let the tools of an agent used as a tool be called through the turn, if there is one: otherwise nothing changes.

    The agent is inside a function that the SDK made, where no copy can be put in its place.
    """
    if "get_all_tools" not in vars(agent):
        agent.get_all_tools = partial(_tools_here, agent.get_all_tools)  # type: ignore[method-assign]


async def _tools_here(plain: Callable[..., Any], context: RunContextWrapper[Any]) -> list[Tool]:
    tools: list[Tool] = await plain(context)
    place = _PLACE.get()
    return tools if place is None else [stepped(tool, place[0]) for tool in tools]


def _id(part: str, call_id: str) -> str:
    return f"{part}/{call_id}" if part else call_id


def _items(input: str | list[TResponseInputItem]) -> list[Any]:
    items: list[Any] = to_jsonable_python([{"role": "user", "content": input}] if isinstance(input, str) else input)
    return items


def _wanted(response: ModelResponse, tools: list[Tool], handoffs: list[Handoff[Any, Any]], part: str) -> list[ToolCall]:
    """The tool calls of a reply; handoffs within the SDK are its own affair."""
    known = {tool.name: tool for tool in tools if isinstance(tool, FunctionTool)}
    theirs = {handoff.tool_name for handoff in handoffs}
    wanted = []
    for item in response.output:
        if isinstance(item, ResponseFunctionToolCall) and item.name not in theirs:
            call = ToolCall(_id(part, item.call_id), item.name, _arguments(item.arguments))
            if (tool := known.get(item.name)) is not None:
                invoke = tool.on_invoke_tool
                gated = isinstance(invoke, _Invoke) and invoke.tool.needs_approval is True
                about: dict[str, Any] = {"description": tool.description, "parameters": tool.params_json_schema}
                call = replace(call, needs_approval=gated, **about)
            wanted.append(call)
    return wanted


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"unreadable": text}  # the tool itself refuses it


def _reply(response: ModelResponse, calls: list[ToolCall], *, told: bool) -> ModelReply:
    data = {
        "output": [item.model_dump(mode="json", exclude_unset=True) for item in response.output],
        "usage": _USAGE.dump_python(response.usage, mode="json"),
        "response_id": response.response_id,
        "request_id": response.request_id,
    }
    texts = [part.text for part in _parts(response) if isinstance(part, ResponseOutputText)] if told else []
    used = Used(response.usage.input_tokens, response.usage.output_tokens, calls=1)
    return ModelReply(data, "".join(texts), calls, used)


def _parts(response: ModelResponse) -> Iterator[Any]:
    for item in response.output:
        if isinstance(item, ResponseOutputMessage):
            yield from item.content


def _response(data: dict[str, Any]) -> ModelResponse:
    output, usage = _OUTPUT.validate_python(data["output"]), _USAGE.validate_python(data["usage"])
    return ModelResponse(output, usage, data["response_id"], data["request_id"])


def _usage(used: ResponseUsage | None) -> Usage:
    if used is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.total_tokens,
        input_tokens_details=used.input_tokens_details,
        output_tokens_details=used.output_tokens_details,
    )


def _as_streamed(response: ModelResponse) -> Response:
    used = {name: getattr(response.usage, name) for name in ResponseUsage.model_fields}
    return Response(
        id=response.response_id or "",
        created_at=0,
        model="",
        object="response",
        output=response.output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=ResponseUsage(**used),
    )


def _data(value: Any, tool: FunctionTool) -> Any:
    """What a tool gave, as data that the SDK makes the same of; of what it does not know it makes text."""
    if tool.output_json_schema is not None:
        return to_jsonable_python(value)
    if isinstance(value, ToolOutputText | ToolOutputImage | ToolOutputFileContent):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, list):
        return [_data(one, tool) for one in value]
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value
