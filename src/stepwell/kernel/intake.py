"""Intake: signals become messages. A response goes to the executor that asked, input to the start."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.graph.graph import Graph
from stepwell.kernel.superstep import CommitDecision, plan, status_of
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind, Stamp
from stepwell.model.message import Reply, RoutedMessage
from stepwell.model.signal import ReceivedInput, ReceivedResponse


def intake(
    graph: Graph, before: Checkpoint, arrived: Sequence[ReceivedResponse | ReceivedInput], stamp: Stamp
) -> CommitDecision:
    """Return the commit that applies these signals, and the plan that follows from it.

    A response to a request that is not open is ignored: it was refused when it was sent, or the
    request was closed since.
    """
    number = before.number + 1
    requests = dict(before.requests)
    messages = list(before.messages)
    closed = []
    # Numbered by position in `arrived`, ignored signals included: the ids then depend on nothing else
    for n, signal in enumerate(arrived):
        if isinstance(signal, ReceivedInput):
            messages.append(
                RoutedMessage(f"{number}.{n}", None, signal.value, target=graph.start, takers=(graph.start,))
            )
        # popped, so that a second response to the same request finds it closed
        elif (request := requests.pop(signal.request_id, None)) is not None:
            closed.append(request.id)
            reply, asker = Reply(request.id, request.payload, request.child), request.executor
            messages.append(
                RoutedMessage(f"{number}.{n}", None, signal.value, target=asker, takers=(asker,), reply=reply)
            )
    following = plan(graph, number, messages, before.held)
    commit = Commit(
        number=number,
        kind=CommitKind.INTAKE,
        stamp=stamp,
        status=status_of(following, waiting=bool(requests)),
        iteration=before.iteration,
        since_input=0,  # the limit on supersteps counts from the last message that came from outside
        place=number,
        messages=tuple(messages),
        closed=tuple(closed),
    )
    return CommitDecision(commit, following)
