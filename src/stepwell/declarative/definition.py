"""The definition of a workflow of named agents: nodes, edges and options, as plain data.

Nothing here can run. `binding` connects a definition with agents, `files` reads and writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stepwell.declarative.conditions.condition import Condition
from stepwell.model.checkpoint import FullHistory, Retention

FORMAT = 1
"""The version of the stored format of a definition."""

# Of the executor that runs the workflow of a node: before the id of the node. Stored in runs.
INNER_PREFIX = "inside "

OutputMode = Literal["text", "structured", "union", "handoff"]
ErrorMode = Literal["stop", "skip", "isolate", "fallback"]
Backoff = Literal["constant", "linear", "exponential", "jittered"]
OnTimeout = Literal["deny", "approve", "suspend"]
Conversation = Literal["none", "shared", "per-agent", "fork"]


@dataclass(frozen=True, slots=True)
class Retries:
    """How a node that failed is retried."""

    attempts: int = 3
    initial_delay: float = 1.0  # seconds
    backoff: Backoff = "exponential"
    max_delay: float = 60.0
    # Names, because a definition holds no classes. Base classes count; empty means every Exception.
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Approval:
    """A person approves the output of a node before other nodes use it."""

    when: Condition | None = None  # evaluated on all values, the node's outputs included; None: always
    message: str = ""
    timeout: float | None = None  # seconds until `on_timeout` applies
    on_timeout: OnTimeout = "suspend"  # "suspend": wait without a limit


@dataclass(frozen=True, slots=True)
class Node:
    """One agent of a workflow, and how it is used."""

    id: str
    agent: str | None = None  # the name it is bound by; None: the node id
    config: Mapping[str, Any] | None = None  # passed to the agent factory; such an agent is not bound by name
    # Input: a single value or a template, never both. With neither, the outputs of upstream nodes.
    input_key: str | None = None
    input_template: str | None = None  # text with {{keys}} of values
    context_keys: tuple[str, ...] = ()  # further values, shown with their names
    instructions: str | None = None  # placed before the input
    # Output
    output_key: str | None = None  # the key of the output among the run's values; None: the node id
    output_mode: OutputMode = "text"
    output_types: tuple[str, ...] = ()  # type names: one for structured, several for union
    default_target: str | None = None  # where a router leads if it chooses nothing
    # Limits and failures
    timeout: float | None = None  # seconds for one attempt
    retry: Retries | None = None
    on_error: ErrorMode = "stop"
    fallback: str | None = None  # the node that runs instead, if `on_error` is "fallback"
    concurrency: int | None = None  # how many runs of this process may use the agent at once
    approval: Approval | None = None

    @property
    def agent_name(self) -> str:
        """The name the agent is bound by."""
        return self.agent or self.id

    @property
    def value_key(self) -> str:
        """The key of its output among the values of the run."""
        return self.output_key or self.id


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge from each of its sources to each of its targets."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    condition: Condition | None = None  # None: always
    default: bool = False  # taken only if no other edge of the source is taken
    type: str | None = None  # taken if the union output of the source has this type

    def describe(self) -> str:
        """Describe in words when the edge is taken; empty means always."""
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
        """Its identity in stored runs. It contains the edge's number, so the order of edges matters."""
        return f"{self.edge}:{self.source}>{self.target}"


@dataclass(frozen=True, slots=True)
class Definition:
    """A workflow of named agents as data."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    max_iterations: int = 10  # how often one run may run the same node
    timeout: float | None = None  # seconds for a whole run
    conversation: Conversation = "none"
    checkpointing: bool = False
    retention: Retention = FullHistory
    description: str | None = None
    version: int = FORMAT

    def node(self, id: str) -> Node:
        """Return the node with that id, which must exist."""
        return next(node for node in self.nodes if node.id == id)

    def routes(self) -> Iterator[Route]:
        """Yield each single route, in the order of the edges."""
        for number, edge in enumerate(self.edges):
            for source in edge.sources:
                for target in edge.targets:
                    yield Route(number, source, target)
