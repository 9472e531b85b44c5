"""Compatibility: can this graph resume a stored run, and if not, why?

A run does not need the graph that started it, only what it has under way. Executors and edges may
come, go and change as long as nothing in this run depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from stepwell.errors import CodecError
from stepwell.graph.edges import FanIn
from stepwell.graph.executor import Executor, has_hooks, persistent_names
from stepwell.graph.graph import Graph
from stepwell.graph.subworkflow import Nesting
from stepwell.graph.type_matching import describe
from stepwell.kernel.superstep import plan
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.log_keys import RecalledLog
from stepwell.model.message import Delivery, Outcome, Sent
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.signal import ReceivedInput, ReceivedResponse

_ANYTHING = frozenset({"Any", "object"})


def find_incompatibilities(graph: Graph, at: Checkpoint, log: RecalledLog) -> list[str]:
    """Return why this graph cannot resume a run from a checkpoint, one sentence each; empty if it can.

    Raises CodecError if a message in flight or an open request cannot be read.
    """
    reasons = [
        *_find_removed_executors(graph, at),
        *_find_dropped_state(graph, at),
        *_find_undeliverable(graph, at, log),
        *_find_lost_joins(graph, at),
        *_find_unjoinable(graph, at),
        *(reason for request in at.requests.values() for reason in _find_unanswerable(graph, request)),
        *_find_unhandled_timers(graph, at),
        *_find_orphans(graph, at),
        *_find_misplaced_outcomes(graph, at, log),
        *(reason for executor in graph.executors.values() for reason in executor.objections(at.state)),
    ]
    return list(dict.fromkeys(reasons))  # each reason once, in this order


def find_rejected_signals(
    graph: Graph, at: Checkpoint, arrived: Iterable[ReceivedResponse | ReceivedInput]
) -> Iterator[str]:
    """Yield why this graph could not apply the pending signals of a run, one sentence each."""
    for signal in arrived:
        value = signal.value.open()
        if isinstance(signal, ReceivedInput):
            if not graph.executors[graph.start].can_handle(value):
                kind = type(value).__name__
                yield f"an input of type {kind} is pending, but the start {graph.start!r} does not accept it"
        elif (request := at.requests.get(signal.request_id)) is not None and request.waiting is None:
            asker = graph.executors[request.executor]
            if asker._handler_table.choose_response_handler(request.payload.open(), value) is None:
                response = f"a response of type {type(value).__name__} to {request.id!r} is pending"
                yield f"{response}, but {asker.id!r} has no handler for it"


def find_executor_keys(graph: Graph, state: Mapping[str, Any], executor: str, new: str | None = None) -> dict[str, str]:
    """Return the keys of a run's state that belong to an executor, each with its name under the id `new`.

    The executor itself may be gone, so the patterns of all classes in the graph are tried: an agent
    that was removed kept its conversation as the remaining agents do.
    """
    keys = {}
    for pattern in {pattern for candidate in graph.executors.values() for pattern in candidate._state_key_patterns}:
        old_prefix, new_prefix = pattern.replace("{id}", executor), pattern.replace("{id}", new or executor)
        for key in state:
            if key == old_prefix or (old_prefix.endswith("/") and key.startswith(old_prefix)):
                keys[key] = new_prefix + key[len(old_prefix) :]
    return keys


def _find_removed_executors(graph: Graph, at: Checkpoint) -> Iterator[str]:
    before = dict.fromkeys((*at.executors, *map(str, at.header.signature.get("executors", ()))))
    for id in [id for id in before if id not in graph.executors]:
        saved = [*_list_saved_names(at.executors.get(id)), *find_executor_keys(graph, at.state, id)]
        if saved:
            yield f"executor {id!r} was removed, but this run has state of it: {', '.join(map(repr, saved))}"


def _find_dropped_state(graph: Graph, at: Checkpoint) -> Iterator[str]:
    """Find saved attributes that the executor's class no longer declares: its next save would lose them."""
    for id, payload in at.executors.items():
        executor = graph.executors.get(id)
        # hooks may well convert what an older version saved
        if executor is None or has_hooks(executor):
            continue
        declared = persistent_names(type(executor))
        dropped = []
        with suppress(CodecError):  # restoring the executor will fail with the details
            dropped = [repr(name) for name in payload.open() if name not in declared]
        if dropped:
            yield f"executor {id!r} no longer declares state that this run has of it: {', '.join(dropped)}"


