"""`WorkflowViz`: draws a workflow as Mermaid, DOT or plain text, without any dependency."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stepwell.graph.edges import Direct, Edge, FanIn, FanOut, Select, Switch, format_ids, name_of
from stepwell.graph.subworkflow import Nesting
from stepwell.model.visible_text import JOINERS, visible


class Drawable(Protocol):
    """The attributes of a workflow that a drawing needs."""

    @property
    def start_executor_id(self) -> str: ...
    @property
    def executors(self) -> Mapping[str, Any]: ...
    @property
    def edges(self) -> tuple[Edge, ...]: ...


@dataclass(frozen=True, slots=True)
class _Arrow:
    """One arrow of a drawing; `label` names its condition."""

    source: str | FanIn
    target: str | FanIn
    label: str | None = None


class WorkflowViz:
    """Draws a workflow, with its sub-workflows in boxes of their own. All three forms are plain text."""

    def __init__(self, workflow: Drawable) -> None:
        self._diagram = _Diagram(workflow)

    def to_mermaid(self) -> str:
        """Return a Mermaid flowchart."""
        return "\n".join(["flowchart TD", *_indent(self._diagram.mermaid())])

    def to_digraph(self) -> str:
        """Return a DOT graph, for Graphviz."""
        rows = ["rankdir=TD;", "node [shape=box, style=filled, fillcolor=lightblue];"]
        if self._diagram.nested:
            rows.insert(1, "compound=true;")  # lets arrows end at the border of a cluster
        return "\n".join(["digraph workflow {", *_indent([*rows, *self._diagram.dot()]), "}"])

    def to_text(self) -> str:
        """Return one line per edge; sub-workflows are indented."""
        return "\n".join(map(visible, self._diagram.text()))


class _Diagram:
    """One workflow of a drawing: the outermost one, or a sub-workflow."""

    def __init__(self, workflow: Drawable, prefix: str = "") -> None:
        self._workflow = workflow
        self._joins = [edge for edge in workflow.edges if isinstance(edge, FanIn)]
        # Nodes are numbered: an executor id may contain quotes or spaces, or be a keyword of the format.
        self._names: dict[str | FanIn, str] = {id: f"{prefix}n{n}" for n, id in enumerate(workflow.executors)}
        self._names |= {edge: f"{prefix}j{number}" for number, edge in enumerate(self._joins)}
        # Names in a sub-workflow start with the name of its executor: they are unique in the drawing.
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
            # Mermaid draws arrows between subgraphs, but not from a subgraph to itself.
            ends = [self._node(e) if line.source == line.target else self._names[e] for e in (line.source, line.target)]
            yield f"{ends[0]} {arrow} {ends[1]};"

    def dot(self) -> Iterator[str]:
        for id in self._workflow.executors:
            label = f"label={_quote(self._label(id))}"
            if id in self.nested:
                cluster = [f"{label};", "style=dashed;", *self.nested[id].dot()]
                yield from [f"subgraph cluster_{self._names[id]} {{", *_indent(cluster), "}"]
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
        """Return the node at which an arrow ends; for a sub-workflow, its start node."""
        nested = self.nested.get(end) if isinstance(end, str) else None
        return self._names[end] if nested is None else nested._node(nested._workflow.start_executor_id)

    def _ends(self, attribute: str, end: str | FanIn) -> list[str]:
        # In DOT an arrow always runs between nodes; `ltail` and `lhead` clip it at a cluster's border.
        return [f"{attribute}=cluster_{self._names[end]}"] if isinstance(end, str) and end in self.nested else []

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
    """Escape a label for Mermaid, which interprets some characters even inside quotes."""
    clean = visible(text, keep=f"\n{JOINERS}")
    safe = "".join(c if c.isalnum() or c in " _-.,:()/" else f"#{ord(c)};" for c in clean)
    return safe or " "


def _quote(text: str) -> str:
    # Control characters could break out of the label, or hide text from the reader.
    clean = visible(text, keep=f"\n{JOINERS}")
    escaped = clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
