"""A workflow as a picture: Mermaid, DOT, and plain text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .graph.edges import Direct, Edge, FanIn, FanOut, Select, Switch, name_of, shown


class Drawable(Protocol):
    """What can be drawn."""

    @property
    def start_executor_id(self) -> str: ...
    @property
    def executors(self) -> Mapping[str, Any]: ...
    @property
    def edges(self) -> tuple[Edge, ...]: ...


@dataclass(frozen=True, slots=True)
class _Line:
    """One arrow; `label` says when it is taken."""

    source: str | FanIn
    target: str | FanIn
    label: str | None = None


class WorkflowViz:
    """Draws a workflow. All three forms are text and need nothing installed."""

    def __init__(self, workflow: Drawable) -> None:
        self._workflow = workflow
        self._joins = [edge for edge in workflow.edges if isinstance(edge, FanIn)]
        # numbered, because an id may hold anything: quotes, spaces, a word the format keeps for itself
        self._names: dict[str | FanIn, str] = {id: f"n{number}" for number, id in enumerate(workflow.executors)}
        self._names |= {edge: f"j{number}" for number, edge in enumerate(self._joins)}

    def to_mermaid(self) -> str:
        """A Mermaid flowchart."""
        rows = ["flowchart TD"]
        rows += [f'  {self._names[id]}["{_mermaid(self._label(id))}"];' for id in self._workflow.executors]
        rows += [f"  {self._names[edge]}((fan-in));" for edge in self._joins]
        for line in self._lines():
            arrow = f'-. "{_mermaid(line.label)}" .->' if line.label else "-->"
            rows.append(f"  {self._names[line.source]} {arrow} {self._names[line.target]};")
        return "\n".join(rows)

    def to_digraph(self) -> str:
        """A DOT graph, for Graphviz."""
        rows = ["digraph workflow {", "  rankdir=TD;", "  node [shape=box, style=filled, fillcolor=lightblue];"]
        for id in self._workflow.executors:
            colour = ", fillcolor=lightgreen" if id == self._workflow.start_executor_id else ""
            rows.append(f"  {self._names[id]} [label={_quoted(self._label(id))}{colour}];")
        rows += [f'  {self._names[e]} [shape=ellipse, fillcolor=lightgrey, label="fan-in"];' for e in self._joins]
        for line in self._lines():
            look = f" [style=dashed, label={_quoted(line.label)}]" if line.label else ""
            rows.append(f"  {self._names[line.source]} -> {self._names[line.target]}{look};")
        return "\n".join([*rows, "}"])

    def to_text(self) -> str:
        """One line per edge, in words."""
        start = f"start: {shown(self._workflow.start_executor_id)}"
        return "\n".join([start, *(edge.describe() for edge in self._workflow.edges)])

    def _label(self, id: str) -> str:
        return f"{id} (Start)" if id == self._workflow.start_executor_id else id

    def _lines(self) -> Iterator[_Line]:
        for edge in self._workflow.edges:
            match edge:
                case Direct(source=source, target=target, condition=condition):
                    yield _Line(source, target, None if condition is None else name_of(condition))
                case FanOut(source=source, targets=targets):
                    yield from (_Line(source, target) for target in targets)
                case Switch(source=source, cases=cases, default=default):
                    yield from (_Line(source, target, name_of(condition)) for condition, target in cases)
                    yield _Line(source, default, "default")
                case Select(source=source, targets=targets, choose=choose):
                    yield from (_Line(source, target, f"chosen by {name_of(choose)}") for target in targets)
                case FanIn(sources=sources, target=target):
                    yield from (_Line(source, edge) for source in sources)
                    yield _Line(edge, target)


def _mermaid(text: str) -> str:
    """Mermaid reads a few characters as its own, also inside quotes."""
    safe = "".join(c if c.isalnum() or c in " _-.,:()/" else f"#{ord(c)};" for c in text)
    return safe or " "


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
