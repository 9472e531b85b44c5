"""Messages, the deliveries that are planned for them, and the outcome of each delivery.

    RoutedMessage → plan → Delivery → handler → Outcome → route, merge → Commit → apply → Checkpoint

All values are frozen; none knows how it is stored. The theory behind them (commit number, place,
epoch) is in `stepwell.kernel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from stepwell.model.child import Child
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.state_writes import Write
from stepwell.model.timing import CallTime, HandlerReturn, StepRecord


class Reply(msgspec.Struct, frozen=True):
    """The request that a message is the response to."""

    request_id: str
    # the handler of a response also receives the request
    question: Payload
    # the sub-workflow run that made the request, if it was one
    child: str | None = None


class RoutedMessage(msgspec.Struct, frozen=True):
    """A message in flight. Its receivers were decided by the commit that sent it, and are part of it."""

    id: str
    source: str | None  # None: from outside
    payload: Payload
    # the receiver that the sender named; None: all that the edges lead to
    target: str | None = None
    takers: tuple[str, ...] = ()  # the executors it is delivered to
    # the fan-ins that hold it until they are complete
    joins: tuple[str, ...] = ()
    reply: Reply | None = None
    # of a timer, whose name is the payload: the time that was set
    timer: str | None = None

    @property
    def is_held(self) -> bool:
        """Whether it answers a request of the superstep in progress: it is delivered after that one."""
        return self.reply is not None and not self.takers

    def is_late(self, place: int) -> bool:
        """Return whether it came from outside when the superstep of its place had been tried already."""
        number, _, rest = self.id.partition(".")
        return self.source is None and bool(rest) and number.isdecimal() and int(number) > place


class Delivery(msgspec.Struct, frozen=True):
    """One handler call to make in this superstep. Its id, `place.index`, is the same in every attempt."""

    id: str
    executor: str
    payload: Payload
    sources: tuple[str, ...]
    reply: Reply | None = None
    timer: str | None = None


Held = Mapping[str, Mapping[str, tuple[Payload, ...]]]
"""What the fan-ins hold: fan-in → source → payloads, oldest first."""


class Plan(msgspec.Struct, frozen=True):
    """The deliveries of one superstep, and what the fan-ins hold once these are made."""

    deliveries: tuple[Delivery, ...]
    held: Held


class Sent(msgspec.Struct, frozen=True):
    """A message that a handler sent and that is not routed yet."""

    payload: Payload
    target: str | None


class Output(msgspec.Struct, frozen=True):
    """A value that a handler yielded."""

    kind: Literal["output", "intermediate"]
    payload: Payload


class Outcome(msgspec.Struct, frozen=True):
    """Everything that one delivery wants to happen, staged until the commit."""

    delivery: str
    executor: str
    sent: tuple[Sent, ...] = ()
    outputs: tuple[Output, ...] = ()
    writes: Mapping[str, Write] = {}
    # the executor's own state afterwards; None: it has none
    saved: Payload | None = None
    requests: tuple[Request, ...] = ()
    withdrawn: tuple[str, ...] = ()  # ids of requests that it takes back
    children: Mapping[str, Child | None] = {}  # None: it no longer waits
    tags: Mapping[str, str | None] = {}  # of the run; None: removed
    timers: Mapping[str, str | None] = {}  # by name: the time it is set to; None: cancelled
    attempts: int = 1  # how often the handler was called
    time: CallTime | None = None  # of the attempt that succeeded
    steps: tuple[StepRecord, ...] = ()
    # the version of the workflow that the handler belongs to
    version: int = 1


class OutcomeSummary(msgspec.Struct, frozen=True):
    """What a handler did, in short; worked out only if somebody looks at it."""

    outcome: Outcome

    def open(self) -> HandlerReturn:
        sent, outputs = self.outcome.sent, self.outcome.outputs
        return HandlerReturn(
            sent=tuple(type(message.payload.open()).__name__ for message in sent),
            outputs=tuple(type(output.payload.open()).__name__ for output in outputs),
            requests=tuple(request.id for request in self.outcome.requests),
            steps=self.outcome.steps,
        )


class Routed(msgspec.Struct, frozen=True):
    """Who receives one sent message; if nobody does, the reason."""

    takers: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    # no edge or no handler for it: an error, unless the graph says otherwise
    missing: str | None = None
    # there are edges, but every condition said no: a warning
    declined: str | None = None
