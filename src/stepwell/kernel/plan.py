"""Which handlers to call in the next superstep."""

from __future__ import annotations

from collections.abc import Iterable

from stepwell.graph.edges import FanIn
from stepwell.graph.graph import Graph
from stepwell.model.event import WorkflowRunState
from stepwell.model.payload import Payload, PayloadList
from stepwell.model.superstep import Delivery, Held, Plan, Reply, RoutedMessage

_Call = tuple[str, Payload, tuple[str, ...], Reply | None]


def status_of(following: Plan, *, waiting: bool) -> WorkflowRunState:
    """Where a run is that has these handlers to call, and perhaps questions that wait."""
    if following.deliveries:
        return WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS if waiting else WorkflowRunState.IN_PROGRESS
    return WorkflowRunState.IDLE_WITH_PENDING_REQUESTS if waiting else WorkflowRunState.IDLE


def plan(graph: Graph, place: int, messages: Iterable[RoutedMessage], held: Held) -> Plan:
    """Each message becomes deliveries; a fan-in delivers once each of its sources has sent something."""
    calls: list[_Call] = []
    holding: dict[str, dict[str, tuple[Payload, ...]]] | None = None
    for message in messages:
        sources = () if message.source is None else (message.source,)
        calls += [(taker, message.payload, sources, message.reply) for taker in message.takers]
        if message.joins and message.source is not None:
            holding = {key: dict(by_source) for key, by_source in held.items()} if holding is None else holding
            for key in message.joins:
                by_source = holding.setdefault(key, {})
                by_source[message.source] = (*by_source.get(message.source, ()), message.payload)
    if holding is not None:
        calls.extend(_complete_fan_ins(graph, holding))
    deliveries = [Delivery(f"{place}.{n}", *call) for n, call in enumerate(calls)]
    return Plan(tuple(deliveries), held if holding is None else holding)


def _complete_fan_ins(graph: Graph, holding: dict[str, dict[str, tuple[Payload, ...]]]) -> Iterable[_Call]:
    """The fan-ins that have everything, emptied: all that was sent, in the order of their sources."""
    for edge in graph.edges:
        if isinstance(edge, FanIn) and all(holding.get(edge.key, {}).get(source) for source in edge.sources):
            by_source = holding.pop(edge.key)
            everything = PayloadList([p for source in edge.sources for p in by_source[source]])
            yield edge.target, everything, edge.sources, None


def waiting_joins(graph: Graph, held: Held) -> list[str]:
    """For each fan-in that holds something: what it holds, and whom it still waits for, in words."""
    sentences = []
    for edge in graph.edges:
        if isinstance(edge, FanIn) and (by_source := held.get(edge.key)):
            count = sum(len(payloads) for payloads in by_source.values())
            missing = ", ".join(repr(source) for source in edge.sources if not by_source.get(source))
            sentences.append(
                f"the fan-in into {edge.target!r} still holds {count} message(s): nothing came from {missing}"
            )
    return sentences
