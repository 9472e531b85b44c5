"""Model wrappers for the OpenAI Agents SDK that make each request a model call of the turn.

Copied agents, models and tools of a turn share its `Steps`, and a context variable says which part of
the turn is under way.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

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
    Tool,
    TResponseInputItem,
    Usage,
)
from agents.items import TResponseStreamEvent
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

from stepwell.agents.messages import ModelReply, ToolCall, total
from stepwell.agents.messages import Usage as AgentUsage
from stepwell.agents.requests import ToolApprovalResponse
from stepwell.agents.turn import Turn
from stepwell.errors import StepwellError

_OUTPUT: TypeAdapter[list[ResponseOutputItem]] = TypeAdapter(list[ResponseOutputItem])
_USAGE: TypeAdapter[Usage] = TypeAdapter(Usage)


class TurnAborted(BaseException):
    """Carries an error of Stepwell through the SDK.

    It is not an Exception, because the SDK would report that to the model and continue.
    """

    def __init__(self, error: StepwellError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(eq=False)
class Steps:
    """The shared state of a turn."""

    turn: Turn
    calls: dict[str, ToolCall] = field(default_factory=dict)  # requested by models in this turn, by id
    last_input: list[Any] = field(default_factory=list)  # of the latest model call
    decisions: dict[str, ToolApprovalResponse] = field(default_factory=dict)  # on calls the SDK held back
    # Arguments of calls of agents used as tools that wait for an approval inside.
    paused: dict[str, dict[str, Any]] = field(default_factory=dict)
    usage: dict[str, AgentUsage] = field(default_factory=dict)  # by the part of the turn

    def add_usage(self, part: str, usage: AgentUsage) -> None:
        self.usage[part] = self.usage.get(part, AgentUsage()) + usage

    async def usage_within(self, part: str) -> AgentUsage:
        """Return the usage of a part of the turn and of the parts inside it, as of the first call."""
        # A step, so that the usage of a part that is recalled as a whole is recalled with it.

        async def add_up() -> AgentUsage:
            return total(usage for at, usage in self.usage.items() if f"{at}/".startswith(f"{part}/"))

        usage: AgentUsage = await self.turn.step(f"used in {part}", add_up, within="")
        return usage


PLACE: ContextVar[tuple[Steps, str] | None] = ContextVar("stepwell_openai_agents_place", default=None)
"""The turn and its part under way; None outside turns, and inside a tool, whose call is one step."""


@contextmanager
def at_place(steps: Steps | None, part: str = "") -> Iterator[None]:
    """Make the calls in this block part of the turn itself (""), or of an agent used as a tool.

    Without `steps`, they stay out of the turn.
    """
    token = PLACE.set(None if steps is None else (steps, part))
    try:
        yield
    finally:
        PLACE.reset(token)


class Invoker:
    """The `on_invoke_tool` of a copied tool."""

    def __init__(self, tool: FunctionTool, steps: Steps) -> None:
        self.tool, self.steps = tool, steps

    @property
    def always_asks(self) -> bool:
        """Whether every call needs approval, as opposed to those that a function picks."""
        return self.tool.needs_approval is True


def id_in(part: str, call_id: str) -> str:
    """Return a call id that is unique in the whole turn, not only in its part."""
    return f"{part}/{call_id}" if part else call_id


class StepProvider(ModelProvider):
    """Wraps the models of agents that refer to them by name."""

    def __init__(self, provider: ModelProvider, steps: Steps) -> None:
        self._provider, self._steps = provider, steps

    def get_model(self, model_name: str | None) -> Model:
        return StepModel(self._provider.get_model(model_name), self._steps)

    async def aclose(self) -> None:
        await self._provider.aclose()


class StepModel(Model):
    """Makes each request a model call of the turn, and emits the text while it arrives."""

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
        place = PLACE.get()
        options = {"previous_response_id": previous_response_id, "conversation_id": conversation_id, "prompt": prompt}
        arguments = (system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        # Outside the turn, for instance inside a tool, whose call is one step as a whole.
        if place is None:
            return await self._model.get_response(*arguments, **options)  # type: ignore[arg-type]
        # A part other than the turn itself is an agent used as a tool: its text is not the answer.
        part = place[1]
        if not part:
            items = [{"role": "user", "content": input}] if isinstance(input, str) else input
            self._steps.last_input = to_jsonable_python(items)

        async def call() -> ModelReply:
            response = await self._request(arguments, options, emit=not part)
            return _reply(response, _tool_calls(response, tools, handoffs, part), emit=not part)

        try:
            reply = await self._steps.turn.model(call, within=part)
        except StepwellError as error:
            raise TurnAborted(error) from error
        self._steps.add_usage(part, reply.usage)
        self._steps.calls |= {call.id: call for call in reply.calls}
        return _response(reply.data)

    async def stream_response(self, *arguments: Any, **options: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Return the complete reply as one event, for agents used as tools with an `on_stream` callback."""
        response = await self.get_response(*arguments, **options)
        yield ResponseCompletedEvent(type="response.completed", response=_as_response(response), sequence_number=0)

    async def _request(self, arguments: tuple[Any, ...], options: dict[str, Any], *, emit: bool) -> ModelResponse:
        if emit and self._steps.turn.streaming:
            try:
                return await self._read_stream(self._model.stream_response(*_with_usage(arguments), **options))
            except NotImplementedError:
                pass  # the model does not support streaming
        return await self._model.get_response(*arguments, **options)

    async def _read_stream(self, events: AsyncIterator[TResponseStreamEvent]) -> ModelResponse:
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
                    raise ModelBehaviorError(f"the reply failed: {event.model_dump_json(exclude_none=True):.500}")
        if done is None:
            raise ModelBehaviorError("the stream of the model ended before its reply was complete")
        return ModelResponse(done.output or items, _usage(done.usage), done.id)


