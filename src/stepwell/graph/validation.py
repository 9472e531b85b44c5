"""Validation of a graph. `build()` reports every problem at once, one sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stepwell.graph.edges import Direct, Edge, FanIn, Select, Switch
from stepwell.graph.executor import Executor
from stepwell.graph.type_matching import describe, is_type_compatible
from stepwell.model.valid_text import is_text


def find_problems(start: str | None, executors: Mapping[str, Executor], edges: Sequence[Edge]) -> list[str]:
    """Return everything that is wrong with a graph, one sentence each."""
    # Reachability comes last and needs a valid start: without one, every executor would be reported
    return [
        *_check_start(start, executors),
        *_check_handlers(executors),
        *_check_ids(executors, edges),
        *_check_duplicates(edges),
        *_check_fan_ins(edges),
        *_check_functions(edges),
        *_check_types(executors, edges),
        *(_check_reachable(start, executors, edges) if start is not None and start in executors else ()),
    ]


def _check_start(start: str | None, executors: Mapping[str, Executor]) -> Iterator[str]:
    if start is None:
        yield "no start executor: pass WorkflowBuilder(start_executor=...)"
    elif start not in executors:
        yield f"unknown start {start!r}: no executor has that id"


def _check_handlers(executors: Mapping[str, Executor]) -> Iterator[str]:
    for id, executor in executors.items():
        if not is_text(id):
            yield f"the executor id {id!r} contains a lone surrogate and cannot be stored"
        for problem in executor._handler_table.problems:
            yield f"executor {id!r}: {problem}"
        if not executor._handler_table.specs and not executor._handler_table.problems:
            yield f"executor {id!r} has no handler: mark a method with @handler"


def _check_ids(executors: Mapping[str, Executor], edges: Sequence[Edge]) -> Iterator[str]:
    for edge in edges:
        for role, ids in (("source", edge.sources), ("target", edge.targets)):
            for id in ids:
                if id not in executors:
                    yield f"unknown {role} {id!r} in edge '{edge.describe()}': no executor has that id"


def _check_duplicates(edges: Sequence[Edge]) -> Iterator[str]:
    """Find two edges between the same executors: a message would arrive twice."""
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
            for id in dict.fromkeys(id for id in ids if ids.count(id) > 1):
                yield f"{id!r} appears twice in edge '{edge.describe()}'"


def _check_fan_ins(edges: Sequence[Edge]) -> Iterator[str]:
    for edge in edges:
        if isinstance(edge, FanIn) and len(set(edge.sources)) == 1:
            yield f"the fan-in into {edge.target!r} has one source, {edge.sources[0]!r}: use add_edge"


def _check_functions(edges: Sequence[Edge]) -> Iterator[str]:
    for edge in edges:
        for function in _functions_of(edge):
            if not callable(function):
                yield f"{function!r} in edge '{edge.describe()}' is not callable: pass a function"


def _functions_of(edge: Edge) -> Iterable[object]:
    match edge:
        case Direct(condition=condition):
            return () if condition is None else (condition,)
        case Switch(cases=cases):
            return [condition for condition, _ in cases]
        case Select(choose=choose):
            return (choose,)
    return ()


def _check_types(executors: Mapping[str, Executor], edges: Sequence[Edge]) -> Iterator[str]:
    for edge in edges:
        sources = [executors[id] for id in edge.sources if id in executors]
        for target in (executors[id] for id in edge.targets if id in executors):
            is_fan_in = isinstance(edge, FanIn)
            mismatches = [problem for source in sources for problem in _check_types_meet(source, target, is_fan_in)]
            # the check of a fan-in as a whole would only repeat what its single sources do wrong
            yield from mismatches or (_check_common_handler(sources, target) if is_fan_in else ())


def _check_types_meet(source: Executor, target: Executor, is_fan_in: bool) -> Iterator[str]:
    sent_types, input_types = _sent_types(source, is_fan_in), target._handler_table.input_types
    if sent_types and input_types and not any(_takes(input_type, sent_types) for input_type in input_types):
        yield f"{source.id!r} sends {_either(sent_types)}, but {target.id!r} accepts only {_either(input_types)}"


def _check_common_handler(sources: Sequence[Executor], target: Executor) -> Iterator[str]:
    """Check that a single handler accepts what all sources of a fan-in send, since it delivers one list."""
    offers, input_types = [_sent_types(source, is_fan_in=True) for source in sources], target._handler_table.input_types
    if input_types and not any(
        all(not sent_types or _takes(input_type, sent_types) for sent_types in offers) for input_type in input_types
    ):
        everything = dict.fromkeys(sent_type for sent_types in offers for sent_type in sent_types)
        yield (
            f"the fan-in into {target.id!r} delivers {_either(everything)} in one list, "
            f"but no single handler accepts them all: {_either(input_types)}"
        )


def _sent_types(source: Executor, is_fan_in: bool) -> Sequence[object]:
    """Return the types that a source declares to send; empty if it declares none: each message is checked then."""
    types = source._handler_table.output_types
    return [list[type_] for type_ in types] if is_fan_in else types  # type: ignore[valid-type]


def _takes(input_type: object, sent_types: Sequence[object]) -> bool:
    return any(is_type_compatible(sent_type, input_type) for sent_type in sent_types)


def _either(types: Iterable[object]) -> str:
    return " | ".join(map(describe, types))


def _check_reachable(start: str, executors: Mapping[str, Executor], edges: Sequence[Edge]) -> Iterator[str]:
    onward: dict[str, set[str]] = {}
    for edge in edges:
        for source in edge.sources:
            onward.setdefault(source, set()).update(edge.targets)
    # Conditions are taken as passable and fan-ins as complete: only an executor without any path is an error
    reached, todo = {start}, [start]
    while todo:
        for target in onward.get(todo.pop(), set()) - reached:
            reached.add(target)
            todo.append(target)
    for id in executors:
        if id not in reached:
            yield f"{id!r} cannot be reached from the start, {start!r}"
