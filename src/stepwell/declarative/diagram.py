"""The diagram of a definition: its own nodes and conditions, not the conductor that runs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepwell.declarative.definition import Definition, Node
from stepwell.declarative.node_graph import NodeGraph
from stepwell.graph.edges import format_ids
from stepwell.viz import mermaid
from stepwell.viz.diagram import END, START, Arrow, Diagram, DiagramNode, NodeKind


def diagram_of_nodes(graph: NodeGraph) -> Diagram:
    """Return the diagram of a definition.

    Dotted arrows are taken only if nothing else is: default edges, and edges to a fallback.
    """
    definition, edges = graph.definition, graph.definition.edges
    routes = [
        Arrow(route.source, route.target, edges[route.edge].describe(), dotted=edges[route.edge].default)
        for route in graph.routes
    ]
    routes += [
        Arrow(node.id, node.fallback, "if it fails", dotted=True)
        for node in definition.nodes
        if node.fallback is not None
    ]
    return Diagram(
        (DiagramNode(START, "start"), *map(_node, definition.nodes), DiagramNode(END, "end")),
        (
            *(Arrow(START, id) for id in graph.entries),
            *routes,
            *(Arrow(id, END) for id in _find_last_nodes(graph)),
        ),
        START,
        tuple(map(describe_route, routes)),
    )


def graph_of_nodes(graph: NodeGraph) -> dict[str, Any]:
    """Return the graph of a definition in the form of a `graph_signature`: plain data that can be stored and drawn."""
    diagram = diagram_of_nodes(graph)
    return {"start": next(iter(diagram.first_nodes), ""), "executors": list(graph.ids), "edges": list(diagram.lines)}


def to_mermaid(definition: Definition) -> str:
    """Draw a definition as a Mermaid flowchart, with the conditions as labels.

    Routers are diamonds. Nodes with an approval have a dashed border and show its condition.
    """
    return mermaid.to_mermaid(diagram_of_nodes(NodeGraph(definition)))


def _node(node: Node) -> DiagramNode:
    note = ""
    if node.approval is not None:
        when = node.approval.when
        note = "approval" if when is None else f"approval if {when.describe()}"
    kind: NodeKind = "router" if node.output_mode == "handoff" else "executor"
    return DiagramNode(node.id, kind, note=note, asks=node.approval is not None)


def _find_last_nodes(graph: NodeGraph) -> Iterator[str]:
    # A node that only leads to itself can still be the last one. Fallbacks end where the node they
    # replace ends.
    with_successors = {route.source for route in graph.routes if route.source != route.target}
    return (id for id in graph.ids if id not in with_successors and id not in graph.fallbacks)


def describe_route(route: Arrow) -> str:
    """Return a route in words, as `WorkflowViz.to_text` shows it."""
    when = route.label if route.dotted or not route.label else f"if {route.label}"
    return f"{format_ids(route.source)} -> {format_ids(route.target)}{f' {when}' if when else ''}"
