"""A definition as a Mermaid flowchart, with the conditions as labels."""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.declarative.definition import Definition, Node
from stepwell.declarative.node_graph import NodeGraph
from stepwell.viz.workflow_viz import escape_mermaid

MAX_LABEL_LENGTH = 80
STYLES = (
    "classDef router fill:#fff3bf,stroke:#b08900;",
    "classDef approval stroke-width:3px,stroke-dasharray:6 3;",
)


def to_mermaid(definition: Definition) -> str:
    """Draw the flowchart.

    Routers are diamonds. Nodes with an approval have a dashed border and show its condition. Dotted
    arrows are taken only if nothing else is: default edges, and edges to a fallback.
    """
    return "\n".join(["flowchart TD", *(f"  {row}" for row in _rows(definition))])


def _rows(definition: Definition) -> Iterator[str]:
    graph = NodeGraph(definition)
    # Numbered, because an id may be anything: quotes, spaces, a keyword of Mermaid.
    names = {id: f"n{number}" for number, id in enumerate(graph.ids)}
    yield "start((start));"
    for node in definition.nodes:
        yield f"{names[node.id]}{_shape(node)};"
    yield "finish((end));"
    for id in graph.entries:
        yield f"start --> {names[id]};"
    for route in graph.routes:
        edge = definition.edges[route.edge]
        yield f"{names[route.source]} {_arrow(edge.describe(), edge.default)} {names[route.target]};"
    for node in definition.nodes:
        if node.fallback is not None:
            yield f"{names[node.id]} {_arrow('if it fails', True)} {names[node.fallback]};"
    # A node that only leads to itself can still be the last one. Fallbacks end where the node they
    # replace ends.
    with_successors = {route.source for route in graph.routes if route.source != route.target}
    for id in graph.ids:
        if id not in with_successors and id not in graph.fallbacks:
            yield f"{names[id]} --> finish;"
    routers = [names[node.id] for node in definition.nodes if node.output_mode == "handoff"]
    with_approval = [names[node.id] for node in definition.nodes if node.approval is not None]
    for style, nodes in zip(STYLES, (routers, with_approval), strict=True):
        if nodes:
            yield style
            yield f"class {','.join(nodes)} {style.split()[1]};"


def _shape(node: Node) -> str:
    lines = [_label(node.id)]
    if node.approval is not None:
        when = node.approval.when
        lines.append(_label("approval" if when is None else f"approval if {when.describe()}"))
    text = "<br/>".join(lines)
    return f'{{"{text}"}}' if node.output_mode == "handoff" else f'["{text}"]'


def _arrow(label: str, dotted: bool) -> str:
    if not label:
        return "-->"
    return f'-. "{_label(label)}" .->' if dotted else f'-- "{_label(label)}" -->'


def _label(text: str) -> str:
    return escape_mermaid(text if len(text) <= MAX_LABEL_LENGTH else f"{text[: MAX_LABEL_LENGTH - 3]}...")
