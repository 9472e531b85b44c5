"""The diagram of a workflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from stepwell.graph.edges import Direct, Edge, FanIn, FanOut, Select, Switch, name_of
from stepwell.graph.subworkflow import Nesting
from stepwell.viz.diagram import Arrow, Diagram, DiagramNode, fan_in_id
from stepwell.viz.stored_graph import stored_diagram


class Drawable(Protocol):
    """The attributes of a workflow that a drawing needs."""

    @property
    def start_executor_id(self) -> str: ...
    @property
    def executors(self) -> Mapping[str, Any]: ...
    @property
    def edges(self) -> tuple[Edge, ...]: ...


@runtime_checkable
class HasDiagram(Protocol):
    """Something that people know by another graph than the one the engine runs, such as named agents."""

    def diagram(self) -> Diagram: ...


Graph = Diagram | HasDiagram | Drawable | Mapping[str, Any]
"""Anything that can be drawn: a workflow, also one of named agents, a `graph_signature`, or a diagram."""


def diagram_of(graph: Graph) -> Diagram:
    """Return the diagram of a workflow or of a stored graph."""
    if isinstance(graph, Diagram):
        return graph
    if isinstance(graph, Mapping):
        return stored_diagram(graph)
    if isinstance(graph, HasDiagram):
        return graph.diagram()
    start = graph.executors[graph.start_executor_id]
    if isinstance(start, HasDiagram):  # it conducts the others, which have edges only to it
        return start.diagram()
    fan_ins = {edge: fan_in_id(n) for n, edge in enumerate(e for e in graph.edges if isinstance(e, FanIn))}
    nodes = [
        DiagramNode(id, inner=diagram_of(executor.workflow) if isinstance(executor, Nesting) else None)
        for id, executor in graph.executors.items()
    ]
    nodes += [DiagramNode(id, "fan-in") for id in fan_ins.values()]
    arrows = tuple(arrow for edge in graph.edges for arrow in _arrows(edge, fan_ins))
    return Diagram(tuple(nodes), arrows, graph.start_executor_id, tuple(edge.describe() for edge in graph.edges))


def _arrows(edge: Edge, fan_ins: Mapping[FanIn, str]) -> Iterator[Arrow]:
    match edge:
        case Direct(source=source, target=target, condition=None):
            yield Arrow(source, target)
        case Direct(source=source, target=target, condition=condition):
            yield Arrow(source, target, name_of(condition), dotted=True)
        case FanOut(source=source, targets=targets):
            yield from (Arrow(source, target) for target in targets)
        case Switch(source=source, cases=cases, default=default):
            yield from (Arrow(source, target, name_of(condition), dotted=True) for condition, target in cases)
            yield Arrow(source, default, "default", dotted=True)
        case Select(source=source, targets=targets, choose=choose):
            yield from (Arrow(source, target, f"chosen by {name_of(choose)}", dotted=True) for target in targets)
        case FanIn(sources=sources, target=target):
            yield from (Arrow(source, fan_ins[edge]) for source in sources)
            yield Arrow(fan_ins[edge], target)
