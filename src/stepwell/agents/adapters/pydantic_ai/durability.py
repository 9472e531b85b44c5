"""Stepwell as a durability engine of pydantic-ai, on the interface that the library publishes for engines.

Each request to the model, call of a tool or an MCP server, and event for a handler is a step of the durable function
or handler that runs the agent. The library's own loop runs again after a crash, and gets the stored results.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, TypedDict, cast

from pydantic import TypeAdapter
from pydantic_ai.agent import Agent, EventStreamHandler
from pydantic_ai.capabilities.abstract import WrapModelRequestHandler, WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityCodec,
    DurabilityEngineSpec,
    DurableOperationId,
    JournalCallableOperationBackend,
    ModelCancelSuspendedResponseId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.toolsets import ToolsetTool

from stepwell.agents.adapters.pydantic_ai.deferred_calls import ask_people
from stepwell.agents.adapters.pydantic_ai.recalled_usage import check_library, forget_usage
from stepwell.agents.messages import CURRENT_TOOL_CALL, AgentResponseUpdate, CurrentToolCall
from stepwell.engine.handler.internal_context import InternalContext, find_current
from stepwell.graph.retry import RetryPolicy
from stepwell.graph.step_options import StepOptions
from stepwell.storage import clock

KEY = "stepwell"
"""The key of a tool's metadata that holds its `StepConfig`, or False for a tool that must not be a step."""


class StepConfig(TypedDict, total=False):
    """How a step is executed: see `StepOptions`."""

    retry: RetryPolicy
    timeout: float


_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)


class _CompactCodec(DurabilityCodec):
    """Writes values as JSON; of a response only the fields that are set, because most are not."""

    def dump(self, tp: Any, value: Any) -> Any:
        if isinstance(value, ModelResponse):
            return _RESPONSE.dump_python(value, mode="json", exclude_none=True)
        return JSON_CODEC.dump(tp, value)

    def load(self, tp: Any, payload: Any) -> Any:
        return JSON_CODEC.load(tp, payload)


class _ModelRequest:
    """A request to the model that is under way, as its step and those around it know it."""

    def __init__(self, number: int) -> None:
        # Whether text of it was emitted, and whether it was made now and not recalled.
        self.number, self.emitted, self.made = number, False, False


_CURRENT_REQUEST: ContextVar[_ModelRequest | None] = ContextVar("stepwell_model_request", default=None)
# Whether the agent's run was stopped, not failed: by a long wait, a shutdown, a time limit. The library cancels in a
# task of its own, which has a copy of this.
_IS_STOPPED: ContextVar[bool] = ContextVar("stepwell_agent_is_stopped", default=False)


@contextmanager
def _noting_stop() -> Iterator[None]:
    try:
        yield
    except Exception:
        raise
    except BaseException:
        _IS_STOPPED.set(True)
        raise


