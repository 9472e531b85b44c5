"""Agent Framework's executors as nodes of a Stepwell graph.

A node calls `execute` of the executor it stands for, with a runner context of its own: what the handler
sends, yields, asks and writes becomes part of the outcome of its delivery, and is committed with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import Any

from agent_framework import (
    INTERNAL_SOURCE_ID,
    AgentResponseUpdate,
    Executor,
    InProcRunnerContext,
    WorkflowEvent,
    WorkflowMessage,
)
from agent_framework._workflows._runner_context import MessageType, YieldOutputEventType
from agent_framework._workflows._state import State

from stepwell.compat.agent_framework.agent_steps import add_steps
from stepwell.compat.agent_framework.edges import accepts
from stepwell.compat.agent_framework.effects import Effects
from stepwell.compat.agent_framework.send_spans import SendSpans
from stepwell.compat.agent_framework.stored_calls import StoredCalls, calls_of, storing
from stepwell.engine.handler.internal_context import internal
from stepwell.graph.context import WorkflowContext
from stepwell.graph.executor import Executor as NativeExecutor
from stepwell.graph.executor import HandlerTable
from stepwell.graph.handler import HandlerSpec
from stepwell.graph.type_matching import is_instance_of
from stepwell.model.event import WorkflowEvent as NativeEvent

LIVE_EVENT = "agent_framework"
"""The type of the events that carry an event of the framework, as a handler emitted it."""

STORED_CALLER: ContextVar[str | None] = ContextVar("stepwell_compat_caller", default=None)
"""The stored run whose handler is being executed: a workflow that runs inside it is kept in its checkpoints."""

CANCELLED = "\x00cancelled"
"""The response to a request that was cancelled: its executor is informed, and nobody answers it."""

_FRAMEWORK_EVENTS = frozenset({"executor_invoked", "executor_completed", "executor_failed"})
_UNSET = object()
_OUTCOME = "outcome"
_Call = Callable[[State, InProcRunnerContext], Awaitable[None]]


class WorkflowInbox(InProcRunnerContext):
    """Where the framework's `Workflow` leaves messages, responses and settings for the runner."""

    def __init__(self, checkpoint_storage: Any = None) -> None:
        super().__init__(checkpoint_storage)
        self.cancelled: list[str] = []

    async def cancel_request_info_events(self, request_ids: set[str]) -> dict[str, WorkflowEvent[Any]]:
        """Leave the cancellation to the run: its commit closes the requests."""
        cancelled = await super().cancel_request_info_events(request_ids)
        self.cancelled += cancelled
        return {}


class RunServices:
    """What a node needs of the runner of its workflow."""

    def __init__(self, context: InProcRunnerContext, state: State) -> None:
        # What the framework's `Workflow` sets for each run: streaming, tools, output designation.
        self.context = context
        # Keyword arguments of the run. They are never stored: they may hold secrets of a user.
        self.state = state
        # The events that executors emitted about their calls: the commit emits them, instead of its own.
        self.completed: dict[str, WorkflowEvent[Any]] = {}
        self.failed: dict[str, WorkflowEvent[Any]] = {}
        # The classes that open requests named; after a restart only their names are known.
        self.response_types: dict[str, Any] = {}
        self.send_spans = SendSpans()
        # Requests are being cancelled: their responses are of no type.
        self.is_cancelling = False
        # The handler that runs this workflow, and where in it.
        self.caller: StoredCalls | None = None
        self.path = ""


class _Table(HandlerTable):
    """The handlers of a framework executor, which chooses among them itself."""

    def __init__(self, executor: Executor, services: RunServices) -> None:
        sends, yields = tuple(executor.output_types), tuple(executor.workflow_output_types)
        pairs = response_pairs(executor)
        message = HandlerSpec("receive", tuple(executor.input_types), sends, yields, takes_context=True, is_async=True)
        response = HandlerSpec(
            "receive_response",
            tuple(dict.fromkeys(request for request, _ in pairs)) or (Any,),
            (),
            (),
            takes_context=True,
            is_async=True,
            response=tuple(dict.fromkeys(answer for _, answer in pairs)) or (Any,),
        )
        super().__init__([message, response])
        self._executor, self._pairs, self._services = executor, pairs, services

    def choose(self, value: object) -> HandlerSpec | None:
        return self.specs[0] if accepts(self._executor, value) else None

    def choose_response_handler(self, request: object, response: object) -> HandlerSpec | None:
        return self.response_specs[0]

    def response_types(self, request: object) -> tuple[object, ...]:
        if self._services.is_cancelling:
            return (Any,)
        named = [answer for asked, answer in self._pairs if is_instance_of(request, asked)]
        return (*dict.fromkeys(named), Any)


