"""What came from outside becomes messages: answers to whoever asked, and new input for the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.model import Checkpoint, Commit, CommitKind, Message, Reply, Stamp
from ..core.parcel import Parcel
from ..graph.graph import Graph
from .merging import Merged
from .planning import plan, status_of


@dataclass(frozen=True, slots=True)
class Answer:
    request_id: str
    value: Parcel


@dataclass(frozen=True, slots=True)
class Input:
    """A message for the start executor of a run that has begun."""

    value: Parcel


Arrived = Answer | Input


def intake(graph: Graph, before: Checkpoint, arrived: Sequence[Arrived], stamp: Stamp) -> Merged:
    """The commit that takes in what arrived. Answers to questions that are not open (any more) are passed over:
    they were refused when they were given, or the question went away meanwhile."""
    number = before.number + 1
    requests = dict(before.requests)
    messages = list(before.messages)
    closed = []
    for n, one in enumerate(arrived):
        id = f"{number}.{n}"
        match one:
            case Input(value=value):
                messages.append(Message(id, None, value, target=graph.start, takers=(graph.start,)))
            case Answer(request_id=request_id, value=value):
                request = requests.pop(request_id, None)
                if request is not None:
                    closed.append(request_id)
                    reply = Reply(request_id, request.payload)
                    asker = request.executor
                    messages.append(Message(id, None, value, target=asker, takers=(asker,), reply=reply))
    following = plan(graph, number, messages, before.held)
    commit = Commit(
        number=number,
        kind=CommitKind.INTAKE,
        stamp=stamp,
        status=status_of(following, waiting=bool(requests)),
        iteration=before.iteration,
        since_input=0,
        place=number,
        messages=tuple(messages),
        closed=tuple(closed),
    )
    return Merged(commit, following)
