"""What a drawing shows, before anything is placed: nodes, and arrows between them.

Workflows, stored graphs and definitions of named agents are turned into this value, and every
format is written from it. So none of them knows the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

NodeKind = Literal["executor", "router", "fan-in", "start", "end"]

# No executor can have an id with a NUL, so these are nobody else's.
START, END = "\0start", "\0end"


def fan_in_id(number: int) -> str:
    """Return the id of the node of a fan-in."""
    return f"\0fan-in {number}"


@dataclass(frozen=True, slots=True)
class DiagramNode:
    """One node: an executor, a named agent, a fan-in, or where everything starts or ends."""

    id: str  # unique in its diagram; of an executor, its own
    kind: NodeKind = "executor"
    note: str = ""  # a second line, such as the condition of its approval
    asks: bool = False  # a person approves what it does
    inner: Diagram | None = None  # of a sub-workflow

    @property
    def label(self) -> str:
        """The text in the node: its id, or the word for its kind."""
        return self.id if self.runs else self.kind

    @property
    def runs(self) -> bool:
        """Whether it is something that runs."""
        return self.kind in ("executor", "router")


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow from one node to another; `label` says when it is taken."""

    source: str
    target: str
    label: str = ""
    dotted: bool = False

    def describe(self) -> str:
        """Return the arrow as a sentence without its full stop."""
        return f"{self.source} leads to {self.target}{f' {self.label}' if self.label else ''}".replace("\0", "")


@dataclass(frozen=True, slots=True)
class Diagram:
    """A graph to draw."""

    nodes: tuple[DiagramNode, ...]
    arrows: tuple[Arrow, ...]
    start: str  # the id of the node where it starts
    lines: tuple[str, ...] = ()  # the edges in words, one each

    @property
    def first_nodes(self) -> list[str]:
        """The nodes that get the input: the start, or those that its arrows lead to."""
        return [a.target for a in self.arrows if a.source == START] if self.start == START else [self.start]

    @property
    def inner(self) -> dict[str, Diagram]:
        """The diagrams of sub-workflows, by the ids of their nodes."""
        return {node.id: node.inner for node in self.nodes if node.inner is not None}

    def names(self, prefix: str = "") -> dict[str, str]:
        """Return a name for each node that any format accepts: an id may be a keyword, or contain quotes."""
        return dict(self._number_nodes(prefix))

    def _number_nodes(self, prefix: str) -> Iterator[tuple[str, str]]:
        executors = fan_ins = 0
        for node in self.nodes:
            if node.runs:
                yield node.id, f"{prefix}n{executors}"
                executors += 1
            elif node.kind == "fan-in":
                yield node.id, f"{prefix}j{fan_ins}"
                fan_ins += 1
            else:
                yield node.id, prefix + ("start" if node.kind == "start" else "finish")
