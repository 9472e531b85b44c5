"""The builder of workflows of named agents: `AgentWorkflow.create().add_agent(...)...build()`."""

from __future__ import annotations

import os
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
from stepwell.model.checkpoint import FullHistory, Retention
from stepwell.workflows.storage_options import StorageLike, is_folder, storage_of

When = Condition | Callable[[Mapping[str, Any]], bool]


class From:
    """The sources of an edge; `to`, `otherwise` and `by_type` complete it."""

    def __init__(self, workflow: AgentWorkflow, sources: tuple[str, ...]) -> None:
        self._workflow, self._sources = workflow, sources

    def to(self, *targets: str, when: When | None = None) -> AgentWorkflow:
        """Lead to each target, if the condition holds for the values after the source has run."""
        condition = when if when is None or isinstance(when, Condition) else CallableCondition(when)
        return self._workflow._edge(Edge(self._sources, targets, condition))

    def otherwise(self, *targets: str) -> AgentWorkflow:
        """Lead to these targets if no other edge of the source is taken."""
        return self._workflow._edge(Edge(self._sources, targets, default=True))

    def by_type(self, routes: Mapping[type | str, str | Iterable[str]]) -> AgentWorkflow:
        """Lead to the target that is given for the type of the source's union output."""
        for kind, to in routes.items():
            targets = (to,) if isinstance(to, str) else tuple(to)
            name = kind if isinstance(kind, str) else kind.__name__
            self._workflow._edge(Edge(self._sources, targets, type=name))
        return self._workflow