def response_pairs(executor: Executor) -> list[tuple[Any, Any]]:
    """Return the types of requests and responses that an executor handles, those of a sub-workflow included."""
    pairs = list(executor._response_handlers)
    return pairs + [pair for child in inner_executors(executor) for pair in response_pairs(child)]


def inner_executors(executor: Executor) -> Iterable[Executor]:
    """Return the executors of the workflow that an executor runs, if it runs one."""
    executors: dict[str, Executor] = getattr(getattr(executor, "workflow", None), "executors", {})
    return executors.values()


class Node(NativeExecutor):
    """A framework executor in a Stepwell graph."""

    def __init__(self, executor: Executor, services: RunServices) -> None:
        super().__init__(executor.id)
        self.executor, self._services = executor, services

    @cached_property
    def _handler_table(self) -> HandlerTable:
        return _Table(self.executor, self._services)

    async def receive(self, message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await self._execute(WorkflowMessage(data=message, source_id=self._sources(ctx)[0]), ctx)

    async def receive_response(self, request: Any, response: Any, ctx: WorkflowContext[Any, Any]) -> None:
        assert ctx.request_id is not None
        if response == CANCELLED:
            await self._cancel(ctx.request_id, ctx)
            return
        event = WorkflowEvent.request_info(ctx.request_id, self.id, request, type(response))
        await self._execute(
            WorkflowMessage(
                data=response,
                source_id=INTERNAL_SOURCE_ID(self.id),
                target_id=self.id,
                type=MessageType.RESPONSE,
                original_request_info_event=event,
            ),
            ctx,
        )

    async def _cancel(self, request_id: str, ctx: WorkflowContext[Any, Any]) -> None:
        async def cancel(state: State, context: InProcRunnerContext) -> None:
            made = self.executor._create_context_for_handler([INTERNAL_SOURCE_ID(self.id)], state, context)
            await self.executor._cancel_pending_request(request_id, made)

        await self._call(cancel, ctx)

    async def _execute(self, message: WorkflowMessage, ctx: WorkflowContext[Any, Any]) -> None:
        async def execute(state: State, context: InProcRunnerContext) -> None:
            sources = self._sources(ctx)
            links = self._services.send_spans.find(sources, internal(ctx).at.iteration)
            await self.executor.execute(message, sources, state, context, *links)

        await self._call(execute, ctx)

    async def _call(self, call: _Call, ctx: WorkflowContext[Any, Any]) -> None:
        """Make a call of the executor; workflows that run within belong to this run."""
        delivery, services = internal(ctx), self._services
        calls = calls_of(delivery, services.caller, services.path)
        effects = Effects(delivery)
        inside = STORED_CALLER.set(ctx.run_id if calls is not None else None)
        try:
            with storing(calls):
                if calls is None or calls.context is delivery:
                    await call(_NodeState(effects, services.state), _NodeContext(effects, services))
                else:
                    await self._call_once(call, calls, effects)
        finally:
            STORED_CALLER.reset(inside)

    async def _call_once(self, call: _Call, calls: StoredCalls, effects: Effects) -> None:
        """Make a call inside the handler of another run, or recall what it did."""
        was_called = False

        async def make() -> list[Any]:
            nonlocal was_called
            was_called = True
            return [effects.made, await self.executor.on_checkpoint_save()]

        if not calls.is_recorded(_OUTCOME):
            await call(_NodeState(effects, self._services.state), _NodeContext(effects, self._services))
        made, state = await calls.step_at(_OUTCOME, make)
        if not was_called:
            effects.repeat(made, self._handler_table)
            await self.executor.on_checkpoint_restore(state)

    def _sources(self, ctx: WorkflowContext[Any, Any]) -> list[str]:
        return ctx.source_executor_ids or [INTERNAL_SOURCE_ID(self.id)]

    def clone(self) -> Node:
        return type(self)(self.executor, self._services)


class StatefulNode(Node):
    """A framework executor that saves state in checkpoints."""

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return await self.executor.on_checkpoint_save()

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        await self.executor.on_checkpoint_restore(state)


def make_nodes(executors: Mapping[str, Executor], services: RunServices) -> dict[str, Node]:
    """Return the nodes of a workflow."""
    nodes = {}
    for id, executor in executors.items():
        add_steps(executor)
        hooks = (type(executor).on_checkpoint_save, type(executor).on_checkpoint_restore)
        is_plain = hooks == (Executor.on_checkpoint_save, Executor.on_checkpoint_restore)
        nodes[id] = (Node if is_plain else StatefulNode)(executor, services)
    return nodes


class _NodeState(State):
    """The state of the run as a handler sees it, in the framework's form."""

    def __init__(self, effects: Effects, run_values: State) -> None:
        super().__init__()
        self._effects, self._ctx, self._run_values = effects, effects.ctx, run_values

    def get(self, key: str, default: Any = None) -> Any:
        if self._run_values.has(key):
            return self._run_values.get(key)
        return self._ctx.get_state(key, default)

    def set(self, key: str, value: Any) -> None:
        self._effects.make("set_state", key, value)

    def has(self, key: str) -> bool:
        return self._run_values.has(key) or self._ctx.get_state(key, _UNSET) is not _UNSET

    def delete(self, key: str) -> None:
        if not self.has(key):
            raise KeyError(f"Key '{key}' not found in state.")
        self._effects.make("delete_state", key)

    def export_state(self) -> dict[str, Any]:
        return {key: self._ctx.get_state(key) for key in self._ctx.state_keys()}


class _NodeContext(InProcRunnerContext):
    """Where a framework handler sends, yields, asks and emits: into the outcome of one delivery."""

    def __init__(self, effects: Effects, services: RunServices) -> None:
        super().__init__()
        self._effects, self._ctx, self._services = effects, effects.ctx, services

    async def send_message(self, message: WorkflowMessage) -> None:
        self._services.send_spans.add(self._ctx.executor_id, self._ctx.at.iteration, message)
        self._effects.make("send_message", message.data, message.target_id)

    async def add_event(self, event: WorkflowEvent[Any]) -> None:
        if event.type == "executor_completed":
            self._services.completed[self._ctx.delivery.id] = event
        elif event.type == "executor_failed":
            self._services.failed[self._ctx.executor_id] = event
        elif event.type in ("output", "intermediate") and not self._is_piece(event.data):
            self._effects.make("yield_as", event.type, event.data)
        elif event.type not in _FRAMEWORK_EVENTS:
            self._ctx.add_event(NativeEvent(LIVE_EVENT, event))

    def _is_piece(self, data: Any) -> bool:
        """Return whether an output is a piece of an agent's answer: it is shown at once and not stored."""
        return isinstance(data, AgentResponseUpdate) and self.is_streaming()

    async def add_request_info_event(self, event: WorkflowEvent[Any]) -> None:
        self._services.response_types[event.request_id] = event.response_type
        self._effects.ask(event.data, event.response_type, event.request_id)

    async def get_pending_request_info_events(self) -> dict[str, WorkflowEvent[Any]]:
        return await self._services.context.get_pending_request_info_events()

    def classify_yielded_output(self, executor_id: str) -> YieldOutputEventType | None:
        return self._services.context.classify_yielded_output(executor_id)

    def is_streaming(self) -> bool:
        return self._services.context.is_streaming()

    def get_runtime_tools(self) -> Any:
        return self._services.context.get_runtime_tools()


def types_of(executors: Iterable[Executor]) -> list[Any]:
    """Return every type that executors take, send, yield, ask or get as a response."""
    types: list[Any] = []
    for executor in executors:
        types += [*executor.input_types, *executor.output_types, *executor.workflow_output_types]
        types += [named for pair in response_pairs(executor) for named in pair]
        types += types_of(inner_executors(executor))
    return types
