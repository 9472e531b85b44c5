"""Build a runnable workflow from a definition.

Agents and types are bound to the names in the definition. The result is a star: a conductor in the
middle, and an executor for each node that talks to the conductor only.
"""

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
from stepwell.declarative.node_graph import NodeGraph
from stepwell.declarative.transcripts import InMemoryTranscriptStore, Threads, TranscriptStore
from stepwell.declarative.validation import find_problems
from stepwell.declarative.workflow_node import WorkflowNode, inner_id
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
    """The agents, types and stores of this program, by the names a definition uses."""

    agents: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, type] = field(default_factory=dict)
    factory: AgentFactory | None = None
    transcripts: TranscriptStore | None = None


def bind(definition: Definition, bindings: Bindings, storage: CheckpointStorage | None) -> Workflow:
    """Build the workflow of a definition.

    Raises DefinitionError with every problem at once: an invalid definition, and every agent or
    type that is not bound.
    """
    problems = [text for _, text in find_problems(definition)]
    agents: dict[str, Any] = {}
    for node in definition.nodes:
        try:
            agents[node.id] = _find_agent(node, bindings)
        except DefinitionError as error:
            problems += error.problems
    named = {name for node in definition.nodes for name in node.output_types}
    problems += [
        f"the type {name!r} is not bound: pass the class of that name to with_types(...)"
        for name in sorted(named - {*bindings.types})
    ]
    if problems:
        # Nodes can share an agent, so the same problem may have been found several times.
        raise DefinitionError(list(dict.fromkeys(problems)))
    for name in named:
        # A class of a notebook or of a function cannot be imported by its name. Registered here,
        # its stored instances are readable before the first new one is written.
        if is_storable(bindings.types[name]):
            register_checkpoint_type(bindings.types[name])
    return _wire(definition, bindings, agents, storage)


def _find_agent(node: Node, bindings: Bindings) -> Any:
    """Return the agent of a node: one of another library is adapted, a workflow agent is checked."""
    if node.config is None and node.agent_name not in bindings.agents:
        names = ", ".join(map(repr, bindings.agents)) or "none"
        raise DefinitionError(
            f"the agent {node.agent_name!r} is not bound: pass it to with_agents({{...}}); bound are {names}"
        )
    if node.config is None:
        agent = bindings.agents[node.agent_name]
    elif bindings.factory is not None:
        agent = bindings.factory(node.config)
    else:
        raise DefinitionError(
            f"{node.id!r} has a configuration, but there is no agent factory: call with_agent_factory(...)"
        )
    if not isinstance(agent, WorkflowAgent):
        return agent_of(agent)
    # A workflow runs in an executor beside the node, in supersteps that the node does not see. What
    # the node would enforce around a turn cannot be enforced there, so it is refused.
    options = [name for name in ("timeout", "retry", "concurrency", "fallback") if getattr(node, name) is not None]
    options += ["on_error"] if node.on_error in ("skip", "isolate") else []
    options += ["output"] if node.output_mode == "handoff" else []
    if options:
        raise DefinitionError(
            f"{node.id!r} is a workflow and does not support {', '.join(options)}: set them on the agents inside it"
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
        # The engine's superstep limit must never be what ends a loop: `max_iterations` does,
        # with a better message. Six supersteps are more than one run of a node normally takes: two
        # for the node and the conductor, two more for a workflow inside, one for each request.
        100 + 6 * len(definition.nodes) * definition.max_iterations,
        definition.name,
        definition.description,
        start_executor=conductor,
        checkpoint_storage=storage,
        output_from=[conductor],
    )
    # To itself, for `NodesDecided`: a decision that starts no node.
    builder.add_edge(conductor, conductor)
    for executor in [_make_node(graph, node, agents[node.id], bindings, threads) for node in definition.nodes]:
        builder.add_edge(conductor, executor).add_edge(executor, conductor)
        if isinstance(executor, WorkflowNode):
            inner = WorkflowAgentExecutor(agents[executor.id], inner_id(executor.id))
            builder.add_edge(executor, inner).add_edge(inner, executor)
    return builder.build()


def _make_node(graph: NodeGraph, node: Node, agent: Any, bindings: Bindings, threads: Threads | None) -> NodeExecutor:
    if isinstance(agent, WorkflowAgent):
        return WorkflowNode(graph, node, bindings.types, threads)
    tools = handoff_tools(graph, node.id) if node.output_mode == "handoff" else {}
    agents = {tool: bindings.agents.get(graph.definition.node(target).agent_name) for tool, target in tools.items()}
    handoffs = {
        tool: getattr(agents[tool], "description", None) or f"Hand over to {target}." for tool, target in tools.items()
    }
    return NodeExecutor(graph, node, agent, bindings.types, threads, handoffs)
