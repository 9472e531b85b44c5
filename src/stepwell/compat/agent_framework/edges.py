"""Agent Framework's edge groups as edges of a Stepwell graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Edge as FrameworkEdge,
)
from agent_framework import (
    Executor,
    FanInEdgeGroup,
    FanOutEdgeGroup,
    SingleEdgeGroup,
    WorkflowMessage,
)

from stepwell.graph.edges import Direct, Edge, FanIn, FanOut, Select


def edges_of(groups: Iterable[Any], executors: Mapping[str, Executor]) -> tuple[Edge, ...]:
    """Return the edges that the groups of a workflow describe, in their order.

    The groups that lead from an executor to itself, for inputs and responses, have no edge here: the engine
    delivers both itself.
    """
    return tuple(edge for group in groups if (edge := _edge_of(group, executors)) is not None)


def _edge_of(group: Any, executors: Mapping[str, Executor]) -> Edge | None:
    match group:
        case FanInEdgeGroup():
            return FanIn(tuple(group.source_executor_ids), group.target_executor_ids[0])
        case FanOutEdgeGroup():
            source, targets = group.source_executor_ids[0], tuple(group.target_executor_ids)
            if group.selection_func is None:
                return FanOut(source, targets)
            return Select(source, targets, _selection(group.selection_func, targets, executors))
        case SingleEdgeGroup():
            edge: FrameworkEdge = group.edges[0]
            source, target = edge.source_id, edge.target_id
            if not edge.has_condition:
                return Direct(source, target)
            return Direct(source, target, _condition(edge, executors[target]))
    return None


def accepts(executor: Executor, value: object) -> bool:
    """Return whether an executor takes a message with this value."""
    return executor.can_handle(WorkflowMessage(data=value, source_id="stepwell"))


def _condition(edge: FrameworkEdge, target: Executor) -> Callable[[Any], Any]:
    """Return the condition of an edge. It is asked only about messages that the target takes, as theirs is."""

    async def condition(value: Any) -> bool:
        return accepts(target, value) and await edge.should_route(value)

    condition.__name__ = edge.condition_name or "condition"
    return condition


def _selection(
    select: Callable[[Any, list[str]], Sequence[str]], targets: Sequence[str], executors: Mapping[str, Executor]
) -> Callable[[Any, list[str]], Any]:
    async def selection(value: Any, ids: list[str]) -> list[str]:
        if not any(accepts(executors[id], value) for id in targets):
            return []
        chosen: Any = select(value, ids)
        picked = list(await chosen if inspect.isawaitable(chosen) else chosen)
        if not set(picked) <= set(targets):
            raise RuntimeError(
                f"Invalid selection result: {picked}. Expected selections to be a subset of valid target executor "
                f"IDs: {list(targets)}."
            )
        return picked

    selection.__name__ = getattr(select, "__name__", "selection")
    return selection