def _with_usage(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with `include_usage` set: some services omit usage from streams otherwise."""
    settings: ModelSettings = arguments[2]
    return (*arguments[:2], replace(settings, include_usage=settings.include_usage is not False), *arguments[3:])


def _tool_calls(
    response: ModelResponse, tools: list[Tool], handoffs: list[Handoff[Any, Any]], part: str
) -> list[ToolCall]:
    """Return the tool calls of a reply, without handoffs inside the SDK, which it handles itself."""
    by_name = {tool.name: tool for tool in tools if isinstance(tool, FunctionTool)}
    handoff_names = {handoff.tool_name for handoff in handoffs}
    calls = []
    for item in response.output:
        if isinstance(item, ResponseFunctionToolCall) and item.name not in handoff_names:
            call = ToolCall(id_in(part, item.call_id), item.name, arguments_of(item.arguments))
            if (tool := by_name.get(item.name)) is not None:
                invoke = tool.on_invoke_tool
                gated = isinstance(invoke, Invoker) and invoke.always_asks
                about: dict[str, Any] = {"description": tool.description, "parameters": tool.params_json_schema}
                call = replace(call, needs_approval=gated, **about)
            calls.append(call)
    return calls


def arguments_of(text: str) -> dict[str, Any]:
    """Parse the arguments of a call. Invalid JSON is kept, for the tool itself to refuse."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = None
    return arguments if isinstance(arguments, dict) else {"unreadable": text}


def _reply(response: ModelResponse, calls: list[ToolCall], *, emit: bool) -> ModelReply:
    data = {
        "output": [item.model_dump(mode="json", exclude_unset=True) for item in response.output],
        "usage": _USAGE.dump_python(response.usage, mode="json"),
        "response_id": response.response_id,
        "request_id": response.request_id,
    }
    messages = [item for item in response.output if emit and isinstance(item, ResponseOutputMessage)]
    strings = [part.text for item in messages for part in item.content if isinstance(part, ResponseOutputText)]
    usage = AgentUsage(response.usage.input_tokens, response.usage.output_tokens, calls=1)
    return ModelReply(data, "".join(strings), calls, usage)


def _response(data: dict[str, Any]) -> ModelResponse:
    output, usage = _OUTPUT.validate_python(data["output"]), _USAGE.validate_python(data["usage"])
    return ModelResponse(output, usage, data["response_id"], data["request_id"])


def _usage(usage: ResponseUsage | None) -> Usage:
    if usage is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_details=usage.input_tokens_details,
        output_tokens_details=usage.output_tokens_details,
    )


def _as_response(response: ModelResponse) -> Response:
    usage = {name: getattr(response.usage, name) for name in ResponseUsage.model_fields}
    return Response(
        id=response.response_id or "",
        created_at=0,
        model="",
        object="response",
        output=response.output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=ResponseUsage(**usage),
    )
