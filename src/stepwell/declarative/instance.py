"""A workflow of named agents, ready to run: start it, watch it, answer it, go on with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from stepwell.codec.codec import Codec
from stepwell.declarative.binding import Bindings, bind
from stepwell.declarative.conductor import check_routes
from stepwell.declarative.definition import Definition
from stepwell.declarative.definition_store import save_definition
from stepwell.declarative.diagram import to_mermaid
from stepwell.declarative.events import ApprovalRequestedEvent, EventTranslator, NamedEvent
from stepwell.declarative.files.reader import from_json
from stepwell.declarative.files.writer import to_json, to_yaml
from stepwell.declarative.messages import BeginWorkflow, Outcome
from stepwell.declarative.schedule import NodeGraph
from stepwell.declarative.transcripts import TranscriptStore
from stepwell.errors import CheckpointMissing, DefinitionError
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.model.superstep import Checkpoint, FullHistory, Retention
from stepwell.storage.archive import Archive
from stepwell.storage.built_in_storage import BuiltInStorage, open_archive
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.storage.ids import new_run_id
from stepwell.workflows.storage_options import STORAGE_FACTORIES
from stepwell.workflows.workflow import Workflow


@dataclass(frozen=True)
class Stores:
    """Where runs, definitions and conversations are kept."""

    storage: CheckpointStorage | None = None  # of runs,
    root: Path | None = None  # or the directory of definitions and runs
    transcripts: TranscriptStore | None = None


@dataclass(frozen=True)
class AgentWorkflowResult:
    """What a run came to, or what it waits for."""

    execution_id: str
    status: WorkflowRunState
    outcome: Outcome | None  # None: it is not over
    requests: Mapping[str, Any] = field(default_factory=dict)  # what is asked, by the ids to answer to

    @property
    def output(self) -> Any:
        """What the last agent gave; of several, by their ids. None if the run is not over."""
        return None if self.outcome is None else self.outcome.output

    @property
    def values(self) -> Mapping[str, Any]:
        """Everything that agents gave, by keys."""
        return {} if self.outcome is None else self.outcome.values


class AgentWorkflowStream:
    """The events of a run as they become true: iterate it; await it for the result.

    The run moves only as far as it is read. Left early, by `async with` or `aclose`, it stops at its last commit.
    """

    def __init__(
        self, events: AsyncGenerator[WorkflowEvent, None], translator: EventTranslator, execution_id: str
    ) -> None:
        self._events, self._translator = self._translate(events), translator
        self._execution_id = execution_id
        self._status = WorkflowRunState.IN_PROGRESS
        self._requests: dict[str, Any] = {}

    def __aiter__(self) -> AsyncIterator[NamedEvent]:
        return self._events

    def __await__(self) -> Generator[Any, None, AgentWorkflowResult]:
        return self._collect().__await__()

    async def aclose(self) -> None:
        """Leave: the run stops where it is, and can be resumed."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def _translate(self, events: AsyncGenerator[WorkflowEvent, None]) -> AsyncGenerator[NamedEvent, None]:
        async with aclosing(events):
            async for event in events:
                if event.type == "status" and event.state is not None and not event.path:
                    self._status = event.state
                for translated in self._translator.translate(event):
                    if isinstance(translated, ApprovalRequestedEvent):
                        self._requests[translated.request_id] = translated.data
                    yield translated

    async def _collect(self) -> AgentWorkflowResult:
        async for _ in self._events:
            pass
        return AgentWorkflowResult(self._execution_id, self._status, self._translator.outcome, self._requests)