class AgentWorkflow:
    """A workflow of named agents: `AgentWorkflow.create().add_agent("draft", writer)...build()`.

    Agents have ids, their outputs have keys, and conditions are data. So the definition can be
    stored with each run, and a program that only has the agents can resume it.
    """

    def __init__(self) -> None:
        self._definition = Definition("agents", ())
        self._agents, self._types = dict[str, Any](), dict[str, type]()
        self._bindings, self._stores = Bindings(), Stores()
        self._problems: list[str] = []

    @classmethod
    def create(cls) -> Self:
        """Create an empty workflow."""
        return cls()

    @classmethod
    def from_definition(cls, definition: Definition) -> Self:
        """Create a workflow from a definition; bind its agents with `with_agents`."""
        workflow = cls()
        workflow._definition = definition
        return workflow

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Create a workflow from JSON. Raises DefinitionError with every problem and its line."""
        return cls.from_definition(from_json(text))

    @classmethod
    def from_yaml(cls, text: str | bytes) -> Self:
        """Create a workflow from YAML. Raises DefinitionError with every problem and its line."""
        return cls.from_definition(from_yaml(text))

    @classmethod
    def load(cls, root: str | Path, name: str) -> Self:
        """Load the newest definition of `name` from a JSON workflow store, and use that store.

        Raises FileNotFoundError if the store has no definition of that name.
        """
        workflow = cls.from_json(load_definition(Path(root), name))
        return workflow.with_json_workflow_store(root, workflow._definition.retention)

    @classmethod
    async def of_run(cls, store: StorageLike, run_id: str) -> Self:
        """Load the workflow of a stored run, as it was when the run started.

        Bind its agents, build it, and resume the run. `store` is the storage of the run, or the
        directory of a JSON workflow store. Raises CheckpointMissing if there is no such run, and
        DefinitionError if its definition was not stored with it.
        """
        if isinstance(store, str | os.PathLike) and is_folder(store):
            root = Path(store)
            workflow = cls.from_definition(await read_run_definition(run_storage(root), run_id))
            return workflow.with_json_workflow_store(root, workflow._definition.retention)
        storage = storage_of(store)
        if storage is None:
            raise DefinitionError(f"pass the storage of run {run_id!r}, or the directory of its store")
        return cls.from_definition(await read_run_definition(storage, run_id)).with_workflow_store(storage)

    def with_agents(self, agents: Mapping[str, Any]) -> Self:
        """Bind agents to names. Agents bound before under other names stay bound."""
        self._agents |= agents
        return self

    def with_name(self, name: str) -> Self:
        """Set the name of the workflow, by which its runs are found."""
        return self._with(name=name)

    def with_description(self, description: str) -> Self:
        """Describe what the workflow is for."""
        return self._with(description=description)

    def with_checkpointing(self, enabled: bool = True) -> Self:
        """Commit every run to the workflow store, which is in memory unless another is set."""
        return self._with(checkpointing=enabled)

    def with_in_memory_workflow_store(self, *, retention: Retention = FullHistory) -> Self:
        """Store runs in memory, as long as the built workflow lives."""
        self._stores = replace(self._stores, storage=None, root=None)
        return self._with(retention=retention)

    def with_json_workflow_store(self, root: str | Path, retention: Retention = FullHistory) -> Self:
        """Store definitions and runs as JSON files in a directory."""
        self._stores = replace(self._stores, storage=None, root=Path(root))
        return self._with(retention=retention)

    def with_workflow_store(self, storage: StorageLike) -> Self:
        """Store runs in this storage, for example SQLite or PostgreSQL.

        Its own retention applies.
        """
        try:
            self._stores = replace(self._stores, storage=storage_of(storage), root=None)
        except DefinitionError as error:
            # Collected, so that `build` reports everything at once.
            self._problems += error.problems
        return self

    def with_transcript_store(self, transcripts: TranscriptStore | str | Path) -> Self:
        """Store conversations here, separately from runs; a path is a directory of JSON files."""
        store = JsonTranscriptStore(Path(transcripts)) if isinstance(transcripts, (str, Path)) else transcripts
        self._bindings = replace(self._bindings, transcripts=store)
        return self

    def with_conversation(self, policy: Conversation) -> Self:
        """Set what agents remember of a session.

        "none": nothing; "shared": one thread for all; "per-agent": a thread for each agent; "fork":
        a thread for each agent that starts as a copy of the shared one.
        """
        return self._with(conversation=policy)

    def with_max_iterations(self, max_iterations: int) -> Self:
        """Limit how often one run may run the same agent."""
        return self._with(max_iterations=max_iterations)

    def with_timeout(self, seconds: float) -> Self:
        """Limit how long a run may take in total, in seconds."""
        return self._with(timeout=seconds)

    def with_agent_factory(self, factory: AgentFactory) -> Self:
        """Set the function that makes agents from the configurations of nodes."""
        self._bindings = replace(self._bindings, factory=factory)
        return self

    def with_types(self, *types: type) -> Self:
        """Bind the types of outputs to their class names."""
        for cls in types:
            if self._types.setdefault(cls.__name__, cls) is not cls:
                self._problems.append(f"two types are called {cls.__name__!r}: rename one of them")
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
        """Add a node with an agent.

        `agent` is an agent object, an async function, the name it is bound by (default: the id), or
        a configuration for the agent factory. `output` is a mode, a type (structured) or several
        types (union). A `fallback` sets `on_error` to "fallback".
        """
        mode, types = self._output_of(output)
        if agent is not None and not isinstance(agent, str | Mapping):
            self._agents[id] = agent
        node = Node(
            id,
            agent if isinstance(agent, str) else None,
            config=dict(agent) if isinstance(agent, Mapping) else None,
            input_key=input_key,
            input_template=input_template,
            context_keys=tuple(context_keys),
            instructions=instructions,
            output_key=output_key,
            output_mode=mode,
            output_types=types,
            default_target=default_target,
            timeout=timeout,
            retry=retry,
            on_error="fallback" if fallback is not None else on_error,
            fallback=fallback,
            concurrency=concurrency,
            approval=Approval() if approval is True else approval or None,
        )
        return self._with(nodes=(*self._definition.nodes, node))

    def add_router(self, id: str, agent: Any = None, *, default: str | None = None, **options: Any) -> Self:
        """Add an agent that chooses the next agent: it gets one handoff tool for each target.

        `default` is the target if it calls no tool; `options` are those of `add_agent`.
        """
        return self.add_agent(id, agent, output="handoff", default_target=default, **options)

    def from_(self, *sources: str) -> From:
        """Start an edge from each of these agents."""
        return From(self, sources)

    def build(self) -> AgentWorkflowInstance:
        """Build the workflow. Raises DefinitionError with every problem at once."""
        if self._problems:
            raise DefinitionError(self._problems)
        bindings = replace(self._bindings, agents=dict(self._agents), types=dict(self._types))
        return AgentWorkflowInstance(self._definition, bindings, self._stores)

    def _edge(self, edge: Edge) -> Self:
        return self._with(edges=(*self._definition.edges, edge))

    def _with(self, **changes: Any) -> Self:
        self._definition = replace(self._definition, **changes)
        return self

    def _output_of(self, output: Any) -> tuple[OutputMode, tuple[str, ...]]:
        if isinstance(output, str):
            if output not in ("text", "structured", "union", "handoff"):
                self._problems.append(
                    f"output must be 'text', 'structured', 'union', 'handoff' or types, not {output!r}"
                )
            return output, ()  # type: ignore[return-value]
        # `A | B` has its classes as arguments; a list of classes is taken as it is.
        classes = get_args(output) or ((output,) if isinstance(output, type) else tuple(output))
        self.with_types(*classes)
        return ("structured" if len(classes) == 1 else "union"), tuple(cls.__name__ for cls in classes)
