"""From a definition to a workflow that runs: agents, types and transcripts are bound to the names in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepwell.agents.agent_types import agent_of
from stepwell.codec.class_kinds import is_storable
from stepwell.codec.codec import register_checkpoint_type
from stepwell.declarative.conductor import Conductor
from stepwell.declarative.definition import Definition, Node
from stepwell.declarative.node import NodeExecutor, handoff_tools
from stepwell.declarative.schedule import NodeGraph
from stepwell.declarative.transcripts import InMemoryTranscriptStore, Threads, TranscriptStore
from stepwell.declarative.validation import find_problems
from stepwell.declarative.workflow_node import TeamNode, inner_id
from stepwell.errors import DefinitionError
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.workflows.builder import WorkflowBuilder
from stepwell.workflows.subworkflow_agent import WorkflowAgentExecutor
from stepwell.workflows.workflow import Workflow
from stepwell.workflows.workflow_agent import WorkflowAgent

AgentFactory = Callable[[Mapping[str, Any]], Any]
"""Makes an agent from the configuration of a node."""


@dataclass(frozen=True)
class Bindings:
    """What the names in a definition stand for in this program."""

    agents: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, type] = field(default_factory=dict)
    factory: AgentFactory | None = None
    transcripts: TranscriptStore | None = None


def bind(definition: Definition, bindings: Bindings, storage: CheckpointStorage | None) -> Workflow:
    """The workflow. Raises DefinitionError with everything that is wrong or not bound."""
    problems = [text for _, text in find_problems(definition)]
    agents: dict[str, Any] = {}
    for node in definition.nodes:
        try:
            agents[node.id] = _find_agent(node, bindings)
        except DefinitionError as error:
            problems += error.problems
    named = {name for node in definition.nodes for name in node.output_types}
    problems += [
        f"the type {name!r} is not bound: give the class of that name to with_types(...)"
        for name in sorted(named - {*bindings.types})
    ]
    if problems:
        raise DefinitionError(list(dict.fromkeys(problems)))
    for name in named:
        if is_storable(bindings.types[name]):  # so that what was stored is read, wherever the class was made
            register_checkpoint_type(bindings.types[name])
    return _wire(definition, bindings, agents, storage)


def _find_agent(node: Node, bindings: Bindings) -> Any:
    if node.config is not None:
        if bindings.factory is None:
            raise DefinitionError(
                f"{node.id!r} has a configuration, and nothing makes an agent of it: with_agent_factory(...)"
            )
        return _as_agent(node, bindings.factory(node.config))
    if node.bound_by not in bindings.agents:
        names = ", ".join(map(repr, bindings.agents)) or "none"
        raise DefinitionError(f"the agent {node.bound_by!r} is not bound: with_agents({{...}}); there are {names}")
    return _as_agent(node, bindings.agents[node.bound_by])


def _as_agent(node: Node, agent: Any) -> Any:
    """An agent, or a workflow that stands for one."""
    if not isinstance(agent, WorkflowAgent):
        return agent_of(agent)
    options = [name for name in ("timeout", "retry", "concurrency", "fallback") if getattr(node, name) is not None]
    options += ["on_error"] if node.on_error in ("skip", "isolate") else []
    options += ["output"] if node.output_mode == "handoff" else []
    if options:
        raise DefinitionError(
            f"{node.id!r} is a workflow, and cannot have {', '.join(options)}: give them to what is inside of it"
        )
    return agent


def _wire(
    definition: Definition, bindings: Bindings, agents: Mapping[str, Any], storage: CheckpointStorage | None
) -> Workflow:
    threads = None
    if definition.conversation != "none":
        threads = Threads(definition.conversation, bindings.transcripts or InMemoryTranscriptStore())
    graph = NodeGraph(definition)
    conductor = Conductor(graph)
    builder = WorkflowBuilder(
        100 + 6 * len(definition.nodes) * definition.max_iterations,  # its own limit ends a loop long before
        definition.name,
        definition.description,
        start_executor=conductor,
        checkpoint_storage=storage,
        output_from=[conductor],
    )
    builder.add_edge(conductor, conductor)
    for executor in [_make_node(graph, node, agents[node.id], bindings, threads) for node in definition.nodes]:
        builder.add_edge(conductor, executor).add_edge(executor, conductor)
        if isinstance(executor, TeamNode):
            team = WorkflowAgentExecutor(agents[executor.id], inner_id(executor.id))
            builder.add_edge(executor, team).add_edge(team, executor)
    return builder.build()


def _make_node(graph: NodeGraph, node: Node, agent: Any, bindings: Bindings, threads: Threads | None) -> NodeExecutor:
    if isinstance(agent, WorkflowAgent):
        return TeamNode(graph, node, bindings.types, threads)
    handoffs: dict[str, str] = {}
    if node.output_mode == "handoff":
        for tool, target in handoff_tools(graph, node.id).items():
            description = getattr(bindings.agents.get(graph.definition.node(target).bound_by), "description", None)
            handoffs[tool] = description or f"Hand over to {target}."
    return NodeExecutor(graph, node, agent, bindings.types, threads, handoffs)
