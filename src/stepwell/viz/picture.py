"""A workflow as a picture: Mermaid, DOT, and plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stepwell.graph.edges import Direct, Edge, FanIn, FanOut, Select, Switch, format_ids, name_of
from stepwell.graph.subworkflow import Nesting
from stepwell.model.visible_text import JOINERS, visible


class Drawable(Protocol):
    """What can be drawn."""

    @property
    def start_executor_id(self) -> str: ...
    @property
    def executors(self) -> Mapping[str, Any]: ...
    @property
    def edges(self) -> tuple[Edge, ...]: ...


@dataclass(frozen=True, slots=True)
class _Arrow:
    """One arrow; `label` says when it is taken."""

    source: str | FanIn
    target: str | FanIn
    label: str | None = None


class WorkflowViz:
    """Draws a workflow, and in frames the workflows nested it. All three forms are text and need nothing installed."""

    def __init__(self, workflow: Drawable) -> None:
        self._diagram = _Diagram(workflow)

    def to_mermaid(self) -> str:
        """A Mermaid flowchart."""
        return "\n".join(["flowchart TD", *_indent(self._diagram.mermaid())])

    def to_digraph(self) -> str:
        """A DOT graph, for Graphviz."""
        rows = ["rankdir=TD;", "node [shape=box, style=filled, fillcolor=lightblue];"]
        if self._diagram.nested:
            rows.insert(1, "compound=true;")  # arrows may end at a frame
        return "\n".join(["digraph workflow {", *_indent([*rows, *self._diagram.dot()]), "}"])

    def to_text(self) -> str:
        """One line per edge, in words; what is nested an executor is indented."""
        return "\n".join(map(visible, self._diagram.text()))


class _Diagram:
    """One workflow of a drawing: the outermost, or one nested an executor of another."""

    def __init__(self, workflow: Drawable, prefix: str = "") -> None:
        self._workflow = workflow
        self._joins = [edge for edge in workflow.edges if isinstance(edge, FanIn)]
        # numbered, because an id may hold anything: quotes, spaces, a word the format keeps for itself
        self._names: dict[str | FanIn, str] = {id: f"{prefix}n{n}" for n, id in enumerate(workflow.executors)}
        self._names |= {edge: f"{prefix}j{number}" for number, edge in enumerate(self._joins)}
        self.nested = {
            id: _Diagram(executor.workflow, f"{self._names[id]}_")
            for id, executor in workflow.executors.items()
            if isinstance(executor, Nesting)
        }

    def mermaid(self) -> Iterator[str]:
        for id in self._workflow.executors:
            label = f'{self._names[id]}["{escape_mermaid(self._label(id))}"]'
            if id in self.nested:
                yield from [f"subgraph {label}", *_indent(self.nested[id].mermaid()), "end"]
            else:
                yield f"{label};"
        yield from (f"{self._names[edge]}((fan-in));" for edge in self._joins)
        for line in self._arrows():
            arrow = f'-. "{escape_mermaid(line.label)}" .->' if line.label else "-->"
            # Mermaid draws arrows from frame to frame, but none from a frame to itself
            ends = [self._node(e) if line.source == line.target else self._names[e] for e in (line.source, line.target)]
            yield f"{ends[0]} {arrow} {ends[1]};"

    def dot(self) -> Iterator[str]:
        for id in self._workflow.executors:
            label = f"label={_quote(self._label(id))}"
            if id in self.nested:
                frame = [f"{label};", "style=dashed;", *self.nested[id].dot()]
                yield from [f"subgraph cluster_{self._names[id]} {{", *_indent(frame), "}"]
            else:
                colour = ", fillcolor=lightgreen" if id == self._workflow.start_executor_id else ""
                yield f"{self._names[id]} [{label}{colour}];"
        yield from (f'{self._names[e]} [shape=ellipse, fillcolor=lightgrey, label="fan-in"];' for e in self._joins)
        for line in self._arrows():
            attributes = [f"style=dashed, label={_quote(line.label)}"] if line.label else []
            if line.source != line.target:
                attributes += self._ends("ltail", line.source) + self._ends("lhead", line.target)
            suffix = f" [{', '.join(attributes)}]" if attributes else ""
            yield f"{self._node(line.source)} -> {self._node(line.target)}{suffix};"

    def text(self) -> Iterator[str]:
        yield f"start: {format_ids(self._workflow.start_executor_id)}"
        yield from (edge.describe() for edge in self._workflow.edges)
        for id, diagram in self.nested.items():
            yield from [f"inside {format_ids(id)}:", *_indent(diagram.text())]

    def _node(self, end: str | FanIn) -> str:
        """Where an arrow must end at a node, the start of a frame stands in for it. In DOT that is always so."""
        nested = self.nested.get(end) if isinstance(end, str) else None
        return self._names[end] if nested is None else nested._node(nested._workflow.start_executor_id)

    def _ends(self, word: str, end: str | FanIn) -> list[str]:
        return [f"{word}=cluster_{self._names[end]}"] if isinstance(end, str) and end in self.nested else []

    def _label(self, id: str) -> str:
        return f"{id} (Start)" if id == self._workflow.start_executor_id else id

    def _arrows(self) -> Iterator[_Arrow]:
        for edge in self._workflow.edges:
            match edge:
                case Direct(source=source, target=target, condition=condition):
                    yield _Arrow(source, target, None if condition is None else name_of(condition))
                case FanOut(source=source, targets=targets):
                    yield from (_Arrow(source, target) for target in targets)
                case Switch(source=source, cases=cases, default=default):
                    yield from (_Arrow(source, target, name_of(condition)) for condition, target in cases)
                    yield _Arrow(source, default, "default")
                case Select(source=source, targets=targets, choose=choose):
                    yield from (_Arrow(source, target, f"chosen by {name_of(choose)}") for target in targets)
                case FanIn(sources=sources, target=target):
                    yield from (_Arrow(source, edge) for source in sources)
                    yield _Arrow(edge, target)


def _indent(rows: Iterable[str]) -> Iterator[str]:
    return (f"  {row}" for row in rows)


def escape_mermaid(text: str) -> str:
    """Mermaid reads a few characters as its own, also nested quotes."""
    clean = visible(text, keep=f"\n{JOINERS}")
    safe = "".join(c if c.isalnum() or c in " _-.,:()/" else f"#{ord(c)};" for c in clean)
    return safe or " "


def _quote(text: str) -> str:
    clean = visible(text, keep=f"\n{JOINERS}")
    escaped = clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