def _list_saved_names(payload: Payload | None) -> list[str]:
    """Return the names of what an executor saved; one without state is stored as an empty dict."""
    if payload is None:
        return []
    try:
        return [str(key) for key in payload.open()]
    except CodecError as error:  # unreadable, but not empty
        return [error.path]


def _find_undeliverable(graph: Graph, at: Checkpoint, log: RecalledLog) -> Iterator[str]:
    for delivery in plan(graph, at.place, at.messages, at.held).deliveries:
        executor = graph.executors.get(delivery.executor)
        what = "a response" if delivery.reply else "a timer" if delivery.timer else "a message"
        source = f" from {', '.join(map(repr, delivery.sources))}" if delivery.sources else ""
        if executor is None:
            yield f"executor {delivery.executor!r} was removed, but {what}{source} is in flight to it"
        # a delivery whose outcome is already stored will not be made again
        elif delivery.id not in log.outcomes and not _can_deliver(executor, delivery):
            kind = type(delivery.payload.open()).__name__
            accepted = " | ".join(map(describe, executor.input_types))
            reason = "has no handler for it" if delivery.reply or delivery.timer else f"accepts {accepted}"
            yield (
                f"{what}{source} in flight to {delivery.executor!r} is of type {kind}, "
                f"but {delivery.executor!r} {reason}"
            )


def _can_deliver(executor: Executor, delivery: Delivery) -> bool:
    if delivery.reply is not None:
        question, response = delivery.reply.question.open(), delivery.payload.open()
        return executor._handler_table.choose_response_handler(question, response) is not None
    if delivery.timer is not None:
        return executor._handler_table.choose_timer_handler(delivery.payload.open()) is not None
    # Asked first, because reading a large payload takes time and its class may be unknown by now
    if Any in executor.input_types or object in executor.input_types:
        return True
    return executor.can_handle(delivery.payload.open())


def _find_unhandled_timers(graph: Graph, at: Checkpoint) -> Iterator[str]:
    for id, timers in at.timers.items():
        executor = graph.executors.get(id)
        for name, due in timers.items():
            if executor is None:
                yield f"executor {id!r} was removed, but its timer {name!r} is set to {due}"
            elif executor._handler_table.choose_timer_handler(name) is None:
                yield f"{id!r} has no timer handler for {name!r}, but that timer is set to {due}"


def _find_lost_joins(graph: Graph, at: Checkpoint) -> Iterator[str]:
    fan_ins = {edge.key for edge in graph.edges if isinstance(edge, FanIn)}
    waiting: dict[str, dict[str, int]] = {}
    # both what a fan-in holds and what is in flight to it
    for key, by_source in at.held.items():
        waiting[key] = {source: len(payloads) for source, payloads in by_source.items() if payloads}
    for message in at.messages:
        for key in message.joins:
            counts, source = waiting.setdefault(key, {}), str(message.source)
            counts[source] = counts.get(source, 0) + 1
    for key, counts in waiting.items():
        if key not in fan_ins and counts:
            counted = ", ".join(f"{count} from {source!r}" for source, count in counts.items())
            yield f"the fan-in {key!r} was removed, but it holds messages of this run: {counted}"


