"""Writes a diagram as plain text: one line per edge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stepwell.graph.edges import format_ids
from stepwell.model.visible_text import visible
from stepwell.viz.diagram import Diagram


def to_text(diagram: Diagram) -> str:
    """Return a diagram as one line per edge; sub-workflows are indented."""
    return "\n".join(map(visible, _rows(diagram)))


def _rows(diagram: Diagram) -> Iterator[str]:
    yield f"start: {format_ids(*diagram.first_nodes)}"
    yield from diagram.lines
    for node in diagram.nodes:
        if node.inner is not None:
            yield from [f"inside {format_ids(node.id)}:", *indent(_rows(node.inner))]


def indent(rows: Iterable[str]) -> Iterator[str]:
    """Indent each row by one level."""
    return (f"  {row}" for row in rows)
