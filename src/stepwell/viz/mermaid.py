"""Writes a diagram as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.model.visible_text import JOINERS, visible
from stepwell.viz.diagram import Diagram, DiagramNode
from stepwell.viz.text import indent

_LONGEST_LABEL = 80
_STYLES = {
    "router": "fill:#fff3bf,stroke:#b08900",
    "approval": "stroke-width:3px,stroke-dasharray:6 3",
}


def to_mermaid(diagram: Diagram) -> str:
    """Return a diagram as a Mermaid flowchart.

    Routers are diamonds; what a person approves has a dashed border.
    """
    return "\n".join(["flowchart TD", *indent(_rows(diagram, ""))])


def escape_mermaid(text: str) -> str:
    """Escape a label for Mermaid, which interprets some characters even inside quotes. A long one is cut."""
    short = text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 3]}..."
    clean = visible(short, keep=f"\n{JOINERS}")
    safe = "".join(c if c.isalnum() or c in " _-.,:()/" else f"#{ord(c)};" for c in clean)
    return safe or " "


def _rows(diagram: Diagram, prefix: str) -> Iterator[str]:
    names = diagram.names(prefix)
    inner = diagram.inner
    for node in diagram.nodes:
        shape = f"{names[node.id]}{_shape(node, is_start=node.id == diagram.start)}"
        if node.inner is not None:
            yield from [f"subgraph {shape}", *indent(_rows(node.inner, f"{names[node.id]}_")), "end"]
        else:
            yield f"{shape};"
    for arrow in diagram.arrows:
        source, target = names[arrow.source], names[arrow.target]
        if source == target and arrow.source in inner:
            # Mermaid draws arrows between subgraphs, but not from a subgraph to itself.
            source = target = start_name(inner[arrow.source], f"{source}_")
        yield f"{source} {_line(arrow.label, arrow.dotted)} {target};"
    routers = [names[node.id] for node in diagram.nodes if node.kind == "router"]
    with_approval = [names[node.id] for node in diagram.nodes if node.asks]
    for style, members in (("router", routers), ("approval", with_approval)):
        if members:
            yield f"classDef {style} {_STYLES[style]};"
            yield f"class {','.join(members)} {style};"


def start_name(diagram: Diagram, prefix: str) -> str:
    """Return the name of the node where a diagram starts, however deep inside it is."""
    node = next(node for node in diagram.nodes if node.id == diagram.start)
    name = diagram.names(prefix)[node.id]
    return name if node.inner is None else start_name(node.inner, f"{name}_")


def _shape(node: DiagramNode, *, is_start: bool) -> str:
    if not node.runs:
        return f"(({node.label}))"
    lines = [f"{node.label} (Start)" if is_start else node.label, *([node.note] if node.note else [])]
    text = "<br/>".join(map(escape_mermaid, lines))
    return f'{{"{text}"}}' if node.kind == "router" else f'["{text}"]'


def _line(label: str, dotted: bool) -> str:
    if not label:
        return "-->"
    return f'-. "{escape_mermaid(label)}" .->' if dotted else f'-- "{escape_mermaid(label)}" -->'
