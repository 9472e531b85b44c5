"""Drives the runs of one Agent Framework workflow with Stepwell's engine.

The framework's `Workflow` checks the arguments of a call, leaves messages and responses in its runner
context, and reads events from its runner. This runner takes them from there. One workflow object has one
run: further messages are inputs to it, so its state, its executors and its open requests stay, as that
framework promises. A run that failed is left behind, and the next message starts another.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent_framework import InProcRunnerContext, WorkflowCheckpoint, WorkflowEvent, WorkflowMessage
from agent_framework import Workflow as FrameworkWorkflow
from agent_framework._workflows._runner_context import MessageType
from agent_framework._workflows._state import State
from agent_framework.exceptions import WorkflowCheckpointException, WorkflowConvergenceException
from agent_framework.observability import OBSERVABILITY_SETTINGS

from stepwell.codec.codec import Codec, reachable_types
from stepwell.compat.agent_framework.edges import edges_of
from stepwell.compat.agent_framework.events import translate
from stepwell.compat.agent_framework.nodes import (
    CANCELLED,
    STORED_CALLER,
    RunServices,
    WorkflowInbox,
    make_nodes,
    types_of,
)
from stepwell.compat.agent_framework.open_drives import read_events, was_left
from stepwell.compat.agent_framework.storages import GRAPH_HASH, OWN_MESSAGES, native_storage
from stepwell.compat.agent_framework.stored_calls import find_calls
from stepwell.engine.drive.drive import Drive
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.engine.opening.drive_options import DriveOptions, ExecutorSource
from stepwell.engine.opening.open_run import STOPPED, FromCheckpoint, Position, ResumeRun, StartRun
from stepwell.errors import HandlerFailed, RoutingFailed, SuperstepLimit
from stepwell.graph.graph import Graph, OutputKind, signature
from stepwell.graph.type_matching import describe
from stepwell.kernel.lifecycle import full_commit
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowRunState
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedInput, ReceivedResponse
from stepwell.storage.archive import Archive
from stepwell.storage.checkpoint import WorkflowCheckpoint as NativeCheckpoint
from stepwell.storage.checkpoint import unview, view
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.ids import new_run_id
from stepwell.storage.signals import input_key
from stepwell.storage.unstored_archive import UnstoredArchive
from stepwell.workflows.workflow import archives_on

_IN_FLIGHT = (
    "Cannot start a new run with 'message' while in-flight executor messages remain from a prior run. Resume from a "
    "checkpoint (checkpoint_id=...) or wait for the prior run to complete. Workflows that need to recover from a "
    "mid-run failure must use checkpointing; there is no in-process recovery path."
)


@dataclass
class _Run:
    """The run of a workflow object: where it is kept, and how far it has come."""

    archive: Archive
    storage: CheckpointStorage | None
    start: Checkpoint | None = None
    # The executors have the state of the run: they need not be restored.
    are_live: bool = True
    # Continue from this checkpoint.
    checkpoint_id: str | None = None
    # The latest drive, which may still be open: a program may have left its stream.
    drive: Drive | None = None

    @property
    def at(self) -> Checkpoint | None:
        """The latest checkpoint."""
        return self.start if self.drive is None else self.drive.at


class Runner:
    """The runner of one workflow object; `Workflow` calls what the framework's own runner offers."""

    def __init__(self, workflow: FrameworkWorkflow) -> None:
        context = workflow._runner_context
        assert isinstance(context, InProcRunnerContext)
        self.context, self.state = context, State()
        self._services = RunServices(context, self.state)
        self._nodes = make_nodes(workflow.executors, self._services)
        described = workflow.to_dict()
        graph = Graph(
            workflow.start_executor_id,
            self._nodes,
            edges_of(workflow.edge_groups, workflow.executors),
            outputs=_output_kinds(described["output_executors"], described["intermediate_executors"]),
            on_unroutable="drop",
        )
        self._definition = WorkflowDefinition(
            name=workflow.name,
            graph=graph,
            signature={**signature(graph), GRAPH_HASH: workflow.graph_signature_hash},
            codec=Codec(reachable_types(types_of(workflow.executors.values()))),
            max_iterations=workflow.max_iterations,
        )
        self._run: _Run | None = None
        self._previous_checkpoint_id: str | None = None  # read by `Workflow.get_last_checkpoint_id`
        self._first_iteration = 0

    def reset_iteration_count(self) -> None:
        """Count supersteps from here: a new message arrived."""
        self._first_iteration = self._run.at.iteration if self._run is not None and self._run.at is not None else 0

    async def create_checkpoint_if_enabled(self) -> None:
        """Do nothing: each commit of the engine is a checkpoint, the first one included."""

    async def run_until_convergence(self) -> AsyncGenerator[WorkflowEvent[Any], None]:
        """Deliver what waits in the context, drive the run until it rests, and yield its events."""
        for event in await self.context.drain_events():
            yield event
        waiting = await self.context.drain_messages()
        if not waiting and (self._run is None or self._run.at is None):
            return  # there is no run yet, and nothing to start one with
        run, position, responses = await self._open(waiting)
        self._services.caller = find_calls()
        if self._services.caller is not None:
            self._services.path = self._services.caller.enter_run(self._definition.name)
        source = ExecutorSource(lambda: self._nodes, lambda *_: None, are_live=run.are_live)
        drive = run.drive = Drive(self._definition, self._options(run, position, responses), source)
        run.are_live, run.checkpoint_id, self._run = True, None, run
        try:
            async with aclosing(read_events(drive)) as events:
                async for native in events:
                    translated = translate(native, self._services, self._first_iteration)
                    if translated is None:
                        continue
                    if translated.type == "request_info":
                        await self.context.add_request_info_event(translated)
                        translated = (await self.context.drain_events())[-1]
                    yield translated
        except (HandlerFailed, RoutingFailed) as error:
            # The handler's own error, as it was raised; one that is only remembered has no other form.
            raise error.__cause__ or error from None
        except SuperstepLimit:
            limit = self._definition.max_iterations
            raise WorkflowConvergenceException(f"Runner did not converge after {limit} iterations.") from None
        finally:
            if drive.at is not None and run.storage is not None:
                self._previous_checkpoint_id = drive.at.stamp.checkpoint_id

    # ---------------------------------------------------------------- starting a drive

    async def _open(self, waiting: dict[str, list[WorkflowMessage]]) -> tuple[_Run, Position, dict[str, Any]]:
        messages = [message for sent in waiting.values() for message in sent]
        inputs = [message.data for message in messages if message.type is MessageType.STANDARD]
        responses = {
            message.original_request_info_event.request_id: message.data
            for message in messages
            if message.original_request_info_event is not None
        }
        if isinstance(self.context, WorkflowInbox):
            responses |= dict.fromkeys(self.context.cancelled, CANCELLED)
            self._services.is_cancelling = bool(self.context.cancelled)
            self.context.cancelled.clear()
        run = await self._current_run()
        if run.checkpoint_id is not None:
            return run, FromCheckpoint(run.checkpoint_id, None), responses
        if run.at is None:
            return run, StartRun(inputs[0], new_run_id(), named=False), responses
        if inputs and run.at.status in (
            WorkflowRunState.IN_PROGRESS,
            WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS,
        ):
            raise RuntimeError(_IN_FLIGHT)
        for message in inputs:
            payload = run.archive.pack(message, "$.message")
            key = input_key(run.at.header.epoch, new_run_id())
            await run.archive.send(run.at.run_id, key, ReceivedInput(payload))
        return run, ResumeRun(run.at.run_id), responses

    async def _current_run(self) -> _Run:
        """Return the run of this object, in the storage of this call; a new one after a failure."""
        storage = self._storage()
        run = self._run
        if run is None or (run.checkpoint_id is None and (run.at is None or run.at.status in STOPPED)):
            return self._new_run(storage)
        if run.storage is not storage and run.at is not None and run.checkpoint_id is None:
            moved = self._new_run(storage)
            if storage is None:
                moved.archive = UnstoredArchive(run.at)
            else:
                await storage.save(view(run.at, full_commit(run.at)))
            moved.start = run.at
            return moved
        return run

    def _new_run(self, storage: CheckpointStorage | None) -> _Run:
        # What is kept in the checkpoints of a stored run must be encoded.
        if storage is None and STORED_CALLER.get() is not None:
            return _Run(UnstoredArchive(pack=self._definition.codec.pack), None)
        return _Run(archives_on(storage)(self._definition.name, self._definition.codec, None), storage)

    def _storage(self) -> CheckpointStorage | None:
        storage = self.context._get_effective_checkpoint_storage()
        return None if storage is None else native_storage(storage)

    def _options(self, run: _Run, position: Position, responses: dict[str, Any]) -> DriveOptions:
        return DriveOptions(
            position,
            run.archive,
            streaming=self.context.is_streaming(),
            private={},
            responses=responses,
            archive_for=archives_on(run.storage),
            caller=STORED_CALLER.get(),
            may_take_over=None if run.at is None else partial(was_left, run.at.run_id),
            # The framework's own spans are enough.
            emits_spans=not OBSERVABILITY_SETTINGS.ENABLED,
        )

    # ---------------------------------------------------------------- checkpoints

    async def restore_from_checkpoint(self, checkpoint_id: str, checkpoint_storage: Any = None) -> None:
        """Continue from a stored checkpoint. Raises WorkflowCheckpointException if that is not possible."""
        run = self._new_run(self._storage() if checkpoint_storage is None else native_storage(checkpoint_storage))
        at = await run.archive.find(checkpoint_id)
        if at is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        if at.header.signature.get(GRAPH_HASH) != self._definition.signature[GRAPH_HASH]:
            raise WorkflowCheckpointException(
                "Workflow graph has changed since the checkpoint was created. "
                "Please rebuild the original workflow before resuming."
            )
        if at.header.signature.get(OWN_MESSAGES):
            raise WorkflowCheckpointException(
                f"Checkpoint {checkpoint_id} was saved by a program, with messages in flight. Who receives them is not "
                f"known: resume from a checkpoint that a run has saved."
            )
        run.start, run.are_live, run.checkpoint_id = at, False, checkpoint_id
        self._run, self._previous_checkpoint_id, self._first_iteration = run, checkpoint_id, 0
        await self._show_requests(at, await _answered(run.archive, at))

    async def build_checkpoint(self) -> dict[str, Any] | None:
        """Return the run as data, to be kept in a checkpoint of the workflow that this one is a part of."""
        at = None if self._run is None else self._run.at
        return None if at is None else view(at, full_commit(at)).to_dict()

    async def restore_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Continue from what `build_checkpoint` returned."""
        at, _ = unview(NativeCheckpoint.from_dict(checkpoint), self._definition.codec)
        self._run = _Run(UnstoredArchive(at, pack=self._definition.codec.pack), None, at, are_live=False)
        await self._show_requests(at)

    async def _show_requests(self, at: Checkpoint, answered: AbstractSet[str] = frozenset()) -> None:
        """Make the open requests of a checkpoint those of the context, which emits them again."""
        unanswered = [request for request in at.requests.values() if request.id not in answered]
        requests = {request.id: self._request_event(request) for request in unanswered}
        await self.context.apply_checkpoint(
            WorkflowCheckpoint(self._definition.name, graph_signature_hash="", pending_request_info_events=requests)
        )

    def _request_event(self, request: Request) -> WorkflowEvent[Any]:
        data = request.payload.open()
        types = self._nodes[request.executor]._handler_table.response_types(data)
        named = next((kind for kind in types if describe(kind) == request.response_type), object)
        response_type: Any = self._services.response_types.setdefault(request.id, named)
        return WorkflowEvent.request_info(request.id, request.executor, data, response_type)


async def _answered(archive: Archive, at: Checkpoint) -> set[str]:
    """Return the requests whose response is stored and not applied yet: the process that took it may have died."""
    head = await archive.head(at.run_id)
    if head is None or head.place != at.place:
        return set()  # what was sent to the run does not concern a fork of it
    signals = await archive.pending_signals(at.run_id)
    return {signal.request_id for signal in signals.values() if isinstance(signal, ReceivedResponse)}


def _output_kinds(outputs: list[str] | None, intermediates: list[str] | None) -> dict[str, OutputKind] | None:
    if outputs is None:
        return None
    kinds: dict[str, OutputKind] = dict.fromkeys(intermediates or (), "intermediate")
    return kinds | dict.fromkeys(outputs, "output")
