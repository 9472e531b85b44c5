"""A built workflow of named agents: start runs, stream their events, respond, resume.

A run stores its definition, so `read_run_definition` can rebuild the workflow in another program.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from stepwell.codec.codec import Codec
from stepwell.declarative.binding import Bindings, bind
from stepwell.declarative.conductor import NODES, check_routes
from stepwell.declarative.definition import Definition
from stepwell.declarative.definition_store import save_definition
from stepwell.declarative.diagram import diagram_of_nodes, graph_of_nodes, to_mermaid
from stepwell.declarative.events import ApprovalRequestedEvent, EventTranslator, NamedEvent
from stepwell.declarative.files.reader import from_json
from stepwell.declarative.files.writer import to_json, to_yaml
from stepwell.declarative.messages import AgentWorkflowOutcome, BeginWorkflow, NodeApprovalRequest
from stepwell.declarative.node_graph import NodeGraph
from stepwell.declarative.schedule import SETTLED
from stepwell.declarative.stored_run import values_of
from stepwell.engine.drive.run_stream import RunStream
from stepwell.errors import CheckpointMissing, DefinitionError
from stepwell.model.checkpoint import Checkpoint, FullHistory, Retention
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.storage.archive import Archive
from stepwell.storage.archive_choice import open_archive
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.ids import new_run_id
from stepwell.viz.diagram import Diagram
from stepwell.viz.notebook import NotebookDrawing, result_html
from stepwell.viz.progress import Progress
from stepwell.workflows.result import WorkflowRunResult
from stepwell.workflows.storage_options import STORAGE_FACTORIES
from stepwell.workflows.workflow import Workflow


@dataclass(frozen=True)
class Stores:
    """Where runs and definitions are stored.

    At most one of `storage` and `root` is set.
    """

    storage: CheckpointStorage | None = None  # of runs alone
    root: Path | None = None  # the directory of a JSON workflow store: definitions and runs


@dataclass(frozen=True)
class AgentWorkflowResult:
    """The result of a run, or what it waits for."""

    run_id: str
    status: WorkflowRunState
    outcome: AgentWorkflowOutcome | None  # None: the run has not completed
    requests: Mapping[str, Any] = field(default_factory=dict)  # pending requests by id
    values: Mapping[str, Any] = field(default_factory=dict)  # all values of the run by key, as of its last commit
    statuses: Mapping[str, str] = field(default_factory=dict)  # of the nodes that something is known of
    graph: Mapping[str, Any] = field(default_factory=dict, repr=False)  # start, executors, edges: what a notebook draws

    @property
    def output(self) -> Any:
        """The output of the last agent; if there are several, a mapping by id.

        None until the run completes.
        """
        return None if self.outcome is None else self.outcome.output

    def _repr_html_(self) -> str:
        outputs = [] if self.outcome is None else [self.outcome.output]
        return result_html(self.graph, self._progress(), run_id=self.run_id, state=self.status, outputs=outputs)

    def _progress(self) -> Progress:
        settled = {status: frozenset(n for n, s in self.statuses.items() if s == status) for status in SETTLED}
        asking = [request.node for request in self.requests.values() if isinstance(request, NodeApprovalRequest)]
        ran = dict.fromkeys(settled["succeeded"], 1)
        return Progress(ran, settled["failed"], frozenset(asking), skipped=settled["skipped"])


class AgentWorkflowStream:
    """The events of a run: iterate over it, or await it for the result.

    The run advances only as far as the stream is read. Closed early, by `async with` or `aclose`,
    the run stops at its last commit.
    """

    def __init__(
        self,
        events: AsyncGenerator[WorkflowEvent, None],
        translator: EventTranslator,
        run_id: str,
        *,
        read_values: Callable[[], Awaitable[Mapping[str, Any]]],
        graph: Mapping[str, Any],
    ) -> None:
        self._events, self._translator = self._translate(events), translator
        self._run_id, self._read_values, self._graph = run_id, read_values, graph
        self._status = WorkflowRunState.IN_PROGRESS
        self._requests: dict[str, Any] = {}

    def __aiter__(self) -> AsyncIterator[NamedEvent]:
        return self._events

    def __await__(self) -> Generator[Any, None, AgentWorkflowResult]:
        return self._collect().__await__()

    async def aclose(self) -> None:
        """Close the stream: the run stops at its last commit and can be resumed."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def _translate(self, events: AsyncGenerator[WorkflowEvent, None]) -> AsyncGenerator[NamedEvent, None]:
        async with aclosing(events):
            async for event in events:
                # A status with a path is that of a workflow inside a node.
                if event.type == "status" and event.state is not None and not event.path:
                    self._status = event.state
                for translated in self._translator.translate(event):
                    if isinstance(translated, ApprovalRequestedEvent):
                        self._requests[translated.request_id] = translated.data
                    yield translated

    async def _collect(self) -> AgentWorkflowResult:
        async for _ in self._events:
            pass
        outcome = self._translator.outcome
        values = await self._read_values() if outcome is None else outcome.values
        statuses = dict(self._translator.statuses)
        return AgentWorkflowResult(
            self._run_id, self._status, outcome, self._requests, values=values, statuses=statuses, graph=self._graph
        )


