"""Runs a function of Agent Framework with Stepwell's engine."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, get_type_hints

from agent_framework import FunctionalWorkflow as FrameworkWorkflow
from agent_framework import RunContext, WorkflowEvent, WorkflowRunState
from agent_framework._workflows._events import _framework_event
from agent_framework._workflows._functional import _active_run_ctx
from agent_framework._workflows._workflow import _coerce_request_info_response
from agent_framework.exceptions import WorkflowCheckpointException

from stepwell.codec.codec import Codec, reachable_types
from stepwell.compat.agent_framework.functional.function_context import FunctionContext, error_details
from stepwell.compat.agent_framework.nodes import LIVE_EVENT
from stepwell.compat.agent_framework.open_drives import read_events, was_left
from stepwell.compat.agent_framework.storages import GRAPH_HASH, native_storage
from stepwell.compat.agent_framework.stored_calls import calls_of, storing
from stepwell.engine.drive.drive import Drive
from stepwell.engine.handler.internal_context import internal
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.engine.opening.drive_options import DriveOptions, ExecutorSource
from stepwell.engine.opening.open_run import FromCheckpoint, Position, ResumeRun, StartRun
from stepwell.errors import HandlerFailed
from stepwell.graph.context import WorkflowContext
from stepwell.graph.executor import Executor, HandlerTable
from stepwell.graph.graph import Graph, signature
from stepwell.graph.handler import HandlerSpec
from stepwell.model.event import WorkflowEvent as NativeEvent
from stepwell.storage.archive import Archive
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.ids import new_run_id
from stepwell.workflows.workflow import archives_on

_PENDING = WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS
_SPEC = HandlerSpec("call", input=(Any,), output=(), workflow_output=(Any,), takes_context=True, is_async=True)


@dataclass
class _Run:
    """The latest run of a workflow object, and where it is kept."""

    run_id: str
    archive: Archive
    storage: CheckpointStorage | None


class FunctionalWorkflow(FrameworkWorkflow):
    """A function whose runs are driven and stored by Stepwell."""

    # `inspect.signature` shows the parameters of the framework's class.
    __signature__ = inspect.signature(FrameworkWorkflow)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The classes that requests of this process named; elsewhere only their names are known.
        self._response_types: dict[str, Any] = {}
        self._run_kwargs: dict[str, Any] = {}
        self._run: _Run | None = None
        self._node = _FunctionNode(self)
        graph = Graph(self.name, {self.name: self._node}, (), None, {}, "fail")
        self._definition = WorkflowDefinition(
            name=self.name,
            graph=graph,
            signature=signature(graph),
            codec=Codec(reachable_types(self._types())),
            max_iterations=1,
        )

    def _types(self) -> list[Any]:
        """Return the types that the function and its steps take and return."""
        steps, _ = self._discover_workflow_dependencies(self._func)
        return [
            kind for function in (self._func, *(step._func for step in steps)) for kind in _hints(function).values()
        ]

    async def _run_core(
        self,
        message: Any | None = None,
        *,
        responses: dict[str, Any] | None = None,
        checkpoint_id: str | None = None,
        checkpoint_storage: Any = None,
        streaming: bool = False,
        **kwargs: Any,
    ) -> AsyncGenerator[WorkflowEvent[Any], None]:
        self._run_kwargs = kwargs
        try:
            chosen = checkpoint_storage or self._checkpoint_storage
            storage = None if chosen is None else native_storage(chosen)
            run, position = await self._open(message, checkpoint_id, storage)
            converted = await self._answers(run, position, responses or {})
            yield _framework_event(WorkflowEvent.started)
            yield _framework_event(WorkflowEvent.status, WorkflowRunState.IN_PROGRESS)
            options = DriveOptions(
                position,
                run.archive,
                streaming=streaming,
                private={},
                responses=converted,
                archive_for=archives_on(run.storage),
                may_take_over=partial(was_left, run.run_id),
            )
            drive = Drive(self._definition, options, ExecutorSource(lambda: {self.name: self._node}, lambda *_: None))
            async with aclosing(self._events(drive)) as events:
                async for event in events:
                    yield event
            self._last_pending_request_ids = set(drive.at.requests) if drive.at is not None else set()
            waits = bool(self._last_pending_request_ids)
            rest = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS if waits else WorkflowRunState.IDLE
            yield _framework_event(WorkflowEvent.status, rest)
        finally:
            self._release_run_guard()

    async def _open(
        self, message: Any, checkpoint_id: str | None, storage: CheckpointStorage | None
    ) -> tuple[_Run, Position]:
        if checkpoint_id is not None:
            if storage is None:
                raise ValueError(
                    "Cannot restore from checkpoint without checkpoint_storage. "
                    "Provide checkpoint_storage to build() or to this run."
                )
            run = self._run = self._new_run(storage)
            at = await run.archive.find(checkpoint_id)
            if at is None:
                raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
            if GRAPH_HASH in at.header.signature:
                raise ValueError(
                    f"Checkpoint '{checkpoint_id}' was not saved by a run of workflow '{self.name}' and is not "
                    f"compatible with it. Resume from a checkpoint that a run of it has saved."
                )
            run.run_id = at.run_id
            return run, FromCheckpoint(checkpoint_id, None)
        if message is not None:
            if not self._non_ctx_param_names:
                raise ValueError(
                    f"@workflow function '{self._func.__name__}' has no non-RunContext parameter to receive a message, "
                    f"but .run(message=...) was called with a non-None value.  Either add a first parameter to the "
                    f"workflow function or omit 'message'."
                )
            run = self._run = self._new_run(storage)
            return run, StartRun(message, run.run_id, named=False)
        # The framework has checked that there are requests to respond to.
        assert self._run is not None
        return self._run, ResumeRun(self._run.run_id)

    def _new_run(self, storage: CheckpointStorage | None) -> _Run:
        archive = archives_on(storage)(self.name, self._definition.codec, None)
        return _Run(new_run_id(), archive, storage)

    async def _answers(self, run: _Run, position: Position, responses: dict[str, Any]) -> dict[str, Any]:
        """Return the responses to open requests, as the framework converts them; earlier ones are stored already."""
        if not responses:
            return {}
        # The framework's context warns of responses that are None.
        RunContext(self.name)._set_responses(responses)
        at = await run.archive.head(run.run_id)
        if isinstance(position, FromCheckpoint):
            source = await run.archive.find(position.checkpoint_id)
            # A run that has not moved since is continued where it is.
            if source is not None and (at is None or at.place != source.place):
                at = source
        converted = {}
        for id in responses.keys() & (set() if at is None else set(at.requests)):
            converted[id] = responses[id]
            if converted[id] is not None and id in self._response_types:
                converted[id] = _coerce_request_info_response(converted[id], self._response_types[id], id)
        return converted

    async def _events(self, drive: Drive) -> AsyncGenerator[WorkflowEvent[Any], None]:
        shown: set[str] = set()
        try:
            async with aclosing(read_events(drive)) as events:
                async for native in events:
                    event = self._translate(native)
                    if event is None or (event.type == "request_info" and event.request_id in shown):
                        continue
                    yield event
                    if event.type == "request_info":
                        shown.add(event.request_id)
                        yield _framework_event(WorkflowEvent.status, _PENDING)
        except Exception as error:  # noqa: BLE001 - shown, and raised again
            # The function's own error, as it was raised; one that is only remembered has no other form.
            raised = (error.__cause__ or error) if isinstance(error, HandlerFailed) else error
            yield _framework_event(WorkflowEvent.failed, error_details(raised))
            yield _framework_event(WorkflowEvent.status, WorkflowRunState.FAILED)
            raise raised from None

    def _translate(self, native: NativeEvent) -> WorkflowEvent[Any] | None:
        match native.type:
            case "output" if not native.path:
                return _framework_event(WorkflowEvent, "output", executor_id=self.name, data=native.data)
            case "request_info":
                kind = self._response_types.get(native.request_id, object)
                return WorkflowEvent.request_info(native.request_id, self.name, native.data, kind)
            case _ if native.type == LIVE_EVENT:
                emitted: WorkflowEvent[Any] = native.data
                return emitted
        return None

    async def call(self, message: Any, ctx: WorkflowContext[Any, Any]) -> Any:
        """Call the function with its message, and a context if it takes one."""
        native = internal(ctx)
        context = FunctionContext(self.name, native, self._response_types, self._run_kwargs)
        hints = _hints(self._func)
        arguments: dict[str, Any] = {}
        for name in inspect.signature(self._func).parameters:
            is_context = hints.get(name) is RunContext or name == "ctx"
            if is_context or name in self._non_ctx_param_names:
                arguments[name] = context if is_context else message
        token = _active_run_ctx.set(context)
        try:
            with storing(calls_of(native)):
                return await self._func(**arguments)
        finally:
            _active_run_ctx.reset(token)


class _FunctionNode(Executor):
    """The node whose handler is the function."""

    def __init__(self, workflow: FunctionalWorkflow) -> None:
        super().__init__(workflow.name)
        self._workflow = workflow
        self._handler_table = HandlerTable([_SPEC])

    async def call(self, message: Any, ctx: WorkflowContext[Any, Any]) -> None:
        result = await self._workflow.call(message, ctx)
        if result is not None:
            await ctx.yield_output(result)


def _hints(function: Any) -> dict[str, Any]:
    """Return the annotations of a function as types; none if they name what cannot be found."""
    try:
        return get_type_hints(function)
    except (NameError, AttributeError, TypeError):
        return {}
