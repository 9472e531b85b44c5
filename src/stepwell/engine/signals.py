"""Judges the signals of a run, once, when they are about to be applied."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stepwell.engine.responses import convert_response
from stepwell.errors import ResponseRejected
from stepwell.graph.graph import Graph
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowRunState
from stepwell.model.payload import Pack, Payload
from stepwell.model.signal import ReceivedCancel, ReceivedInput, ReceivedJson, ReceivedResponse, Signal
from stepwell.storage.archive import Archive
from stepwell.storage.signals import is_of_epoch

_OVER = (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)


class JudgedSignals(msgspec.Struct, frozen=True):
    """The signals to apply, and the keys to consume with them."""

    arrived: tuple[ReceivedResponse | ReceivedInput, ...] = ()
    keys: tuple[str, ...] = ()
    # Why JSON responses could not be converted to the requested type.
    refused: tuple[ResponseRejected, ...] = ()

    @property
    def answered(self) -> set[str]:
        """The requests that get a response."""
        return {signal.request_id for signal in self.arrived if isinstance(signal, ReceivedResponse)}


def judge_signals(graph: Graph, at: Checkpoint, signals: Mapping[str, Signal], pack: Pack) -> JudgedSignals:
    """Decide which signals are applied. Those of an earlier epoch are ignored, and consumed with the others."""
    current = select_epoch(at, signals).values()
    arrived = [signal for signal in current if isinstance(signal, ReceivedResponse | ReceivedInput)]
    # A typed response beats a JSON one: its sender was promised that it is the first.
    typed = {signal.request_id for signal in arrived if isinstance(signal, ReceivedResponse)}
    converted: dict[str, Payload] = {}
    refused: dict[str, ResponseRejected] = {}
    for signal in current:
        if not isinstance(signal, ReceivedJson) or signal.request_id in typed or signal.request_id in converted:
            continue
        if (request := at.requests.get(signal.request_id)) is not None:
            try:
                value = msgspec.json.decode(signal.value)
                converted[request.id] = convert_response(graph, at, request, value, pack)
            except ResponseRejected as error:
                refused[request.id] = error
    return JudgedSignals(
        (*arrived, *(ReceivedResponse(id, value) for id, value in converted.items())),
        tuple(signals),
        tuple(error for id, error in refused.items() if id not in converted),
    )


def select_epoch(at: Checkpoint, signals: Mapping[str, Signal]) -> dict[str, Signal]:
    """Leave out signals that were sent to the run before it was moved back."""
    return {key: signal for key, signal in signals.items() if is_of_epoch(key, at.header.epoch)}


class Cancels(msgspec.Struct, frozen=True):
    """The keys of the cancel signals of a run."""

    valid: tuple[str, ...] = ()
    # Sent before the run was completed, or before it was cancelled and resumed on purpose.
    stale: tuple[str, ...] = ()


NO_CANCELS = Cancels()


async def find_cancels(archive: Archive, at: Checkpoint, signals: Mapping[str, Signal]) -> Cancels:
    """Find the signals that cancel the run now, and those that came too late."""
    current = select_epoch(at, signals).items()
    sent_at = {key: signal.number for key, signal in current if isinstance(signal, ReceivedCancel)}
    if not sent_at:
        return NO_CANCELS
    since = await archive.commits(at.run_id, after=min(sent_at.values()))
    stops = [commit.number for commit in since if commit.status in _OVER]
    last = at.number + 1 if at.status is WorkflowRunState.IDLE else max(stops, default=-1)
    stale = tuple(key for key, number in sent_at.items() if number < last)
    return Cancels(tuple(key for key in sent_at if key not in stale), stale)
