"""Evaluates the conditions of edges when all handlers of a superstep have returned.

The results are stored in the commit of the superstep. A committed message can therefore not be
rerouted: its conditions are never evaluated again, even if they would now decide otherwise.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from stepwell.errors import RoutingFailed
from stepwell.graph.edges import Direct, Edge, Select, Switch, name_of
from stepwell.graph.graph import Graph
from stepwell.kernel import route
from stepwell.model.message import Outcome, Routed


async def choose_routes(graph: Graph, run_id: str, outcome: Outcome) -> list[Routed]:
    """Return who receives each message of an outcome. Raises RoutingFailed if a condition fails."""
    return [await choose_route(graph, run_id, outcome.executor, s.payload.open(), s.target) for s in outcome.sent]


async def choose_route(graph: Graph, run_id: str, source: str, value: object, target: str | None) -> Routed:
    """Return who receives a value that an executor sends."""
    chosen = []
    for edge in graph.outgoing.get(source, ()):
        try:
            # A condition is not asked about a message that is addressed to another edge's target.
            is_addressed = target is None or target in edge.targets
            chosen.append(await _choose_targets(edge, value) if is_addressed else ())
        except Exception as error:
            raise RoutingFailed(
                f"run {run_id!r}: a message of {source!r} could not be routed along '{edge.describe()}': "
                f"{type(error).__name__}: {error}",
                run_id=run_id,
            ) from error
    return route(graph, source, value, target, chosen)


async def _choose_targets(edge: Edge, value: Any) -> tuple[str, ...]:
    match edge:
        case Direct(condition=condition, target=target):
            return (target,) if condition is None or await _await_if_awaitable(condition(value)) else ()
        case Switch(cases=cases, default=default):
            for condition, target in cases:
                if await _await_if_awaitable(condition(value)):
                    return (target,)
            return (default,)
        case Select(choose=choose, targets=targets):
            return _check_targets(edge, await _await_if_awaitable(choose(value, list(targets))))
    return edge.targets


def _check_targets(edge: Select, picked: Sequence[str]) -> tuple[str, ...]:
    if isinstance(picked, str) or (strange := [target for target in picked if target not in edge.targets]):
        wrong = picked if isinstance(picked, str) else strange
        raise ValueError(
            f"{name_of(edge.choose)!r} must return a list of some of {', '.join(edge.targets)}; it returned {wrong!r}"
        )
    return tuple(dict.fromkeys(picked))


async def _await_if_awaitable(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
