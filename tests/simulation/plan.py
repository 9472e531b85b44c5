"""What happens in a world, as data: made from a seed, printed when it fails, and made smaller by leaving things out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal
from zlib import crc32

EdgeKind = Literal["direct", "when", "fan out", "fan in", "switch", "select"]
FaultKind = Literal["die", "refuse", "leave", "stop", "rival", "stall", "hasty", "again", "cancel", "answer"]


@dataclass(frozen=True)
class Node:
    """One executor. What it does is a function of the message and of this."""

    name: str
    plain: bool = False  # its handlers are plain functions, in threads
    sends: int = 1  # messages for each one that it takes
    yields: bool = False
    asks: bool = False  # a person, about every second message
    deadline: int = 0  # seconds; about every second question is left to its default
    waits: bool = False  # for the answer, in the middle of about every second handler call
    reminds: int = 0  # seconds after which a timer of each call is due
    counts: bool = False  # keeps state of its own
    appends: bool = False  # to a list that everybody appends to
    sets: bool = False  # a value that nobody else sets, and takes it away sometimes
    adds: bool = False  # to a sum that a reducer joins
    reads: bool = False  # what it sees of the list is part of what it says
    steps: int = 0  # of each branch
    branches: int = 1  # that an async handler does its steps in, side by side
    plain_steps: bool = False
    step_fails: int = 0  # so many attempts at each step
    sleep: float = 0
    fails: int = 0  # so many attempts at each message
    attempts: int = 1  # that its retry policy allows
    backoff: float = 0
    ticks: int = 0  # others have their turn so often before it goes on
    strict: bool = False  # it makes its steps as a durable function does, and must find all of them again
    child: Graph | None = None  # it is a workflow of its own
    # It asks two people, and the first answer withdraws the other question. Not part of what `chance` depends on.
    withdraws: bool = field(default=False, repr=False)

    @property
    def all_steps(self) -> int:
        return self.steps * (1 if self.plain else self.branches)


@dataclass(frozen=True)
class Edge:
    kind: EdgeKind
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    salt: int = 0
    slow: bool = False  # its condition takes its time

    def says_yes(self, trail: str, hops: int) -> bool:
        return hops > 0 and chance(self.salt, trail) % 4 > 0

    def case(self, trail: str) -> int:
        """Which target of a switch; the last one is the default."""
        return chance(self.salt, trail) % len(self.targets)

    def selected(self, trail: str) -> list[str]:
        bits = chance(self.salt, trail)
        return [target for n, target in enumerate(self.targets) if bits >> n & 1]


@dataclass(frozen=True)
class Graph:
    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()

    @property
    def start(self) -> Node:
        return self.nodes[0]

    def sends(self, name: str) -> bool:
        """Whether an edge leaves a node."""
        return any(name in edge.sources for edge in self.edges)

    def every_node(self) -> list[Node]:
        """Also those of the workflows inside."""
        inside = [one for node in self.nodes if node.child for one in node.child.every_node()]
        return [*self.nodes, *inside]


@dataclass(frozen=True)
class Fault:
    """What goes wrong in one drive of the run."""

    kind: FaultKind
    at: int = 1  # the write it dies at or is refused, or so many ticks after it began
    after: bool = False  # the write was done all the same


@dataclass(frozen=True)
class Plan:
    seed: int
    graph: Graph
    hops: int = 4  # so far a message goes, at most
    faults: tuple[Fault, ...] = ()  # of each drive, in turn; those after that go well
    durability: Literal["sync", "async", "exit"] = "sync"
    latest_only: bool = False
    streaming: bool = True
    busy: int = 2  # others have their turn up to so often around each act of the store
    batch: bool = False  # all questions are answered at once
    repeated: bool = False  # people answer again what was answered
    crowded: bool = False  # people answer and cancel whenever they like
    rebuilt: bool = False  # each drive builds the workflow anew, as another process would

    def without_faults(self) -> Plan:
        return replace(self, faults=(), busy=0, repeated=False, rebuilt=False)


def chance(*of: object) -> int:
    """Some number, the same for the same things."""
    return crc32("|".join(map(str, of)).encode())


def trail(*of: object) -> str:
    """The name of something that came of other things."""
    return f"{chance(*of):08x}{chance('also', *of):08x}"


def shown(plan: Plan) -> str:
    """A plan for people, and for Python: it can be pasted into a test."""
    graph = _shown_graph(plan.graph, 2)
    rest = {name: value for name, value in _said(plan).items() if name not in ("seed", "graph")}
    lines = [f"    {name}={value!r}," for name, value in rest.items()]
    return "\n".join(["Plan(", f"    seed={plan.seed},", f"    graph={graph},", *lines, ")"])


def _shown_graph(graph: Graph, depth: int) -> str:
    pad = "    " * depth
    nodes = "".join(f"{pad}    {_shown_node(node, depth + 1)},\n" for node in graph.nodes)
    edges = "".join(f"{pad}    {_call('Edge', _said(edge))},\n" for edge in graph.edges)
    return f"Graph({graph.name!r}, (\n{nodes}{pad}), (\n{edges}{pad}))"


def _shown_node(node: Node, depth: int) -> str:
    said = {name: repr(value) for name, value in _said(node).items() if name != "child"}
    if node.child is not None:
        said["child"] = _shown_graph(node.child, depth)
    return f"Node({', '.join(f'{name}={value}' for name, value in said.items())})"


def _said(thing: Plan | Node | Edge) -> dict[str, object]:
    """What is not as it is by default."""
    fields = type(thing).__dataclass_fields__
    return {name: getattr(thing, name) for name in fields if getattr(thing, name) != fields[name].default}


def _call(name: str, said: dict[str, object]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in said.items())})"