def _find_unjoinable(graph: Graph, at: Checkpoint) -> Iterator[str]:
    """Find values held by a fan-in that its target would not accept as part of a list."""
    for edge in graph.edges:
        if not isinstance(edge, FanIn) or not at.held.get(edge.key):
            continue
        executor = graph.executors[edge.target]
        if Any in executor.input_types or object in executor.input_types:
            continue
        values = [payload.open() for payloads in at.held[edge.key].values() for payload in payloads]
        accepted = " | ".join(map(describe, executor.input_types))
        for kind in sorted({type(value).__name__ for value in values if not executor.can_handle([value])}):
            yield f"the fan-in {edge.key!r} holds a value of type {kind}, but {edge.target!r} accepts {accepted}"


def _find_unanswerable(graph: Graph, request: Request) -> Iterator[str]:
    executor = graph.executors.get(request.executor)
    if executor is None:
        yield f"executor {request.executor!r} was removed, but its request {request.id!r} is open"
        return
    # A handler that is still there waits for it, and says itself what it accepts.
    if request.waiting is not None:
        return
    question = request.payload.open()
    # A stored request knows the type of its response by name only, so names are compared here
    accepted = {describe(response_type) for response_type in executor._handler_table.response_types(question)}
    missing = (
        [] if accepted & _ANYTHING else [name for name in split_union(request.response_type) if name not in accepted]
    )
    if missing:
        reason = f"accepts {' | '.join(sorted(accepted))}" if accepted else "has no handler for a response to it"
        yield (
            f"the open request {request.id!r} of {request.executor!r} expects {request.response_type}, "
            f"but {request.executor!r} {reason}"
        )
    elif (
        request.default is not None
        and executor._handler_table.choose_response_handler(question, request.default.open()) is None
    ):
        yield f"{request.executor!r} does not accept the default of its open request {request.id!r}"


def split_union(description: str) -> list[str]:
    """Split the description of a union into its members: `list[A | B] | C` has two."""
    parts, depth = [""], 0
    for word in description.split(" | "):
        parts[-1] += word if not depth or not parts[-1] else f" | {word}"
        depth += word.count("[") - word.count("]")
        if depth == 0:
            parts.append("")
    return [part for part in parts if part]


def _find_orphans(graph: Graph, at: Checkpoint) -> Iterator[str]:
    for child in at.children.values():
        executor = graph.executors.get(child.executor)
        if not isinstance(executor, Nesting):
            change = "was removed" if executor is None else "is no longer a sub-workflow"
            yield f"executor {child.executor!r} {change}, but its run {child.run_id!r} waits for a response"


def _find_misplaced_outcomes(graph: Graph, at: Checkpoint, log: RecalledLog) -> Iterator[str]:
    """Find outcomes of the current superstep that would be misread or unroutable with this graph.

    They are stored under delivery ids. A fan-in with other sources, say, changes the plan, and then
    the id of a stored outcome may belong to another executor.
    """
    planned = {delivery.id: delivery for delivery in plan(graph, at.place, at.messages, at.held).deliveries}
    for id, outcome in log.outcomes.items():
        if id not in planned or planned[id].executor != outcome.executor:
            finished = f"{outcome.executor!r} has already finished in the current superstep"
            yield f"{finished}, but its delivery {id} belongs to another executor in this graph"
        elif graph.on_unroutable == "fail":
            yield from (reason for sent in outcome.sent if (reason := _explain_unroutable(graph, outcome, sent)))


def _explain_unroutable(graph: Graph, outcome: Outcome, sent: Sent) -> str | None:
    """Return why nobody in this graph receives a message that is sent but not routed yet; None if somebody does."""
    edges = graph.outgoing.get(outcome.executor, ())
    routes = [(edge, target) for edge in edges for target in edge.targets if sent.target in (None, target)]
    finished = f"{outcome.executor!r} has already finished in the current superstep and sent a message"
    if not routes:
        return f"{finished}{'' if sent.target is None else f' to {sent.target!r}'}, but no edge leads there"
    value = sent.payload.open()
    if any(
        graph.executors[target].can_handle([value] if isinstance(edge, FanIn) else value) for edge, target in routes
    ):
        return None
    return f"{finished} of type {type(value).__name__}, but no target of its edges accepts it"
