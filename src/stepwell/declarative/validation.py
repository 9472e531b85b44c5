"""Find the problems of a definition, each as one sentence with its place. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stepwell.declarative.definition import Definition, Edge, Node

Where = tuple[str | int, ...]
"""A place in a definition, in the keys of a file: `("nodes", 2, "fallback")`."""


def find_problems(definition: Definition) -> Iterator[tuple[Where, str]]:
    """Yield every problem and its place."""
    ids = {node.id for node in definition.nodes}
    if not definition.nodes:
        yield ("nodes",), "the workflow has no agents: call add_agent(...)"
    for id, count in Counter(node.id for node in definition.nodes).items():
        if count > 1:
            number = max(n for n, node in enumerate(definition.nodes) if node.id == id)
            yield ("nodes", number, "id"), f"two agents are called {id!r}"
    for number, node in enumerate(definition.nodes):
        for part, text in _find_node_problems(node, definition, ids):
            yield ("nodes", number, part), text
    for number, edge in enumerate(definition.edges):
        for part, text in _find_edge_problems(edge, definition, ids):
            yield ("edges", number, part), text
    yield from _find_fallback_problems(definition)
    defaults = Counter(source for edge in definition.edges if edge.default for source in edge.sources)
    for source, count in defaults.items():
        if count > 1:
            yield ("edges",), f"{source!r} has {count} default edges: at most one is allowed"
    if definition.max_iterations < 1:
        yield ("max_iterations",), f"max_iterations must be at least 1, not {definition.max_iterations}"
    if definition.timeout is not None and definition.timeout <= 0:
        yield ("timeout",), f"timeout must be a number of seconds above 0, not {definition.timeout!r}"


def _find_node_problems(node: Node, definition: Definition, ids: set[str]) -> Iterator[tuple[str, str]]:
    routes = list(definition.routes())
    # Ids become executor ids: the conductor's and those of inner workflows are reserved.
    if not isinstance(node.id, str) or not node.id or node.id == "conductor":
        yield "id", f"an agent cannot be called {node.id!r}"
    elif node.id.startswith("inside ") and node.id.removeprefix("inside ") in ids:
        yield "id", f"an agent cannot be called {node.id!r} next to {node.id.removeprefix('inside ')!r}"
    if node.value_key == "input":
        yield "output_key", f"{node.id!r} cannot have the output key 'input': that is the input of the run"
    if node.input_key is not None and node.input_template is not None:
        yield "input_template", f"{node.id!r} has an input_key and an input_template: set one of them"
    # Outputs
    if node.output_mode == "structured" and len(node.output_types) > 1:
        yield "output_types", f"{node.id!r} has several types: use the union mode, or name one type"
    if node.output_mode == "union" and len(node.output_types) < 2:
        yield "output_types", f"{node.id!r} has the union mode: name at least two types"
    if node.output_mode in ("text", "handoff") and node.output_types:
        yield "output_types", f"{node.id!r} has the {node.output_mode} mode, which takes no types"
    targets = [route.target for route in routes if route.source == node.id]
    if node.output_mode == "handoff" and not targets:
        yield "output_mode", f"the router {node.id!r} has no targets: add edges from it"
    if node.default_target is not None and node.default_target not in targets:
        yield "default_target", f"the default of {node.id!r} is {node.default_target!r}, but no edge leads there"
    # Fallbacks
    if (node.on_error == "fallback") != (node.fallback is not None):
        yield "fallback", f"{node.id!r} must have both fallback and on_error='fallback', or neither"
    if node.fallback is not None:
        if node.fallback not in ids or node.fallback == node.id:
            yield (
                "fallback",
                f"{node.id!r} falls back to {node.fallback!r}, which is not another agent of this workflow",
            )
        elif any(node.fallback in (route.source, route.target) for route in routes):
            yield (
                "fallback",
                f"{node.fallback!r} is the fallback of {node.id!r} and must have no edges: its result "
                f"counts as that of {node.id!r}",
            )
    yield from _find_limit_problems(node)


def _find_limit_problems(node: Node) -> Iterator[tuple[str, str]]:
    if node.timeout is not None and node.timeout <= 0:
        yield "timeout", f"the timeout of {node.id!r} must be a number of seconds above 0, not {node.timeout!r}"
    if node.concurrency is not None and node.concurrency < 1:
        yield "concurrency", f"the concurrency of {node.id!r} must be at least 1, not {node.concurrency!r}"
    if node.retry is not None and (node.retry.attempts < 1 or node.retry.initial_delay < 0 or node.retry.max_delay < 0):
        yield "retry", f"the retries of {node.id!r} need at least one attempt and no negative delay"
    if node.approval is not None and node.approval.timeout is not None and node.approval.timeout < 0:
        yield "approval", f"the approval timeout of {node.id!r} cannot be negative"


def _find_edge_problems(edge: Edge, definition: Definition, ids: set[str]) -> Iterator[tuple[str, str]]:
    for part, ends in (("from", edge.sources), ("to", edge.targets)):
        if not ends:
            yield part, f"an edge needs at least one agent in {part!r}"
        for id in ends:
            if id not in ids:
                yield part, f"an edge names {id!r}, which is not an agent of this workflow"
    if sum((edge.condition is not None, edge.default, edge.type is not None)) > 1:
        yield "condition", "an edge has at most one of: a condition, default, a type"
    if edge.type is not None:
        for node in definition.nodes:
            if node.id in edge.sources and edge.type not in node.output_types:
                yield (
                    "type",
                    f"{node.id!r} never produces a {edge.type}: its types are {', '.join(node.output_types) or 'none'}",
                )


def _find_fallback_problems(definition: Definition) -> Iterator[tuple[Where, str]]:
    """Check that a node is the fallback of one other node at most, and never of itself."""
    falls_to = {node.id: node.fallback for node in definition.nodes if node.fallback is not None}
    for number, node in enumerate(definition.nodes):
        where: Where = ("nodes", number, "fallback")
        if node.fallback is None:
            continue
        first = next(id for id, other in falls_to.items() if other == node.fallback)
        if first != node.id:
            yield where, f"{node.fallback!r} is already the fallback of {first!r}: add the agent again under another id"
        visited, last = {node.id}, node.fallback
        while last in falls_to and last not in visited:
            visited.add(last)
            last = falls_to[last]
        # A node that names itself is reported with the node.
        if last == node.id and last != node.fallback:
            yield where, f"{node.id!r} falls back to itself through {node.fallback!r}"
        if node.output_mode == "handoff" and node.default_target is None:
            yield where, f"the router {node.id!r} needs a default, because its fallback cannot choose a target"