@dataclass(init=False, kw_only=True)
class StepwellDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes an agent durable: `Agent("openai:...", name="clerk", capabilities=[StepwellDurability()])`.

    Inside a durable function or a handler of a graph, each model request, tool call and MCP call of
    `await agent.run(...)` is a step. Anywhere else, and inside a step, the agent runs as if it were not there.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Stepwell",
        durable_unit_noun="step",
        durable_container_noun="durable function",
        codec=_CompactCodec(),
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        wrapped_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_config_key=KEY,
    )

    def __init__(
        self,
        *,
        name: str | None = None,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        emit_updates: bool = False,
        model: StepConfig | None = None,
        tools: StepConfig | None = None,
        events: StepConfig | None = None,
    ) -> None:
        """Create the capability; it finds the model, the name and the toolsets of its agent by itself.

        `name` replaces the name of the agent in the names of its steps. `models` are those that runs may switch to, by
        id. `event_stream_handler` gets the model's events while they arrive, and each other event in a step of its
        own. With `emit_updates` the text of the model is emitted as `update` events of the run, and withdrawn if the
        request fails. `model`, `tools` and `events` say how these steps are executed; a tool's metadata
        `{"stepwell": StepConfig(...)}` replaces `tools` for it, and `{"stepwell": False}` keeps it from being a step.
        """
        check_library()
        self._own_handler = event_stream_handler
        handler = _UpdateEmitter(event_stream_handler) if emit_updates else event_stream_handler
        super().__init__(models=models, event_stream_handler=handler, name=name)
        self._emits_updates = emit_updates
        # The requests whose responses were recalled, until the library has their usage.
        self._recalled: set[tuple[str | None, int]] = set()
        self._model, self._tools, self._events = model or {}, tools or {}, events or {}

    @property
    def in_durable_context(self) -> bool:
        return _find_context() is not None

    def get_durable_operation_backend(self) -> _StepBackend:
        config = RoleBasedOperationConfig[StepConfig](
            model=self._model,
            event=self._events,
            capability=self._tools,
            tool=self._tools,
            resolve_tool=self._resolve_tool,
        )
        return _StepBackend(
            agent_name=self.name,
            default_model_id=self.default_model_id,
            config=config,
            emits_updates=self._emits_updates,
            recalled=self._recalled,
        )

    def _resolve_tool(
        self, operation_id: DurableOperationId, tool: object | None, tool_name: str
    ) -> StepConfig | Literal[False]:
        metadata = tool.tool_def.metadata if isinstance(tool, ToolsetTool) else None
        config = (metadata or {}).get(KEY)
        if config is None or config is False:
            return self._tools if config is None else False
        if not isinstance(config, dict):
            raise UserError(f"the tool {tool_name!r} has the metadata {KEY!r}: {config!r}; it is a StepConfig or False")
        return cast("StepConfig", config)

    def get_default_run_id(self) -> str | None:
        ctx = _find_context()
        if ctx is None:
            return None
        # The same whenever the function is called again.
        branch = ctx.steps.branch()
        return f"{ctx.idempotency_key}:{branch.id}:{branch.count('agent run')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        ctx = _find_context()
        if ctx is None:
            return None
        # A resumed run keeps the deadline that it started with.
        return await ctx.step(f"{self.name}__run_start_time", _now)

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        context = _find_context()
        if context is None:
            return await super().wrap_run(ctx, handler=handler)

        async def sleep(seconds: float) -> None:
            with _noting_stop():
                await context.sleep(max(seconds, 0))

        _IS_STOPPED.set(False)
        with Agent.using_sleep(sleep):
            return await super().wrap_run(ctx, handler=handler)

    async def wrap_model_request(
        self, ctx: RunContext[AgentDepsT], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        place = (ctx.run_id, ctx.run_step)
        self._recalled.discard(place)
        response = await super().wrap_model_request(ctx, request_context=request_context, handler=handler)
        if place in self._recalled:
            forget_usage(request_context)
            self._recalled.discard(place)
        return response

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        context = _find_context()
        return None if context is None else await ask_people(context, self.name, requests)

    def wrap_run_event_stream(
        self, ctx: RunContext[AgentDepsT], *, stream: AsyncIterable[AgentStreamEvent]
    ) -> AsyncIterable[AgentStreamEvent]:
        # Updates are text of the model, and come from its steps; only a handler of the user gets the other events.
        return stream if self._own_handler is None else super().wrap_run_event_stream(ctx, stream=stream)


class _StepBackend(JournalCallableOperationBackend[StepConfig]):
    """Executes an operation of the library as a step of the handler that is being called."""

    def __init__(
        self,
        *,
        agent_name: str,
        default_model_id: str | None,
        config: RoleBasedOperationConfig[StepConfig],
        emits_updates: bool,
        recalled: set[tuple[str | None, int]],
    ) -> None:
        super().__init__(agent_name=agent_name, default_model_id=default_model_id, config=config)
        self._agent, self._emits_updates, self._recalled = agent_name, emits_updates, recalled

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: StepConfig,
    ) -> object:
        ctx = _find_context()
        if ctx is None:
            return await body()
        if threading.get_ident() != ctx.scope.thread:
            raise UserError(
                f"agent {self._agent!r} runs in a thread: make the function async, and await agent.run(...)"
            )
        options = StepOptions(name, **config)
        match operation_id:
            case ModelRequestId():
                with _noting_stop():
                    return await self._request_model(ctx, options, body, cache_key[-1])
            case ModelCancelSuspendedResponseId():
                # Not a step, because a repetition may not come to it. A job that a stopped function waits for is left
                # alone: the function asks for its result when it is called again.
                return None if _IS_STOPPED.get() else await body()
            case ToolsetCallToolId():
                return await ctx.step(options, _tool_call(ctx, body, cache_key))
        return await ctx.step(options, body)

    async def _request_model(
        self,
        ctx: InternalContext,
        options: StepOptions[Literal[False]],
        body: Callable[[], Awaitable[object]],
        run_context: object,
    ) -> object:
        request = _ModelRequest(ctx.steps.count("model request") + 1)

        async def make() -> object:
            request.made = True
            token = _CURRENT_REQUEST.set(request)
            try:
                return await body()
            except BaseException:
                # Watchers have seen text of a reply that will never be: retract it.
                if request.emitted:
                    ctx.emit_withdrawal(request.number)
                    request.emitted = False
                raise
            finally:
                _CURRENT_REQUEST.reset(token)

        response = await ctx.step(options, make)
        if request.made:
            return response
        if isinstance(run_context, RunContext):
            self._recalled.add((run_context.run_id, run_context.run_step))
        if self._emits_updates:
            text = "".join(part["content"] for part in _parts(response) if part.get("part_kind") == "text")
            ctx.emit_update(AgentResponseUpdate(text, ctx.executor_id, request.number))
        return response


