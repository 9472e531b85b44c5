"""Find the problems of a definition, each as one sentence with its place. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stepwell.declarative.definition import INNER_PREFIX, Approval, Definition, Edge, Node, Retries

Where = tuple[str | int, ...]
"""The path to a place in a definition, in the keys of a file: `("nodes", 2, "fallback")`."""

Check = tuple[bool, str, str]
"""Whether there is a problem, the part of the definition that it is about, and the problem."""


def find_problems(definition: Definition) -> Iterator[tuple[Where, str]]:
    """Yield every problem and its place."""
    ids = [node.id for node in definition.nodes]
    if not ids:
        yield ("nodes",), "the workflow has no agents: call add_agent(...)"
    for id in dict.fromkeys(ids):
        if ids.count(id) > 1:
            last = max(number for number, other in enumerate(ids) if other == id)
            yield ("nodes", last, "id"), f"two agents are called {id!r}"
    checks: list[tuple[Where, Check]] = [
        *((("nodes", n), check) for n, node in enumerate(definition.nodes) for check in _check_node(node, definition)),
        *((("edges", n), check) for n, edge in enumerate(definition.edges) for check in _check_edge(edge, definition)),
        *((("nodes", n), check) for n, node in enumerate(definition.nodes) for check in _check_chain(node, definition)),
    ]
    for where, (is_problem, part, text) in checks:
        if is_problem:
            yield (*where, part), text
    defaults = Counter(source for edge in definition.edges if edge.default for source in edge.sources)
    for source, count in defaults.items():
        if count > 1:
            yield ("edges",), f"{source!r} has {count} default edges: at most one is allowed"
    if definition.max_iterations < 1:
        yield ("max_iterations",), f"max_iterations must be at least 1, not {definition.max_iterations}"
    if definition.timeout is not None and definition.timeout <= 0:
        yield ("timeout",), f"timeout must be a number of seconds above 0, not {definition.timeout!r}"


def _check_node(node: Node, definition: Definition) -> list[Check]:
    id, mode, types = node.id, node.output_mode, node.output_types
    ids = {other.id for other in definition.nodes}
    # Ids become executor ids: the conductor's and those of inner workflows are reserved.
    unusable = not isinstance(id, str) or not id or id == "conductor"
    outside = "" if unusable or not id.startswith(INNER_PREFIX) else id.removeprefix(INNER_PREFIX)
    targets = [route.target for route in definition.routes() if route.source == id]
    return [
        (unusable, "id", f"an agent cannot be called {id!r}"),
        (outside in ids and outside != "", "id", f"an agent cannot be called {id!r} next to {outside!r}"),
        (
            node.value_key == "input",
            "output_key",
            f"{id!r} cannot have the output key 'input': that is the input of the run",
        ),
        (
            node.input_key is not None and node.input_template is not None,
            "input_template",
            f"{id!r} has an input_key and an input_template: set one of them",
        ),
        (
            mode == "structured" and len(types) > 1,
            "output_types",
            f"{id!r} has several types: use the union mode, or name one type",
        ),
        (
            mode == "union" and len(types) < 2,
            "output_types",
            f"{id!r} has the union mode: name at least two types",
        ),
        (
            mode in ("text", "handoff") and bool(types),
            "output_types",
            f"{id!r} has the {mode} mode, which takes no types",
        ),
        (
            mode == "handoff" and not targets,
            "output_mode",
            f"the router {id!r} has no targets: add edges from it",
        ),
        (
            node.default_target is not None and node.default_target not in targets,
            "default_target",
            f"the default of {id!r} is {node.default_target!r}, but no edge leads there",
        ),
        *_check_failures(node, definition),
    ]


def _check_failures(node: Node, definition: Definition) -> list[Check]:
    """Check the fallback and the limits of a node."""
    id, fallback = node.id, node.fallback
    is_other = fallback != id and any(fallback == other.id for other in definition.nodes)
    has_edges = any(fallback in (route.source, route.target) for route in definition.routes())
    retry, approval = node.retry or Retries(), node.approval or Approval()
    return [
        (
            (node.on_error == "fallback") != (fallback is not None),
            "fallback",
            f"{id!r} must have both fallback and on_error='fallback', or neither",
        ),
        (
            fallback is not None and not is_other,
            "fallback",
            f"{id!r} falls back to {fallback!r}, which is not another agent of this workflow",
        ),
        (
            is_other and has_edges,
            "fallback",
            f"{fallback!r} is the fallback of {id!r} and must have no edges: its result counts as that of {id!r}",
        ),
        (
            node.timeout is not None and node.timeout <= 0,
            "timeout",
            f"the timeout of {id!r} must be a number of seconds above 0, not {node.timeout!r}",
        ),
        (
            node.concurrency is not None and node.concurrency < 1,
            "concurrency",
            f"the concurrency of {id!r} must be at least 1, not {node.concurrency!r}",
        ),
        (
            retry.attempts < 1 or retry.initial_delay < 0 or retry.max_delay < 0,
            "retry",
            f"the retries of {id!r} need at least one attempt and no negative delay",
        ),
        (
            approval.timeout is not None and approval.timeout < 0,
            "approval",
            f"the approval timeout of {id!r} cannot be negative",
        ),
    ]


def _check_edge(edge: Edge, definition: Definition) -> Iterator[Check]:
    ids = {node.id for node in definition.nodes}
    for part, ends in (("from", edge.sources), ("to", edge.targets)):
        yield not ends, part, f"an edge needs at least one agent in {part!r}"
        for id in ends:
            yield id not in ids, part, f"an edge names {id!r}, which is not an agent of this workflow"
    options = (edge.condition is not None, edge.default, edge.type is not None)
    yield sum(options) > 1, "condition", "an edge has at most one of: a condition, default, a type"
    for node in definition.nodes if edge.type is not None else ():
        is_impossible = node.id in edge.sources and edge.type not in node.output_types
        types = ", ".join(node.output_types) or "none"
        yield is_impossible, "type", f"{node.id!r} never produces a {edge.type}: its types are {types}"


def _check_chain(node: Node, definition: Definition) -> Iterator[Check]:
    """Check that a node is the fallback of one other node at most, and never of itself."""
    if node.fallback is None:
        return
    falls_to = {other.id: other.fallback for other in definition.nodes if other.fallback is not None}
    first = next(other.id for other in definition.nodes if other.fallback == node.fallback)
    yield (
        first != node.id,
        "fallback",
        f"{node.fallback!r} is already the fallback of {first!r}: add the agent again under another id",
    )
    visited, last = {node.id}, node.fallback
    while last in falls_to and last not in visited:
        visited.add(last)
        last = falls_to[last]
    # A node that names itself is reported with the node.
    circular = last == node.id and last != node.fallback
    yield circular, "fallback", f"{node.id!r} falls back to itself through {node.fallback!r}"
    stuck = node.output_mode == "handoff" and node.default_target is None
    yield stuck, "fallback", f"the router {node.id!r} needs a default, because its fallback cannot choose a target"
