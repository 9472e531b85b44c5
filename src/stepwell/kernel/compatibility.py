"""What a stored run needs of the code that goes on with it, and what of that is not there.

Not the whole graph: only what the run has under way. Executors and edges may come, go and change as long as nothing of
this run depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stepwell.errors import CodecError
from stepwell.graph.edges import FanIn
from stepwell.graph.executor import Executor, has_hooks
from stepwell.graph.graph import Graph
from stepwell.graph.persistent import persistent_names
from stepwell.graph.subworkflow import Nesting
from stepwell.graph.type_matching import describe
from stepwell.kernel.intake import ReceivedInput, ReceivedSignal
from stepwell.kernel.plan import plan
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.superstep import Checkpoint, Delivery, Outcome, RecalledLog, Sent

_OPEN = frozenset({"Any", "object"})


def find_incompatibilities(graph: Graph, at: Checkpoint, log: RecalledLog) -> list[str]:
    """Why a run that stands there cannot go on with this graph, one sentence each; empty if it can.

    Raises CodecError if a message on its way or a question cannot be read.
    """
    reasons = [
        *_find_removed_executors(graph, at),
        *_find_dropped_state(graph, at),
        *_find_undeliverable(graph, at, log),
        *_find_lost_joins(graph, at),
        *_find_unjoinable(graph, at),
        *(words for request in at.requests.values() for words in _find_unanswerable(graph, request)),
        *_find_orphans(graph, at),
        *_find_misplaced_outcomes(graph, at, log),
        *(words for executor in graph.executors.values() for words in executor.objections(at.state)),
    ]
    return list(dict.fromkeys(reasons))


def find_rejected_signals(graph: Graph, at: Checkpoint, arrived: Iterable[ReceivedSignal]) -> Iterator[str]:
    """Why what lies there for a run could not be taken in, one sentence each."""
    for signal in arrived:
        value = signal.value.open()
        if isinstance(signal, ReceivedInput):
            if not graph.executors[graph.start].can_handle(value):
                yield f"a {type(value).__name__} was sent to this run, and the start {graph.start!r} does not take it"
        elif (request := at.requests.get(signal.request_id)) is not None:
            asker = graph.executors[request.executor]
            if asker._handler_table.choose_reply(request.payload.open(), value) is None:
                reason = f"{request.id!r} is answered with a {type(value).__name__}, which is not taken in"
                yield f"{reason}, and {asker.id!r} has no handler for it"


def own_keys(graph: Graph, state: Mapping[str, Any], executor: str, new: str | None = None) -> dict[str, str]:
    """The keys in the state of a run that belong to an executor, as far as the classes here say so.

    For each what it is if the executor is called `new`.
    """
    keys = {}
    for pattern in {pattern for candidate in graph.executors.values() for pattern in candidate._state_key_patterns}:
        begin, then = pattern.replace("{id}", executor), pattern.replace("{id}", new or executor)
        for key in state:
            if key == begin or (begin.endswith("/") and key.startswith(begin)):
                keys[key] = then + key[len(begin) :]
    return keys


def _find_removed_executors(graph: Graph, at: Checkpoint) -> Iterator[str]:
    for id in dict.fromkeys((*at.executors, *map(str, at.header.signature.get("executors", ())))):
        if id in graph.executors:
            continue
        saved = [*_list_saved_names(at.executors.get(id)), *own_keys(graph, at.state, id)]
        if saved:
            yield f"executor {id!r} is gone, and this run keeps state of it: {', '.join(map(repr, saved))}"


def _find_dropped_state(graph: Graph, at: Checkpoint) -> Iterator[str]:
    """What an executor kept by a name that its class does not know would be gone with its next message."""
    for id, payload in at.executors.items():
        executor = graph.executors.get(id)
        if executor is None or has_hooks(executor):  # what hooks make of it is their own affair
            continue
        declared = persistent_names(type(executor))
        dropped = [repr(name) for name in _read_names(payload) if name not in declared]
        if dropped:
            yield f"executor {id!r} is there, but does not keep any more what this run has of it: {', '.join(dropped)}"


def _read_names(payload: Payload) -> list[str]:
    try:
        return list(payload.open())
    except CodecError:  # whoever takes it back says what cannot be read
        return []


def _list_saved_names(payload: Payload | None) -> list[str]:
    """What an executor saved, by name; those that keep nothing are stored with an empty dict."""
    if payload is None:
        return []
    try:
        return [str(key) for key in payload.open()]
    except CodecError as error:  # it is something, whatever it is
        return [error.path]


def _find_undeliverable(graph: Graph, at: Checkpoint, log: RecalledLog) -> Iterator[str]:
    for delivery in plan(graph, at.place, at.messages, at.held).deliveries:
        executor = graph.executors.get(delivery.executor)
        what = "the answer to a question" if delivery.reply else "a message"
        source = f" from {', '.join(map(repr, delivery.sources))}" if delivery.sources else ""
        if executor is None:
            yield f"executor {delivery.executor!r} is gone, and {what}{source} is on its way to it"
        elif delivery.id not in log.outcomes and not _can_deliver(executor, delivery):
            kind = type(delivery.payload.open()).__name__
            takes = " | ".join(map(describe, executor.input_types))
            reason = "has no handler for it" if delivery.reply else f"takes {takes}"
            yield f"{what}{source} on its way to {delivery.executor!r} is a {kind}, and {delivery.executor!r} {reason}"


def _can_deliver(executor: Executor, delivery: Delivery) -> bool:
    if delivery.reply is not None:
        return executor._handler_table.choose_reply(delivery.reply.question.open(), delivery.payload.open()) is not None
    if Any in executor.input_types or object in executor.input_types:  # it need not be read to know that
        return True
    return executor.can_handle(delivery.payload.open())


def _find_lost_joins(graph: Graph, at: Checkpoint) -> Iterator[str]:
    fan_ins = {edge.key for edge in graph.edges if isinstance(edge, FanIn)}
    waiting: dict[str, dict[str, int]] = {}
    for key, by_source in at.held.items():
        waiting[key] = {source: len(payloads) for source, payloads in by_source.items() if payloads}
    for message in at.messages:
        for key in message.joins:
            counts, source = waiting.setdefault(key, {}), str(message.source)
            counts[source] = counts.get(source, 0) + 1
    for key, counts in waiting.items():
        if key not in fan_ins and counts:
            counted = ", ".join(f"{count} from {source!r}" for source, count in counts.items())
            yield f"the fan-in {key!r} is gone, and messages of this run wait in it: {counted}"


def _find_unjoinable(graph: Graph, at: Checkpoint) -> Iterator[str]:
    """What a fan-in holds will be delivered as part of a list."""
    for edge in graph.edges:
        if not isinstance(edge, FanIn) or not at.held.get(edge.key):
            continue
        executor = graph.executors[edge.target]
        if Any in executor.input_types or object in executor.input_types:
            continue
        values = [payload.open() for payloads in at.held[edge.key].values() for payload in payloads]
        takes = " | ".join(map(describe, executor.input_types))
        for kind in sorted({type(value).__name__ for value in values if not executor.can_handle([value])}):
            yield f"the fan-in {edge.key!r} holds a {kind}, and {edge.target!r} takes {takes}"


def _find_unanswerable(graph: Graph, request: Request) -> Iterator[str]:
    executor = graph.executors.get(request.executor)
    if executor is None:
        yield f"executor {request.executor!r} is gone, and its question {request.id!r} is open"
        return
    question = request.payload.open()
    accepted = {describe(reply_type) for reply_type in executor._handler_table.reply_types(question)}
    missing = (
        [] if accepted & _OPEN else [words for words in split_union(request.response_type) if words not in accepted]
    )
    if missing:
        takes = f"takes {' | '.join(sorted(accepted))}" if accepted else "takes no answer to that"
        wants = f"{request.executor!r} asks {request.id!r} and wants a {request.response_type}"
        yield f"{wants}, but {takes}"
    elif request.default is not None and executor._handler_table.choose_reply(question, request.default.open()) is None:
        yield f"{request.executor!r} does not take the default of its open question {request.id!r}"


def split_union(words: str) -> list[str]:
    """The members of a union in words; what stands in brackets belongs to its member."""
    parts, depth = [""], 0
    for word in words.split(" | "):
        parts[-1] += word if not depth or not parts[-1] else f" | {word}"
        depth += word.count("[") - word.count("]")
        if depth == 0:
            parts.append("")
    return [part for part in parts if part]


def _find_orphans(graph: Graph, at: Checkpoint) -> Iterator[str]:
    for child in at.children.values():
        executor = graph.executors.get(child.executor)
        if not isinstance(executor, Nesting):
            now = "gone" if executor is None else "no sub-workflow any more"
            yield f"executor {child.executor!r} is {now}, and run {child.run_id!r} inside it waits for an answer"


def _find_misplaced_outcomes(graph: Graph, at: Checkpoint, log: RecalledLog) -> Iterator[str]:
    """What was finished in the superstep that is under way, and is not committed yet, must mean the same here."""
    planned = {delivery.id: delivery for delivery in plan(graph, at.place, at.messages, at.held).deliveries}
    for id, outcome in log.outcomes.items():
        if id not in planned or planned[id].executor != outcome.executor:
            finished = f"{outcome.executor!r} has finished in the superstep that is under way"
            yield f"{finished}, and what it was called for ({id}) is somebody else's here"
        elif graph.on_unroutable == "fail":
            yield from (words for sent in outcome.sent if (words := _explain_unroutable(graph, outcome, sent)))


def _explain_unroutable(graph: Graph, outcome: Outcome, sent: Sent) -> str | None:
    """Why nobody takes what was sent, and will be routed by this graph."""
    edges = graph.outgoing.get(outcome.executor, ())
    ways = [(edge, target) for edge in edges for target in edge.targets if sent.target in (None, target)]
    began = f"{outcome.executor!r} has finished in the superstep that is under way, and has sent a message"
    if not ways:
        return f"{began}{'' if sent.target is None else f' to {sent.target!r}'}: no edge leads there"
    value = sent.payload.open()
    if any(graph.executors[target].can_handle([value] if isinstance(edge, FanIn) else value) for edge, target in ways):
        return None
    return f"{began} of class {type(value).__name__}: none of those it leads to takes that"
