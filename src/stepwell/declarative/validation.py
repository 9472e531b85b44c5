"""What is wrong with a definition, one sentence each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stepwell.declarative.definition import Definition, Edge, Node

Where = tuple[str | int, ...]
"""Where in the definition: `("nodes", 2, "fallback")`."""


def find_problems(definition: Definition) -> Iterator[tuple[Where, str]]:
    """Everything that is wrong, and where."""
    ids = {node.id for node in definition.nodes}
    if not definition.nodes:
        yield ("nodes",), "the workflow has no agents: add_agent(...)"
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
            yield ("edges",), f"{source!r} has {count} default edges: at most one is taken if nothing else is"
    if definition.max_iterations < 1:
        yield ("max_iterations",), f"max_iterations is at least 1, not {definition.max_iterations}"
    if definition.timeout is not None and definition.timeout <= 0:
        yield ("timeout",), f"timeout is a number of seconds above 0, not {definition.timeout!r}"


def _find_node_problems(node: Node, definition: Definition, ids: set[str]) -> Iterator[tuple[str, str]]:
    routes = list(definition.routes())
    if not isinstance(node.id, str) or not node.id or node.id == "conductor":
        yield "id", f"an agent cannot be called {node.id!r}"
    elif node.id.startswith("inside ") and node.id.removeprefix("inside ") in ids:
        yield "id", f"an agent cannot be called {node.id!r} beside {node.id.removeprefix('inside ')!r}"
    if node.gives == "input":
        yield "output_key", f"{node.id!r} cannot give 'input': that is what a run is given"
    if node.input_key is not None and node.input_template is not None:
        yield "input_template", f"{node.id!r} has an input key and a template: give one of them"
    if node.output_mode == "structured" and len(node.output_types) > 1:
        yield "output_types", f"{node.id!r} gives one type of object; for several use the union mode"
    if node.output_mode == "union" and len(node.output_types) < 2:
        yield "output_types", f"{node.id!r} gives one of several types: name at least two"
    if node.output_mode in ("text", "handoff") and node.output_types:
        yield "output_types", f"{node.id!r} gives {node.output_mode}, which has no types"
    targets = [route.target for route in routes if route.source == node.id]
    if node.output_mode == "handoff" and not targets:
        yield "output_mode", f"the router {node.id!r} has nobody to hand over to: add edges from it"
    if node.default_target is not None and node.default_target not in targets:
        yield "default_target", f"the default of {node.id!r} is {node.default_target!r}, which no edge leads to"
    if (node.on_error == "fallback") != (node.fallback is not None):
        yield "fallback", f"{node.id!r}: fallback and on_error='fallback' go together"
    if node.fallback is not None:
        if node.fallback not in ids or node.fallback == node.id:
            yield "fallback", f"{node.id!r} falls back to {node.fallback!r}, which is no other agent of this workflow"
        elif any(node.fallback in (route.source, route.target) for route in routes):
            yield (
                "fallback",
                f"{node.fallback!r} takes the place of {node.id!r} if that fails, so it has no edges itself",
            )
    yield from _find_limit_problems(node)


def _find_limit_problems(node: Node) -> Iterator[tuple[str, str]]:
    if node.timeout is not None and node.timeout <= 0:
        yield "timeout", f"the timeout of {node.id!r} is a number of seconds above 0, not {node.timeout!r}"
    if node.concurrency is not None and node.concurrency < 1:
        yield "concurrency", f"at least one run at a time must be let into {node.id!r}, not {node.concurrency!r}"
    if node.retry is not None and (node.retry.attempts < 1 or node.retry.initial_delay < 0 or node.retry.max_delay < 0):
        yield "retry", f"the retries of {node.id!r} have at least one attempt and no negative delay"
    if node.approval is not None and node.approval.timeout is not None and node.approval.timeout < 0:
        yield "approval", f"the time for approving {node.id!r} cannot be negative"


def _find_edge_problems(edge: Edge, definition: Definition, ids: set[str]) -> Iterator[tuple[str, str]]:
    for part, named in (("from", edge.sources), ("to", edge.targets)):
        if not named:
            yield part, f"an edge needs at least one agent in {part!r}"
        for id in named:
            if id not in ids:
                yield part, f"an edge names {id!r}, which is no agent of this workflow"
    if sum((edge.condition is not None, edge.default, edge.type is not None)) > 1:
        yield "condition", "an edge has a condition, or is the default, or is for a type: one of them"
    if edge.type is not None:
        for node in definition.nodes:
            if node.id in edge.sources and edge.type not in node.output_types:
                yield (
                    "type",
                    f"{node.id!r} never gives a {edge.type}: it gives {', '.join(node.output_types) or 'text'}",
                )


def _find_fallback_problems(definition: Definition) -> Iterator[tuple[Where, str]]:
    """Who stands in for whom: each for one, and nobody, by way of others, for themselves."""
    falls_to = {node.id: node.fallback for node in definition.nodes if node.fallback is not None}
    for number, node in enumerate(definition.nodes):
        where: Where = ("nodes", number, "fallback")
        if node.fallback is None:
            continue
        first = next(id for id, other in falls_to.items() if other == node.fallback)
        if first != node.id:
            yield where, f"{node.fallback!r} stands in for {first!r} already: add it once more, under another id"
        met, at = {node.id}, node.fallback
        while at in falls_to and at not in met:
            met.add(at)
            at = falls_to[at]
        if at == node.id and at != node.fallback:
            yield where, f"{node.id!r} falls back to itself, by way of {node.fallback!r}"
        if node.output_mode == "handoff" and node.default_target is None:
            yield where, f"the router {node.id!r} needs a default, because whoever stands in for it cannot choose"
