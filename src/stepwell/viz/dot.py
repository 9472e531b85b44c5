"""Writes a diagram as a DOT graph, for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.model.visible_text import JOINERS, visible
from stepwell.viz.diagram import Diagram, DiagramNode
from stepwell.viz.mermaid import start_name
from stepwell.viz.text import indent


def to_dot(diagram: Diagram) -> str:
    """Return a diagram as a DOT graph."""
    rows = ["rankdir=TD;", "node [shape=box, style=filled, fillcolor=lightblue];"]
    if diagram.inner:
        rows.insert(1, "compound=true;")  # lets arrows end at the border of a cluster
    return "\n".join(["digraph workflow {", *indent([*rows, *_rows(diagram, "")]), "}"])


def _rows(diagram: Diagram, prefix: str) -> Iterator[str]:
    names = diagram.names(prefix)
    inner = diagram.inner
    for node in diagram.nodes:
        name, is_start = names[node.id], node.id == diagram.start
        if node.inner is not None:
            cluster = [f"{_label(node, is_start)};", "style=dashed;", *_rows(node.inner, f"{name}_")]
            yield from [f"subgraph cluster_{name} {{", *indent(cluster), "}"]
        else:
            yield f"{name} [{_attributes(node, is_start)}];"
    for arrow in diagram.arrows:
        attributes = [
            *(["style=dashed"] if arrow.dotted else []),
            *([f"label={_quote(arrow.label)}"] if arrow.label else []),
        ]
        # In DOT an arrow always runs between nodes; `ltail` and `lhead` clip it at a cluster's border.
        if arrow.source != arrow.target:
            clipped = (("ltail", arrow.source), ("lhead", arrow.target))
            attributes += [f"{side}=cluster_{names[end]}" for side, end in clipped if end in inner]
        ends = [
            start_name(inner[end], f"{names[end]}_") if end in inner else names[end]
            for end in (arrow.source, arrow.target)
        ]
        suffix = f" [{', '.join(attributes)}]" if attributes else ""
        yield f"{ends[0]} -> {ends[1]}{suffix};"


def _attributes(node: DiagramNode, is_start: bool) -> str:
    match node.kind:
        case "fan-in":
            return 'shape=ellipse, fillcolor=lightgrey, label="fan-in"'
        case "start" | "end":
            return f'shape=circle, fillcolor=lightgrey, label="{node.kind}"'
        case "router":
            return f"shape=diamond, {_label(node, is_start)}"
    border = ', style="filled,dashed"' if node.asks else ""
    return _label(node, is_start) + (", fillcolor=lightgreen" if is_start else "") + border


def _label(node: DiagramNode, is_start: bool) -> str:
    name = f"{node.label} (Start)" if is_start else node.label
    return "label=" + _quote(f"{name}\n{node.note}" if node.note else name)


def _quote(text: str) -> str:
    # Control characters could break out of the label, or hide text from the reader.
    clean = visible(text, keep=f"\n{JOINERS}")
    escaped = clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
