"""Who receives a message, and the plan of a superstep: which handlers to call, and what the fan-ins still hold.

Who receives a message is decided in the commit that sends it, and stored with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepwell.graph.edges import Edge, FanIn
from stepwell.graph.graph import Graph
from stepwell.graph.type_matching import describe
from stepwell.model.event import WorkflowRunState
from stepwell.model.message import Delivery, Held, Plan, Reply, Routed, RoutedMessage
from stepwell.model.payload import Payload, PayloadList

_Call = tuple[str, Payload, tuple[str, ...], Reply | None]  # a delivery that has no id yet


def status_of(following: Plan, *, waiting: bool) -> WorkflowRunState:
    """Return the status of a run that has this plan ahead. `waiting`: it has open requests."""
    if following.deliveries:
        return WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS if waiting else WorkflowRunState.IN_PROGRESS
    return WorkflowRunState.IDLE_WITH_PENDING_REQUESTS if waiting else WorkflowRunState.IDLE


def plan(graph: Graph, place: int, messages: Iterable[RoutedMessage], held: Held) -> Plan:
    """Turn the messages in flight into deliveries.

    A fan-in delivers once each of its sources has sent something. The same arguments always give
    the same deliveries under the same ids: a resume relies on it to recall stored outcomes.
    """
    calls: list[_Call] = []
    # Copied only when a fan-in receives something: `merge` takes an unchanged `held` as a sign that
    # there is nothing to store.
    holding: dict[str, dict[str, tuple[Payload, ...]]] | None = None
    for message in messages:
        sources = () if message.source is None else (message.source,)
        calls += [(taker, message.payload, sources, message.reply) for taker in message.takers]
        if message.joins and message.source is not None:
            holding = {key: dict(by_source) for key, by_source in held.items()} if holding is None else holding
            for key in message.joins:
                by_source = holding.setdefault(key, {})
                by_source[message.source] = (*by_source.get(message.source, ()), message.payload)
    # After all messages are sorted in, so that a fan-in delivers everything its sources sent at once
    if holding is not None:
        calls.extend(_complete_fan_ins(graph, holding))
    deliveries = [Delivery(f"{place}.{n}", *call) for n, call in enumerate(calls)]
    return Plan(tuple(deliveries), held if holding is None else holding)


def _complete_fan_ins(graph: Graph, holding: dict[str, dict[str, tuple[Payload, ...]]]) -> Iterable[_Call]:
    """Empty the fan-ins that are complete, and yield a call for each, in the order of the graph's edges."""
    for edge in graph.edges:
        if isinstance(edge, FanIn) and all(holding.get(edge.key, {}).get(source) for source in edge.sources):
            by_source = holding.pop(edge.key)
            # in the order in which the sources are declared, not the one in which they happened to send
            everything = PayloadList(tuple([p for source in edge.sources for p in by_source[source]]))
            yield edge.target, everything, edge.sources, None


def waiting_joins(graph: Graph, held: Held) -> list[str]:
    """Describe each fan-in that still holds something: what it holds, and which sources are missing."""
    sentences = []
    for edge in graph.edges:
        if isinstance(edge, FanIn) and (by_source := held.get(edge.key)):
            count = sum(len(payloads) for payloads in by_source.values())
            missing = ", ".join(repr(source) for source in edge.sources if not by_source.get(source))
            sentences.append(
                f"the fan-in into {edge.target!r} still holds {count} message(s): no message from {missing}"
            )
    return sentences


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