class AgentWorkflowInstance(NotebookDrawing):
    """An immutable workflow of named agents. One instance serves any number of concurrent runs."""

    def __init__(self, definition: Definition, bindings: Bindings, stores: Stores) -> None:
        self.definition = definition
        self.storage = choose_storage(definition, stores)
        self.workflow: Workflow = bind(definition, bindings, self.storage)
        self._graph = NodeGraph(definition)
        try:
            self._text = to_json(definition)
        except DefinitionError:
            # A callable condition or a live object cannot be exported. The workflow runs all the
            # same; its runs can be resumed only by a program that builds it.
            self._text = ""
        if stores.root is not None and definition.checkpointing and self._text:
            save_definition(stores.root, definition.name, self._text)

    def run(
        self,
        input: Any = None,
        *,
        run_id: str | None = None,
        session_id: str | None = None,
        private: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        checkpoint_events: bool = False,
    ) -> AgentWorkflowStream:
        """Start a run: `result = await workflow.run("...")`, or iterate over it for its events.

        If `run_id` names a stored run that started with the same input, that run is resumed.
        Conversations are stored by `session_id`; without one, the run has a session to itself.
        """
        id = run_id or new_run_id()

        def start(stored: Checkpoint | None) -> RunStream[WorkflowRunResult]:
            message = self._first_message(stored, input, session_id or id)
            return self.workflow.run_streaming(message, run_id=id, private=private, tags=tags, nested=True)

        # Only an id passed by the caller can name a stored run.
        return self._drive(id, start, checkpoint_events, may_be_stored=run_id is not None)

    def resume(
        self,
        run_id: str,
        *,
        responses: Mapping[str, Any] | None = None,
        private: Mapping[str, Any] | None = None,
        checkpoint_events: bool = False,
    ) -> AgentWorkflowStream:
        """Resume a stored run, optionally with responses to its requests by id."""

        def resume(stored: Checkpoint | None) -> RunStream[WorkflowRunResult]:
            # If there is no such run, the engine raises the error.
            return self.workflow.run_streaming(run_id=run_id, responses=responses, private=private, nested=True)

        return self._drive(run_id, resume, checkpoint_events)

    def _drive(
        self,
        run_id: str,
        open_stream: Callable[[Checkpoint | None], RunStream[WorkflowRunResult]],
        checkpoint_events: bool,
        *,
        may_be_stored: bool = True,
    ) -> AgentWorkflowStream:
        translator = EventTranslator(self.definition, run_id, checkpoints=checkpoint_events)

        async def events() -> AsyncGenerator[WorkflowEvent, None]:
            storage = self.storage if may_be_stored else None
            stored = None if storage is None else await self._archive_on(storage).head(run_id)
            if stored is not None:
                translator.restore(self._node_states(stored))
            async with open_stream(stored) as stream:
                async for event in stream:
                    yield event

        async def read_values() -> Mapping[str, Any]:
            waiting = self.workflow._waiting.get(run_id)
            kept = None if waiting is None else waiting.archive  # of a run without a storage
            archive = kept if self.storage is None else self._archive_on(self.storage)
            head = await archive.head(run_id) if archive is not None else None
            state = {} if head is None else head.state
            return {key: value.open() for key, value in values_of(state).items()}

        return AgentWorkflowStream(
            events(), translator, run_id, read_values=read_values, graph=graph_of_nodes(self._graph)
        )

    async def find_start_message(self, input: Any, run_id: str, storage: CheckpointStorage) -> BeginWorkflow:
        """Return the first message of a run of `workflow` on the caller's own storage.

        If the run is stored already, the message carries the definition that the run started with,
        so that the engine recognises it as the same input. Raises GraphChanged if the edges differ.
        """
        stored = await self._archive_on(storage).head(run_id)
        if stored is not None:
            self.check(stored)
        return self._first_message(stored, input, run_id)

    def check(self, stored: Checkpoint) -> None:
        """Raise GraphChanged if a stored run started with other edges."""
        self._node_states(stored)

    def _first_message(self, stored: Checkpoint | None, input: Any, session_id: str) -> BeginWorkflow:
        message = self.make_start_message(input, session_id)
        # The engine compares the input with the stored one. The definition may have changed since
        # (in timeouts, for example), so a stored run is given its own.
        return message if stored is None else replace(message, definition=read_definition_text(stored))

    def _archive_on(self, storage: CheckpointStorage) -> Archive:
        return open_archive(storage, self.definition.name, self.workflow._definition.codec)

    def _node_states(self, head: Checkpoint) -> dict[str, str]:
        """Return the node statuses of a stored run.

        Raises GraphChanged if it started with other edges.
        """
        # Committed, but the conductor has not handled the first message yet.
        if "begun" not in head.state:
            return {}
        check_routes(head.state["begun"].open().ways, self._graph, head.run_id)
        states = {id: head.state.get(NODES + id) for id in self._graph.ids}
        return {id: state.open().status for id, state in states.items() if state is not None}

    def make_start_message(self, input: Any, session_id: str) -> BeginWorkflow:
        """Make the first message of a run of `workflow`."""
        return BeginWorkflow(input, self._text, session_id)

    def to_json(self) -> str:
        """Export the definition as JSON. Raises DefinitionError naming what cannot be exported."""
        return to_json(self.definition)

    def to_yaml(self) -> str:
        """Export the definition as YAML. Raises DefinitionError naming what cannot be exported."""
        return to_yaml(self.definition)

    def to_mermaid(self) -> str:
        """Draw the workflow as a Mermaid flowchart, with conditions as labels."""
        return to_mermaid(self.definition)

    def diagram(self) -> Diagram:
        """Return the nodes and edges of the definition, for `WorkflowViz`."""
        return diagram_of_nodes(self._graph)

    def __repr__(self) -> str:
        return f"<AgentWorkflow {self.definition.name!r}: {', '.join(node.id for node in self.definition.nodes)}>"