def _parts(response: object) -> list[dict[str, Any]]:
    return response.get("parts", []) if isinstance(response, dict) else []


def _tool_call(
    ctx: InternalContext, body: Callable[[], Awaitable[object]], cache_key: tuple[object, ...]
) -> Callable[..., Awaitable[object]]:
    """Return a step that makes a tool call, which `current_tool_call` describes."""
    name, _, run_context, *_ = cache_key
    call_id = run_context.tool_call_id if isinstance(run_context, RunContext) else None

    async def call_tool(*, idempotency_key: str = "") -> object:
        current = CurrentToolCall(ctx.run_id, ctx.executor_id, str(name), call_id or "", idempotency_key)
        token = CURRENT_TOOL_CALL.set(current)
        try:
            return await body()
        finally:
            CURRENT_TOOL_CALL.reset(token)

    return call_tool


class _UpdateEmitter:
    """Emits the text of the model as updates of the run, and passes all events on to the handler of the user."""

    def __init__(self, handler: EventStreamHandler[Any] | None) -> None:
        self._handler = handler

    async def __call__(self, ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        emitted = self._emit(events)
        if self._handler is not None:
            await self._handler(ctx, emitted)
        # What the handler has not read is still emitted.
        async for _ in emitted:
            pass

    async def _emit(self, events: AsyncIterable[AgentStreamEvent]) -> AsyncIterable[AgentStreamEvent]:
        context, request = find_current(), _CURRENT_REQUEST.get()
        async for event in events:
            text = _text_of(event)
            if text and context is not None and request is not None:
                request.emitted = True
                context.emit_update(AgentResponseUpdate(text, context.executor_id, request.number))
            yield event


def _text_of(event: AgentStreamEvent) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
    return ""


def _find_context() -> InternalContext | None:
    """Return the context of the handler that calls; None outside of runs and inside steps."""
    ctx = find_current()
    return None if ctx is None or ctx.steps.branch().is_in_step else ctx


async def _now() -> datetime:
    return clock.now().astimezone(UTC)
