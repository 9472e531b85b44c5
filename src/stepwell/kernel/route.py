"""Routing: who receives a message. Decided in the commit that sends it, and stored with it."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.graph.edges import Edge, FanIn
from stepwell.graph.graph import Graph
from stepwell.graph.type_matching import describe
from stepwell.model.message import Routed


def route(graph: Graph, source: str, value: object, target: str | None, chosen: Sequence[tuple[str, ...]]) -> Routed:
    """Decide who receives a value that `source` sent.

    `chosen` holds, for each edge that leaves the source, the targets that its condition or selection
    accepted. If nobody receives the value, the result says why.
    """
    takers: list[str] = []
    joins: list[str] = []
    refused: list[str] = []
    edges = graph.outgoing.get(source, ())
    for edge, picks in zip(edges, chosen, strict=True):
        for pick in picks if target is None else [pick for pick in picks if pick == target]:
            # a fan-in will deliver a list, so its target must handle a list of such values
            if not graph.executors[pick].can_handle([value] if isinstance(edge, FanIn) else value):
                refused.append(pick)
            elif isinstance(edge, FanIn):
                joins.append(edge.key)
            else:
                takers.append(pick)
    if takers or joins:
        return Routed(tuple(takers), tuple(joins))
    return _explain_unroutable(graph, edges, source, value, target, refused)


def _explain_unroutable(
    graph: Graph, edges: Sequence[Edge], source: str, value: object, target: str | None, refused: Sequence[str]
) -> Routed:
    # The first three are mistakes in the graph or in the code. The last is a decision: a condition that
    # declines is an answer, so the message is dropped with a warning.
    what = f"{source!r} sent a {type(value).__name__}"
    targets = list(dict.fromkeys(t for edge in edges for t in edge.targets))
    if not edges:
        return Routed(missing=f"{what}, but no edge leaves {source!r}")
    if target is not None and target not in targets:
        return Routed(missing=f"{what} to {target!r}, but its edges lead only to {_join_names(targets)}")
    if refused:
        accepted = [f"{id!r} accepts {' | '.join(map(describe, graph.executors[id].input_types))}" for id in refused]
        return Routed(missing=f"{what}, but no handler accepts it: {'; '.join(accepted)}")
    return Routed(declined=f"{what}, and every condition declined it: {'; '.join(e.describe() for e in edges)}")


def _join_names(ids: Sequence[str]) -> str:
    return ", ".join(repr(id) for id in ids)
