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
from stepwell.declarative.node import NodeExecutor, tools_of
from stepwell.declarative.schedule import Plan
from stepwell.declarative.transcripts import InMemoryTranscriptStore, Threads, TranscriptStore
from stepwell.declarative.validation import find_problems
from stepwell.declarative.workflow_node import TeamNode, inside
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


def bound(definition: Definition, bindings: Bindings, storage: CheckpointStorage | None) -> Workflow:
    """The workflow. Raises DefinitionError with everything that is wrong or not bound."""
    found = [text for _, text in find_problems(definition)]
    agents: dict[str, Any] = {}
    for node in definition.nodes:
        try:
            agents[node.id] = _agent(node, bindings)
        except DefinitionError as error:
            found += error.problems
    named = {name for node in definition.nodes for name in node.output_types}
    found += [
        f"the type {name!r} is not bound: give the class of that name to with_types(...)"
        for name in sorted(named - {*bindings.types})
    ]
    if found:
        raise DefinitionError(list(dict.fromkeys(found)))
    for name in named:
        if is_storable(bindings.types[name]):  # so that what was stored is read, wherever the class was made
            register_checkpoint_type(bindings.types[name])
    return _wired(definition, bindings, agents, storage)


def _agent(node: Node, bindings: Bindings) -> Any:
    if node.config is not None:
        if bindings.factory is None:
            raise DefinitionError(
                f"{node.id!r} has a configuration, and nothing makes an agent of it: with_agent_factory(...)"
            )
        return _as_agent(node, bindings.factory(node.config))
    if node.bound_by not in bindings.agents:
        known = ", ".join(map(repr, bindings.agents)) or "none"
        raise DefinitionError(f"the agent {node.bound_by!r} is not bound: with_agents({{...}}); there are {known}")
    return _as_agent(node, bindings.agents[node.bound_by])


def _as_agent(node: Node, given: Any) -> Any:
    """An agent, or a workflow that stands for one."""
    if not isinstance(given, WorkflowAgent):
        return agent_of(given)
    own = [name for name in ("timeout", "retry", "concurrency", "fallback") if getattr(node, name) is not None]
    own += ["on_error"] if node.on_error in ("skip", "isolate") else []
    own += ["output"] if node.output_mode == "handoff" else []
    if own:
        raise DefinitionError(
            f"{node.id!r} is a workflow, and cannot have {', '.join(own)}: give them to what is inside of it"
        )
    return given


def _wired(
    definition: Definition, bindings: Bindings, agents: Mapping[str, Any], storage: CheckpointStorage | None
) -> Workflow:
    threads = None
    if definition.conversation != "none":
        threads = Threads(definition.conversation, bindings.transcripts or InMemoryTranscriptStore())
    plan = Plan(definition)
    conductor = Conductor(plan)
    builder = WorkflowBuilder(
        100 + 6 * len(definition.nodes) * definition.max_iterations,  # its own limit ends a loop long before
        definition.name,
        definition.description,
        start_executor=conductor,
        checkpoint_storage=storage,
        output_from=[conductor],
    )
    builder.add_edge(conductor, conductor)
    for made in [_node(plan, node, agents[node.id], bindings, threads) for node in definition.nodes]:
        builder.add_edge(conductor, made).add_edge(made, conductor)
        if isinstance(made, TeamNode):
            team = WorkflowAgentExecutor(agents[made.id], inside(made.id))
            builder.add_edge(made, team).add_edge(team, made)
    return builder.build()


def _node(plan: Plan, node: Node, agent: Any, bindings: Bindings, threads: Threads | None) -> NodeExecutor:
    if isinstance(agent, WorkflowAgent):
        return TeamNode(plan, node, bindings.types, threads)
    handoffs: dict[str, str] = {}
    if node.output_mode == "handoff":
        for tool, target in tools_of(plan, node.id).items():
            about = getattr(bindings.agents.get(plan.definition.node(target).bound_by), "description", None)
            handoffs[tool] = about or f"Hand over to {target}."
    return NodeExecutor(plan, node, agent, bindings.types, threads, handoffs)
