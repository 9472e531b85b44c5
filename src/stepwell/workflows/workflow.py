"""A built workflow, and the ways to run it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from msgspec.structs import replace

from stepwell.codec.codec import Codec, reachable_types
from stepwell.engine.drive.drive import Drive
from stepwell.engine.drive.run_stream import RunStream, run_to_end
from stepwell.engine.durability.deferred_archive import Durability
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.engine.opening.drive_options import DriveOptions, ExecutorSource, OnChangedStep
from stepwell.engine.opening.open_run import FromCheckpoint, Position, ResumeRun, StartRun
from stepwell.graph.executor import Executor
from stepwell.graph.graph import Graph, default_name, signature, signature_hash
from stepwell.graph.migration import Migration
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.valid_text import check_words
from stepwell.storage.archive import Archive
from stepwell.storage.archive_choice import open_archive
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.unstored_archive import UnstoredArchive
from stepwell.viz.notebook import NotebookDrawing
from stepwell.workflows.executor_pool import ExecutorPool
from stepwell.workflows.executor_specs import ExecutorSpec
from stepwell.workflows.handle import RunHandle
from stepwell.workflows.introspection import DescribedGraph
from stepwell.workflows.result import OutputT, WorkflowRunResult
from stepwell.workflows.run_options import RunOptions, StreamOptions
from stepwell.workflows.run_verbs import RunVerbs
from stepwell.workflows.start_position import OMITTED, agent_arguments, check_run_options, position_of
from stepwell.workflows.storage_options import StorageLike, storage_of
from stepwell.workflows.waiting_runs import WaitingRun, WaitingRuns

if TYPE_CHECKING:
    from stepwell.workflows.workflow_agent import WorkflowAgent


class Workflow(DescribedGraph, NotebookDrawing, RunVerbs[OutputT]):
    """An immutable workflow definition. One object serves any number of concurrent runs, each with its `run_id`.

    `Workflow[Report]` tells type checkers that the outputs of its runs are reports; see `WorkflowBuilder`.
    """

    def __init__(
        self,
        graph: Graph,
        specs: Mapping[str, ExecutorSpec],
        name: str | None,
        description: str | None,
        max_iterations: int,
        checkpoint_storage: CheckpointStorage | None,
        *,
        version: int = 1,
        migrations: tuple[Migration, ...] = (),
    ) -> None:
        self._signature = signature(graph)
        self._graph, self._storage = graph, checkpoint_storage
        self._executor_pool = ExecutorPool(specs)
        self._waiting = WaitingRuns()
        self._description = description
        # Used by handles if no storage was passed.
        self._memory: CheckpointStorage | None = None
        types = [t for executor in graph.executors.values() for t in executor._handler_table.every_type()]
        self._definition = WorkflowDefinition(
            name=name or default_name(self._signature),
            graph=graph,
            signature=self._signature,
            codec=Codec(reachable_types(types)),
            max_iterations=max_iterations,
            version=version,
            migrations=migrations,
        )

    @property
    def name(self) -> str:
        """The given name, or one derived from the graph: the same graph has the same name in every process."""
        return self._definition.name

    @property
    def description(self) -> str | None:
        return self._description

    @property
    def version(self) -> int:
        """The version of the workflow. A run has the version that started it, or that took it over last."""
        return self._definition.version

    @property
    def max_iterations(self) -> int:
        return self._definition.max_iterations

    @property
    def graph_signature_hash(self) -> str:
        return signature_hash(self._signature)

    def to_dict(self) -> dict[str, Any]:
        """Return the workflow as plain data: its name and settings, and its graph, sub-workflows included."""
        about = {"name": self.name, "description": self.description, "version": self.version}
        return {**about, "max_iterations": self.max_iterations, **super().to_dict()}

    @overload
    def run(
        self, message: Any = ..., *, stream: Literal[True], **options: Unpack[StreamOptions]
    ) -> RunStream[WorkflowRunResult[OutputT]]: ...
    @overload
    def run(
        self, message: Any = ..., *, stream: Literal[False] = ..., **options: Unpack[RunOptions]
    ) -> Coroutine[Any, Any, WorkflowRunResult[OutputT]]: ...
    @overload
    def run(
        self, message: Any = ..., *, stream: bool, **options: Unpack[StreamOptions]
    ) -> RunStream[WorkflowRunResult[OutputT]] | Coroutine[Any, Any, WorkflowRunResult[OutputT]]: ...
    def run(
        self,
        message: Any = OMITTED,
        *,
        stream: bool = False,
        run_id: str | None = None,
        checkpoint_id: str | None = None,
        checkpoint_storage: StorageLike | None = None,
        responses: Mapping[str, Any] | None = None,
        private: Mapping[str, Any] | None = None,
        function_invocation_kwargs: Mapping[str, Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
        durability: Durability = "sync",
        tags: Mapping[str, str] | None = None,
        by: str | None = None,
        on_changed_step: OnChangedStep = "refuse",
        include_status_events: bool = False,
        nested: bool = False,
        replay: bool = False,
    ) -> RunStream[WorkflowRunResult[OutputT]] | Coroutine[Any, Any, WorkflowRunResult[OutputT]]:
        """Start a run, or resume one. Returns an awaitable result; with `stream=True`, a stream of events.

        With a message a run starts, or the stored run `run_id` resumes that was started with the same one. Without a
        message, `run_id` resumes that run from its head; `checkpoint_id` does so with the run of that checkpoint if no
        message has moved since, and otherwise starts a new run from there.

        `responses` answers open requests by request id; without an id it resumes the only waiting run of this
        workflow object. `checkpoint_storage` overrides the one passed to the builder. `private` values can be read by
        handlers and are never stored. `durability` says what a crash may lose: nothing ("sync"), the last superstep
        ("async"), or everything since the run last waited, slept, failed or ended ("exit"). `tags` are set when a run
        starts; `list_runs` of a storage filters by them. `by` says who starts, resumes or answers the run. A step
        called with arguments different from those of its stored result raises StepChanged; with
        `on_changed_step="recall"` it returns the stored result. Of a stream, `nested` adds the events of sub-workflows
        and `replay` the outputs from before a resume.
        """
        check_run_options(message, responses, durability, on_changed_step)
        check_words("by", by)
        requested = storage_of(checkpoint_storage) or self._storage
        waiting = self._waiting_for(run_id, checkpoint_id, requested) if responses is not None else None
        storage = waiting.storage if waiting is not None else requested
        position = position_of(message, run_id, checkpoint_id, tags) if waiting is None else ResumeRun(waiting.run_id)
        position = _complete(position, by, only_head=responses is not None and run_id is None)
        # Copied now: the run may start later, when the stream is read.
        for_agents = agent_arguments(function_invocation_kwargs, client_kwargs, self._graph.executors)
        private_values, answers = {**(private or {}), **for_agents}, dict(responses or {})

        def begin() -> Drive:
            return self._drive(
                position,
                storage,
                streaming=stream,
                private=private_values,
                responses=answers,
                waiting=waiting,
                durability=durability,
                recall_changed=on_changed_step == "recall",
            )

        finish = partial(WorkflowRunResult, include_status_events=include_status_events, graph=self)
        return RunStream(begin, finish, nested=nested, replay=replay) if stream else run_to_end(begin, finish)

    def start(
        self,
        message: Any = None,
        *,
        run_id: str | None = None,
        checkpoint_storage: StorageLike | None = None,
        private: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> RunHandle[OutputT]:
        """Start a run in the background and return a handle to it.

        Every awaited method of the handle raises what `run` would raise.

        If `run_id` names a stored run that was started with the same message, that one is resumed. Needs a running
        event loop. Without a storage the run is kept in memory, as long as this workflow object.
        """
        position = position_of(message, run_id, None, tags)
        assert isinstance(position, StartRun)
        storage = self._storage_for(checkpoint_storage)
        return RunHandle(self, position.run_id, storage, dict(private or {}), position, drive=True)

    def attach(
        self,
        run_id: str,
        *,
        drive: bool = False,
        checkpoint_storage: StorageLike | None = None,
        private: Mapping[str, Any] | None = None,
    ) -> RunHandle[OutputT]:
        """Return a handle to a run that was started before, here or in another process.

        It only watches the run, unless `drive` is true: then it also drives it, as that of `start` does.
        """
        if run_id is None:
            raise ValueError("run_id must be a non-empty string, not None")
        # Raises ValueError for an invalid id.
        position_of(OMITTED, run_id, None)
        return RunHandle(self, run_id, self._storage_for(checkpoint_storage), dict(private or {}), drive=drive)

    def _storage_for(self, requested: StorageLike | None) -> CheckpointStorage:
        storage = storage_of(requested) or self._storage or self._memory or storage_of("memory")
        assert storage is not None
        if requested is None and self._storage is None:
            self._memory = storage
        return storage

    def _drive(
        self,
        position: Position,
        storage: CheckpointStorage | None,
        streaming: bool,
        private: Mapping[str, Any],
        responses: Mapping[str, Any] = MappingProxyType({}),
        waiting: WaitingRun | None = None,
        durability: Durability = "sync",
        *,
        recall_changed: bool = False,
        most_takeovers: int | None = None,
    ) -> Drive:
        """Create one drive of a run; `run` and handles read its events."""
        if waiting is not None:
            self._waiting.claim(waiting)
        archives = archives_on(storage)
        kept = None if waiting is None else waiting.archive
        options = DriveOptions(
            position,
            archives(self.name, self._definition.codec, None) if kept is None else kept,
            streaming=streaming,
            private=private,
            responses=responses,
            archive_for=archives,
            durability=durability,
            recall_changed=recall_changed,
            most_takeovers=most_takeovers,
        )
        return Drive(self._definition, options, self._executors_for(storage, waiting))

    def _archive_on(self, storage: CheckpointStorage) -> Archive:
        """Open the archive of this workflow's runs on a storage."""
        return open_archive(storage, self.name, self._definition.codec)

    def _waiting_for(
        self, run_id: str | None, checkpoint_id: str | None, storage: CheckpointStorage | None
    ) -> WaitingRun | None:
        """Return the waiting run that responses are meant for; None if an id says which stored run."""
        if run_id is None and checkpoint_id is None:
            return self._waiting.only_run()
        return self._waiting.get(run_id) if run_id is not None and storage is None else None

    def _executors_for(self, storage: CheckpointStorage | None, waiting: WaitingRun | None) -> ExecutorSource:
        suspended = waiting.executors if waiting is not None else None

        def release(executors: Mapping[str, Executor], at: Checkpoint | None, archive: Archive) -> None:
            self._executor_pool.release(executors)
            if at is not None:
                self._waiting.record(at, archive, executors, storage)

        if suspended is None:
            return ExecutorSource(self._executor_pool.acquire, release)
        return ExecutorSource(lambda: suspended, release, are_live=True)

    def as_agent(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        checkpoint_storage: StorageLike | None = None,
    ) -> WorkflowAgent:
        """Return this workflow as an agent, to be used alone or inside another workflow.

        Its start executor must accept list[Message], Message or str.
        """
        from stepwell.workflows.workflow_agent import WorkflowAgent  # lazy: a program without agents does not load them

        return WorkflowAgent(self, name=name, description=description, checkpoint_storage=checkpoint_storage)

    def run_sync(self, message: Any = OMITTED, **options: Unpack[RunOptions]) -> WorkflowRunResult[OutputT]:
        """Call `run` in a program without an event loop. Raises RuntimeError inside one."""
        if _inside_a_loop():
            raise RuntimeError("run_sync() cannot be called inside a running event loop; use `await workflow.run(...)`")

        async def drive() -> WorkflowRunResult[OutputT]:
            return await self.run(message, **options)

        return asyncio.run(drive())

    def run_streaming(
        self, message: Any = OMITTED, **options: Unpack[StreamOptions]
    ) -> RunStream[WorkflowRunResult[OutputT]]:
        """Call `run(message, stream=True)`."""
        stream: RunStream[WorkflowRunResult[OutputT]] = self.run(message, stream=True, **options)
        return stream

    def run_stream_from_checkpoint(
        self, checkpoint_id: str, checkpoint_storage: StorageLike | None = None, **options: Any
    ) -> RunStream[WorkflowRunResult[OutputT]]:
        """Call `run(checkpoint_id=..., stream=True)`."""
        options |= {"checkpoint_id": checkpoint_id, "checkpoint_storage": checkpoint_storage}
        stream: RunStream[WorkflowRunResult[OutputT]] = self.run(stream=True, **options)
        return stream

    def _name_code(self, *words: str) -> None:
        """Say what names this workflow on the command line. New runs store it, for the commands that are suggested."""
        self._definition = replace(self._definition, code=words)

    def __repr__(self) -> str:
        return f"<Workflow {self.name!r}: {', '.join(self._graph.executors)}>"


def archives_on(storage: CheckpointStorage | None) -> Callable[[str, Codec, int | None], Archive]:
    """Return a function that opens the archives of a run and of its sub-workflow runs, all on one storage."""

    def archive(name: str, codec: Codec, needed: int | None) -> Archive:
        return UnstoredArchive() if storage is None else open_archive(storage, name, codec, needed=needed)

    return archive


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _complete(position: Position, by: str | None, *, only_head: bool) -> Position:
    position = replace(position, by=by)
    return replace(position, only_head=only_head) if isinstance(position, FromCheckpoint) else position