class AgentWorkflowInstance:
    """An immutable workflow of named agents. One object serves any number of runs at once, each with its id."""

    def __init__(self, definition: Definition, bindings: Bindings, stores: Stores) -> None:
        self.definition = definition
        self.storage = choose_storage(definition, stores)
        self.workflow: Workflow = bind(definition, bindings, self.storage)
        self._graph = NodeGraph(definition)
        try:
            self._text = to_json(definition)
        except DefinitionError:  # it has a callable: its runs go on only in a program that builds it
            self._text = ""
        if stores.root is not None and definition.checkpointing and self._text:
            save_definition(stores.root, definition.name, self._text)

    def run(
        self,
        input: Any = None,
        *,
        execution_id: str | None = None,
        session_id: str | None = None,
        private: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        checkpoint_events: bool = False,
    ) -> AgentWorkflowStream:
        """Start a run: `result = await workflow.run("...")`, or iterate it for its events.

        If `execution_id` names a stored run that began with the same input, it goes on. Conversations are kept by
        `session_id`; a run without one has its own.
        """
        run_id = execution_id or new_run_id()
        translator = self._make_translator(run_id, checkpoint_events)

        async def events() -> AsyncGenerator[WorkflowEvent, None]:
            stored = None if execution_id is None else await self._head(run_id)
            begin = self._first_message(stored, input, session_id or run_id)
            if stored is not None:
                translator.restore(self._node_states(stored))
            async with self.workflow.run_streaming(begin, run_id=run_id, private=private, tags=tags) as stream:
                async for event in stream:
                    yield event

        return AgentWorkflowStream(events(), translator, run_id)

    def resume(
        self,
        execution_id: str,
        *,
        responses: Mapping[str, Any] | None = None,
        private: Mapping[str, Any] | None = None,
        checkpoint_events: bool = False,
    ) -> AgentWorkflowStream:
        """Go on with a run where it was, perhaps with answers to what it asks."""
        translator = self._make_translator(execution_id, checkpoint_events)

        async def events() -> AsyncGenerator[WorkflowEvent, None]:
            stored = await self._head(execution_id)
            if stored is not None:  # if not, the engine says so
                translator.restore(self._node_states(stored))
            options: dict[str, Any] = {"run_id": execution_id, "responses": responses, "private": private}
            async with self.workflow.run_streaming(**options) as stream:
                async for event in stream:
                    yield event

        return AgentWorkflowStream(events(), translator, execution_id)

    async def beginning(self, input: Any, run_id: str, storage: CheckpointStorage) -> BeginWorkflow:
        """The message that a run of `workflow` begins with on a storage of the caller's own; if it is there already,
        the one that it was begun with, provided the input is the same."""
        stored = await self._archive_on(storage).head(run_id)
        if stored is not None:
            self.check(stored)
        return self._first_message(stored, input, run_id)

    def check(self, stored: Checkpoint) -> None:
        """Raises GraphChanged if a stored run was begun with other edges."""
        self._node_states(stored)

    def _first_message(self, stored: Checkpoint | None, input: Any, session_id: str) -> BeginWorkflow:
        begin = self.begin(input, session_id)  # what a stored run began with is not what it is now
        return begin if stored is None else replace(begin, definition=read_definition_text(stored))

    async def _head(self, execution_id: str) -> Checkpoint | None:
        return None if self.storage is None else await self._archive_on(self.storage).head(execution_id)

    def _archive_on(self, storage: CheckpointStorage) -> Archive:
        return open_archive(storage, self.definition.name, self.workflow._definition.codec)

    def _node_states(self, head: Checkpoint) -> dict[str, str]:
        """Where the nodes of a stored run are. Raises GraphChanged if it was begun with other edges."""
        if "begun" not in head.state:
            return {}
        check_routes(head.state["begun"].open().ways, self._graph, head.run_id)
        states = {id: head.state.get(f"nodes/{id}") for id in self._graph.ids}
        return {id: state.open().status for id, state in states.items() if state is not None}

    def begin(self, input: Any, session_id: str) -> BeginWorkflow:
        """The message that a run of `workflow` begins with."""
        return BeginWorkflow(input, self._text, session_id)

    def to_json(self) -> str:
        """The definition as JSON text. Raises DefinitionError naming what cannot be exported."""
        return to_json(self.definition)

    def to_yaml(self) -> str:
        """The definition as YAML text. Raises DefinitionError naming what cannot be exported."""
        return to_yaml(self.definition)

    def to_mermaid(self) -> str:
        """A picture of it, with the conditions on the edges."""
        return to_mermaid(self.definition)

    def _make_translator(self, execution_id: str, checkpoints: bool) -> EventTranslator:
        return EventTranslator(self.definition, execution_id, checkpoints=checkpoints)

    def __repr__(self) -> str:
        return f"<AgentWorkflow {self.definition.name!r}: {', '.join(node.id for node in self.definition.nodes)}>"


def choose_storage(definition: Definition, stores: Stores) -> CheckpointStorage | None:
    """Where runs are kept, if they are."""
    if not definition.checkpointing:
        if stores.storage is not None or stores.root is not None:
            raise DefinitionError("a workflow store was named, but checkpointing is off: call with_checkpointing()")
        return None
    if stores.storage is not None:
        return stores.storage
    if stores.root is not None:
        return run_storage(stores.root, definition.retention)
    return STORAGE_FACTORIES["memory"](retention=definition.retention)


def run_storage(root: Path, retention: Retention = FullHistory) -> CheckpointStorage:
    """The runs in a JSON workflow store."""
    return STORAGE_FACTORIES["files"](root / "runs", retention=retention)


def read_definition_text(head: Checkpoint) -> str:
    """The text of the definition that a stored run began with; empty if it could not be written."""
    if "definition" in head.state:
        return str(head.state["definition"].open())
    payloads = [message.payload.open() for message in head.messages]  # it has not begun yet: its first message holds it
    return next((payload.definition for payload in payloads if isinstance(payload, BeginWorkflow)), "")


async def read_run_definition(storage: CheckpointStorage, execution_id: str) -> Definition:
    """The definition that a run was begun with. Raises CheckpointMissing if there is no such run."""
    if not isinstance(storage, BuiltInStorage):
        raise DefinitionError(
            f"{type(storage).__name__} does not find runs by their ids alone: resume {execution_id!r} with the program "
            f"that built its workflow"
        )
    head = await open_archive(storage, "", Codec([BeginWorkflow])).head(execution_id)
    if head is None:
        raise CheckpointMissing(f"run {execution_id!r} is not stored here")
    text = read_definition_text(head)
    if not text:
        raise DefinitionError(
            f"run {execution_id!r} was begun by a workflow that cannot be stored, because it has a callable as a "
            f"condition, or something live in a configuration: resume it with the program that built it"
        )
    return from_json(text)
