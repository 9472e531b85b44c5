"""A workflow of named agents as data: nodes, edges, and how they go together. Nothing in it can run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stepwell.declarative.conditions.condition import Condition
from stepwell.model.superstep import FullHistory, Retention

FORMAT = 1
"""Of a definition as it is stored."""

OutputMode = Literal["text", "structured", "union", "handoff"]
ErrorMode = Literal["stop", "skip", "isolate", "fallback"]
Backoff = Literal["constant", "linear", "exponential", "jittered"]
OnTimeout = Literal["deny", "approve", "suspend"]
Conversation = Literal["none", "shared", "per-agent", "fork"]


@dataclass(frozen=True, slots=True)
class Retries:
    """When a node that failed is tried again."""

    attempts: int = 3
    initial_delay: float = 1.0  # seconds
    backoff: Backoff = "exponential"
    max_delay: float = 60.0
    errors: tuple[str, ...] = ()  # names of the classes of errors that are worth it; none: every Exception


@dataclass(frozen=True, slots=True)
class Approval:
    """A person looks at what a node gave before anybody uses it."""

    when: Condition | None = None  # asked of the node's outputs; None: always
    message: str = ""
    timeout: float | None = None  # seconds; then `on_timeout` is what happens
    on_timeout: OnTimeout = "suspend"  # wait on, however long it takes


@dataclass(frozen=True, slots=True)
class Node:
    """One agent of a workflow, and how it is used."""

    id: str
    agent: str | None = None  # the name it is bound by; None: its id
    config: Mapping[str, Any] | None = None  # what a factory makes the agent from, if it is not bound by name
    input_key: str | None = None  # the value that it is given,
    input_template: str | None = None  # or a text with {{keys}} of values
    context_keys: tuple[str, ...] = ()  # values that it is shown besides
    instructions: str | None = None  # said to it before its input
    output_key: str | None = None  # under which its output is found; None: its id
    output_mode: OutputMode = "text"
    output_types: tuple[str, ...] = ()  # the names of types: one for structured, several for union
    default_target: str | None = None  # of a router that chooses nobody
    timeout: float | None = None  # seconds for one attempt
    retry: Retries | None = None
    on_error: ErrorMode = "stop"
    fallback: str | None = None  # the node that runs instead, if `on_error` says so
    concurrency: int | None = None  # how many runs of this process may be in it at once
    approval: Approval | None = None

    @property
    def bound_by(self) -> str:
        return self.agent or self.id

    @property
    def gives(self) -> str:
        """The key of its output."""
        return self.output_key or self.id


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from each of its sources to each of its targets."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    condition: Condition | None = None  # None: always
    default: bool = False  # taken only if no other edge of the source is
    type: str | None = None  # taken if the union output of the source is of this type

    def describe(self) -> str:
        """When it is taken, in words; empty: always."""
        if self.default:
            return "otherwise"
        if self.type is not None:
            return f"is {self.type}"
        return "" if self.condition is None else self.condition.describe()


@dataclass(frozen=True, slots=True)
class Route:
    """One source and one target of an edge."""

    edge: int  # the number of the edge in the definition
    source: str
    target: str

    @property
    def key(self) -> str:
        return f"{self.edge}:{self.source}>{self.target}"


@dataclass(frozen=True, slots=True)
class Definition:
    """The whole of a workflow as data."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    max_iterations: int = 10  # how often a loop may run a node
    timeout: float | None = None  # seconds for a whole run
    conversation: Conversation = "none"
    checkpointing: bool = False
    retention: Retention = FullHistory
    description: str | None = None
    version: int = field(default=FORMAT)

    def node(self, id: str) -> Node:
        return next(node for node in self.nodes if node.id == id)

    def routes(self) -> Iterator[Route]:
        """Every single way, in the order in which they were said."""
        for number, edge in enumerate(self.edges):
            for source in edge.sources:
                for target in edge.targets:
                    yield Route(number, source, target)
