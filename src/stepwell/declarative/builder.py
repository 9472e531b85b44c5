"""Say a workflow by the names of its agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Any, Self, get_args

from stepwell.declarative.binding import AgentFactory, Bindings
from stepwell.declarative.conditions.condition import CallableCondition, Condition
from stepwell.declarative.definition import (
    Approval,
    Conversation,
    Definition,
    Edge,
    ErrorMode,
    Node,
    OutputMode,
    Retries,
)
from stepwell.declarative.definition_store import load_definition
from stepwell.declarative.files.reader import from_json, from_yaml
from stepwell.declarative.instance import AgentWorkflowInstance, Stores, read_run_definition, run_storage
from stepwell.declarative.transcripts import JsonTranscriptStore, TranscriptStore
from stepwell.errors import DefinitionError
from stepwell.model.superstep import FullHistory, Retention
from stepwell.workflows.storage_options import StorageLike, storage_of

When = Condition | Callable[[Mapping[str, Any]], bool]


class From:
    """The beginning of an edge; `to` ends it."""

    def __init__(self, workflow: AgentWorkflow, sources: tuple[str, ...]) -> None:
        self._workflow, self._sources = workflow, sources

    def to(self, *targets: str, when: When | None = None) -> AgentWorkflow:
        """To each of these, if the condition holds for what the source gave."""
        condition = when if when is None or isinstance(when, Condition) else CallableCondition(when)
        return self._workflow._edge(Edge(self._sources, targets, condition))

    def otherwise(self, *targets: str) -> AgentWorkflow:
        """To these, if no other edge of the source is taken."""
        return self._workflow._edge(Edge(self._sources, targets, default=True))

    def by_type(self, routes: Mapping[type | str, str | Iterable[str]]) -> AgentWorkflow:
        """To the target of the type that the union output is of."""
        for kind, to in routes.items():
            targets = (to,) if isinstance(to, str) else tuple(to)
            name = kind if isinstance(kind, str) else kind.__name__
            self._workflow._edge(Edge(self._sources, targets, type=name))
        return self._workflow


class AgentWorkflow:
    """A workflow of named agents: `AgentWorkflow.create().add_agent("draft", writer)...build()`.

    Agents are known by their ids, what they give by keys, and when an edge is taken is data: so the whole of it can be
    stored, and a run goes on in a program that has only the agents.
    """

    def __init__(self) -> None:
        self._definition = Definition("agents", ())
        self._agents: dict[str, Any] = {}
        self._types: dict[str, type] = {}
        self._factory: AgentFactory | None = None
        self._stores = Stores()
        self._problems: list[str] = []

    @classmethod
    def create(cls) -> Self:
        """A new one, with nothing in it."""
        return cls()

    @classmethod
    def from_definition(cls, definition: Definition) -> Self:
        """One that says what a definition says; its agents are bound by `with_agents`."""
        workflow = cls()
        workflow._definition = definition
        return workflow

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """One that says what a JSON text says. Raises DefinitionError with every problem, and its line."""
        return cls.from_definition(from_json(text))

    @classmethod
    def from_yaml(cls, text: str | bytes) -> Self:
        """One that says what a YAML text says. Raises DefinitionError with every problem, and its line."""
        return cls.from_definition(from_yaml(text))

    @classmethod
    def load(cls, root: str | Path, name: str) -> Self:
        """One whose newest definition is kept in a JSON workflow store, which it uses too."""
        workflow = cls.from_json(load_definition(Path(root), name))
        return workflow.with_json_workflow_store(root, workflow._definition.retention)

    @classmethod
    async def of_run(cls, store: StorageLike | Path, run_id: str) -> Self:
        """The workflow of a stored run, as it was when the run began: bind its agents, build it, and resume the run.

        `store` is the storage of the run, or the directory of a JSON workflow store.
        """
        if isinstance(store, Path):
            workflow = cls.from_definition(await read_run_definition(run_storage(store), run_id))
            return workflow.with_json_workflow_store(store, workflow._definition.retention)
        storage = storage_of(store)
        if storage is None:
            raise DefinitionError(f"give the storage of run {run_id!r}, or the directory of its store as a Path")
        return cls.from_definition(await read_run_definition(storage, run_id)).with_workflow_store(storage)

    def with_agents(self, agents: Mapping[str, Any]) -> Self:
        """What the names of agents stand for."""
        self._agents |= agents
        return self

    def with_name(self, name: str) -> Self:
        """Its runs are found by this name."""
        return self._with(name=name)

    def with_description(self, description: str) -> Self:
        """What it is for."""
        return self._with(description=description)

    def with_checkpointing(self, enabled: bool = True) -> Self:
        """Commit every run to the workflow store: in memory, unless another is named."""
        return self._with(checkpointing=enabled)

    def with_in_memory_workflow_store(self, *, retention: Retention = FullHistory) -> Self:
        """Keep runs as long as this program lives."""
        self._stores = replace(self._stores, storage=None, root=None)
        return self._with(retention=retention)

    def with_json_workflow_store(self, root: str | Path, retention: Retention = FullHistory) -> Self:
        """Keep definitions and runs as JSON files in a directory."""
        self._stores = replace(self._stores, storage=None, root=Path(root))
        return self._with(retention=retention)

    def with_workflow_store(self, storage: StorageLike) -> Self:
        """Keep runs in this storage, SQLite or PostgreSQL for instance, which says itself what it keeps of each."""
        try:
            self._stores = replace(self._stores, storage=storage_of(storage), root=None)
        except DefinitionError as error:
            self._problems += error.problems
        return self

    def with_transcript_store(self, transcripts: TranscriptStore | str | Path) -> Self:
        """Keep what is said in conversations here, apart from the runs; a path is a directory of JSON files."""
        store = JsonTranscriptStore(Path(transcripts)) if isinstance(transcripts, (str, Path)) else transcripts
        self._stores = replace(self._stores, transcripts=store)
        return self

    def with_conversation(self, policy: Conversation) -> Self:
        """What agents remember of a session: "none", one "shared" thread, a thread "per-agent", a "fork" for each."""
        return self._with(conversation=policy)

    def with_max_iterations(self, max_iterations: int) -> Self:
        """How often a loop may run an agent."""
        return self._with(max_iterations=max_iterations)

    def with_timeout(self, seconds: float) -> Self:
        """How long a run may take in all."""
        return self._with(timeout=seconds)

    def with_agent_factory(self, factory: AgentFactory) -> Self:
        """Makes agents from the configurations of nodes."""
        self._factory = factory
        return self

    def with_types(self, *types: type) -> Self:
        """Types that outputs are of, known by their names."""
        for cls in types:
            if self._types.setdefault(cls.__name__, cls) is not cls:
                self._problems.append(f"two types are called {cls.__name__!r}: give one of them another name")
        return self

    def add_agent(
        self,
        id: str,
        agent: Any = None,
        *,
        input_key: str | None = None,
        input_template: str | None = None,
        context_keys: Iterable[str] = (),
        instructions: str | None = None,
        output_key: str | None = None,
        output: OutputMode | type | UnionType | Iterable[type] = "text",
        timeout: float | None = None,
        retry: Retries | None = None,
        on_error: ErrorMode = "stop",
        fallback: str | None = None,
        concurrency: int | None = None,
        approval: Approval | bool | None = None,
        default_target: str | None = None,
    ) -> Self:
        """Add an agent: an object that is one, an async function, the name it is bound by, or its configuration.

        `output` is a mode, a type (structured), or several types (union): the first that has all the keys.
        """
        mode, types = self._output_of(output)
        name, config = None, None
        if isinstance(agent, str):
            name = agent
        elif isinstance(agent, Mapping):
            config = dict(agent)
        elif agent is not None:
            self._agents[id] = agent
        node_approval = Approval() if approval is True else approval or None
        node = Node(
            id,
            name,
            config,
            input_key,
            input_template,
            tuple(context_keys),
            instructions,
            output_key,
            mode,
            types,
            default_target,
            timeout,
            retry,
            "fallback" if fallback is not None else on_error,
            fallback,
            concurrency,
            node_approval,
        )
        return self._with(nodes=(*self._definition.nodes, node))

    def add_router(self, id: str, agent: Any = None, *, default: str | None = None, **options: Any) -> Self:
        """Add an agent whose only job is to choose where its edges lead: it is given a tool for each target."""
        return self.add_agent(id, agent, output="handoff", default_target=default, **options)

    def from_(self, *sources: str) -> From:
        """An edge from each of these."""
        return From(self, sources)

    def build(self) -> AgentWorkflowInstance:
        """The workflow, ready to run. Raises DefinitionError with every problem at once."""
        if self._problems:
            raise DefinitionError(self._problems)
        bindings = Bindings(dict(self._agents), dict(self._types), self._factory, self._stores.transcripts)
        return AgentWorkflowInstance(self._definition, bindings, self._stores)

    def _edge(self, edge: Edge) -> Self:
        return self._with(edges=(*self._definition.edges, edge))

    def _with(self, **changes: Any) -> Self:
        self._definition = replace(self._definition, **changes)
        return self

    def _output_of(self, output: Any) -> tuple[OutputMode, tuple[str, ...]]:
        if isinstance(output, str):
            if output not in ("text", "structured", "union", "handoff"):
                self._problems.append(f"an output is text, structured, union or handoff, not {output!r}")
            return output, ()  # type: ignore[return-value]
        classes = get_args(output) or ((output,) if isinstance(output, type) else tuple(output))
        self.with_types(*classes)
        return ("structured" if len(classes) == 1 else "union"), tuple(cls.__name__ for cls in classes)
