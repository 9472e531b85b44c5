"""Find every problem of a graph at once; decide nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .edges import Edge, FanIn
from .executor import Executor
from .types import describe, is_type_compatible


def problems(start: str | None, executors: Mapping[str, Executor], edges: Sequence[Edge]) -> list[str]:
    """Everything wrong with a graph, one sentence each."""
    found = [*_handlers(executors), *_unknown(executors, edges), *_repeated(edges), *_joins(edges)]
    if start is None:
        return ["no start executor: give WorkflowBuilder(start_executor=...)", *found]
    return [*found, *_types(executors, edges), *_unreachable(start, executors, edges)]


def _handlers(executors: Mapping[str, Executor]) -> Iterator[str]:
    for id, executor in executors.items():
        for problem in executor.handlers.problems:
            yield f"executor {id!r}: {problem}"
        if not executor.handlers.specs and not executor.handlers.problems:
            yield f"executor {id!r} has no handler: mark a method with @handler"


def _unknown(executors: Mapping[str, Executor], edges: Sequence[Edge]) -> Iterator[str]:
    for edge in edges:
        for word, ids in (("source", edge.sources), ("target", edge.targets)):
            for id in ids:
                if id not in executors:
                    yield f"unknown {word} {id!r} in edge '{edge.describe()}': no executor has that id"


def _repeated(edges: Sequence[Edge]) -> Iterator[str]:
    """One way from one executor to another: a message must not arrive twice."""
    seen: dict[tuple[str, str], Edge] = {}
    for edge in edges:
        for pair in dict.fromkeys((source, target) for source in edge.sources for target in edge.targets):
            first = seen.setdefault(pair, edge)
            if first is not edge:
                yield (
                    f"duplicate edge from {pair[0]!r} to {pair[1]!r}: once in '{first.describe()}' and "
                    f"again in '{edge.describe()}'"
                )
        for ids in (edge.sources, edge.targets):
            for id in {id for id in ids if ids.count(id) > 1}:
                yield f"{id!r} stands twice in edge '{edge.describe()}'"


def _joins(edges: Sequence[Edge]) -> Iterator[str]:
    for edge in edges:
        if isinstance(edge, FanIn) and len(set(edge.sources)) < 2:
            yield f"the fan-in into {edge.target!r} has one source, {edge.sources[0]!r}: use add_edge"


def _types(executors: Mapping[str, Executor], edges: Sequence[Edge]) -> Iterator[str]:
    for edge in edges:
        for source in edge.sources:
            for target in edge.targets:
                if source in executors and target in executors:
                    yield from _cannot_meet(executors[source], executors[target], isinstance(edge, FanIn))


def _cannot_meet(source: Executor, target: Executor, joined: bool) -> Iterator[str]:
    sent, taken = source.handlers.output_types, target.handlers.input_types
    if not sent or not taken:  # what was not declared is allowed; it is looked at when it is sent
        return
    offered = [list[one] for one in sent] if joined else sent  # type: ignore[valid-type]
    if not any(is_type_compatible(one, other) for one in offered for other in taken):
        yield (
            f"{source.id!r} sends {' | '.join(describe(one) for one in offered)}, "
            f"but {target.id!r} takes only {' | '.join(describe(one) for one in taken)}"
        )


def _unreachable(start: str, executors: Mapping[str, Executor], edges: Sequence[Edge]) -> Iterator[str]:
    onward: dict[str, set[str]] = {}
    for edge in edges:
        for source in edge.sources:
            onward.setdefault(source, set()).update(edge.targets)
    reached, todo = {start}, [start]
    while todo:
        for target in onward.get(todo.pop(), set()) - reached:
            reached.add(target)
            todo.append(target)
    for id in executors:
        if id not in reached:
            yield f"{id!r} can never be reached from the start, {start!r}"