def choose_storage(definition: Definition, stores: Stores) -> CheckpointStorage | None:
    """Return the storage of runs; None if checkpointing is off.

    Raises DefinitionError if a store is set although checkpointing is off.
    """
    if not definition.checkpointing and (stores.storage is not None or stores.root is not None):
        raise DefinitionError("a workflow store is set, but checkpointing is off: call with_checkpointing()")
    if not definition.checkpointing or stores.storage is not None:
        return stores.storage
    if stores.root is not None:
        return run_storage(stores.root, definition.retention)
    return STORAGE_FACTORIES["memory"](retention=definition.retention)


def run_storage(root: Path, retention: Retention = FullHistory) -> CheckpointStorage:
    """Return the storage of the runs in a JSON workflow store."""
    return STORAGE_FACTORIES["files"](root / "runs", retention=retention)


def read_definition_text(head: Checkpoint) -> str:
    """Return the definition that a stored run started with as JSON; empty if it was not stored."""
    if "definition" in head.state:
        return str(head.state["definition"].open())
    # The conductor has not handled the first message yet, so it is still in flight.
    payloads = [message.payload.open() for message in head.messages]
    return next((payload.definition for payload in payloads if isinstance(payload, BeginWorkflow)), "")


async def read_run_definition(storage: CheckpointStorage, run_id: str) -> Definition:
    """Read the definition that a run started with.

    Raises CheckpointMissing if there is no such run, and DefinitionError if its definition was not
    stored.
    """
    if not isinstance(storage, BuiltInStorage):
        raise DefinitionError(
            f"{type(storage).__name__} cannot find a run by its id alone: resume {run_id!r} with the program that "
            f"built its workflow"
        )
    head = await open_archive(storage, "", Codec([BeginWorkflow])).head(run_id)
    if head is None:
        raise CheckpointMissing(f"run {run_id!r} is not stored here")
    text = read_definition_text(head)
    if not text:
        raise DefinitionError(
            f"the definition of run {run_id!r} was not stored, because it has a callable condition or a live "
            f"object in a configuration: resume it with the program that built it"
        )
    return from_json(text)
