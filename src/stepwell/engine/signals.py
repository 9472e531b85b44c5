"""Reads the signals of a run, and answers overdue requests with their defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stepwell.codec.codec import Codec
from stepwell.engine.responses import convert_response, find_overdue, send_defaults
from stepwell.errors import ResponseRejected
from stepwell.graph.graph import Graph
from stepwell.kernel import ReceivedInput, ReceivedResponse, ReceivedSignal
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.event import WorkflowRunState
from stepwell.model.payload import Payload
from stepwell.storage.archive import Archive
from stepwell.storage.signals import (
    CancelSignal,
    InputSignal,
    PlainResponseSignal,
    ResponseSignal,
    Signal,
    content,
    is_of_epoch,
    read_signal,
)

_OVER = (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)


class ReceivedSignals(msgspec.Struct, frozen=True):
    """The signals to apply, and the keys to consume with them."""

    arrived: tuple[ReceivedSignal, ...] = ()
    keys: tuple[str, ...] = ()
    # The keys of the signals that cancel the run.
    cancel: tuple[str, ...] = ()
    # Why JSON responses could not be converted to the requested type.
    refused: tuple[ResponseRejected, ...] = ()


class SignalReader:
    """Reads the signals of one run. A run without a storage has only the responses given to its drive."""

    def __init__(self, archive: Archive | None, codec: Codec, graph: Graph) -> None:
        self._archive, self._codec, self._graph = archive, codec, graph
        self._responses: list[ReceivedResponse] = []
        # Keys of cancel signals that came too late: the next commit consumes them.
        self.stale_cancels: tuple[str, ...] = ()

    def add_responses(self, answers: Mapping[str, Payload]) -> None:
        """Add responses for a run without a storage."""
        self._responses += [ReceivedResponse(id, value) for id, value in answers.items()]

    async def find_response_ids(self, at: Checkpoint) -> set[str]:
        """Return the open requests that have a response which is not applied yet."""
        return {
            signal.request_id for signal in (await self.receive(at)).arrived if isinstance(signal, ReceivedResponse)
        }

    async def receive(self, at: Checkpoint) -> ReceivedSignals:
        """Return all signals to apply. Those of an earlier epoch are ignored, and consumed with the others."""
        if self._archive is None:
            responses = tuple(item for item in self._responses if item.request_id in at.requests)
            defaults = [ReceivedResponse(r.id, r.default) for r in find_overdue(at) if r.default is not None]
            return ReceivedSignals((*responses, *defaults))
        signals = await self._read_signals(self._archive, at)
        offered, refused = self._convert_plain_responses(at, signals)
        # A default is stored as a signal, so that the first response wins no matter who sends it. JSON responses that
        # arrived are in time, too.
        if expired := [request for request in find_overdue(at) if request.id not in offered]:
            await send_defaults(self._archive, at, expired)
            signals = await self._read_signals(self._archive, at)
        current = _select_epoch(at, signals)
        arrived = _decode(current, self._codec)
        # A typed response beats a JSON one: its sender was promised that it is the first.
        answered_ids = {item.request_id for item in arrived if isinstance(item, ReceivedResponse)}
        offers = [ReceivedResponse(id, value) for id, value in offered.items() if id not in answered_ids]
        return ReceivedSignals(
            (*arrived, *offers),
            tuple(signals),
            await self._find_valid_cancels(self._archive, at, current),
            tuple(error for id, error in refused.items() if id not in answered_ids and id not in offered),
        )

    async def _read_signals(self, archive: Archive, at: Checkpoint) -> dict[str, Signal]:
        return {key: read_signal(at.run_id, key, body) for key, body in await archive.pending_signals(at.run_id)}

    def _convert_plain_responses(
        self, at: Checkpoint, signals: Mapping[str, Signal]
    ) -> tuple[dict[str, Payload], dict[str, ResponseRejected]]:
        """Return JSON responses as the requested types, the first that can be converted, and why others cannot."""
        offered: dict[str, Payload] = {}
        refused: dict[str, ResponseRejected] = {}
        for signal in _select_epoch(at, signals).values():
            if not isinstance(signal, PlainResponseSignal) or signal.request_id in offered:
                continue
            if (request := at.requests.get(signal.request_id)) is not None:
                try:
                    value = msgspec.json.decode(signal.value)
                    offered[request.id] = convert_response(self._graph, at, request, value, self._codec.pack)
                except ResponseRejected as error:
                    refused[request.id] = error
        return offered, refused

    async def find_cancels(self, at: Checkpoint) -> tuple[str, ...]:
        """Return the keys of the signals that cancel the run now."""
        return () if self._archive is None else (await self.receive(at)).cancel

    async def _find_valid_cancels(
        self, archive: Archive, at: Checkpoint, signals: Mapping[str, Signal]
    ) -> tuple[str, ...]:
        """Return the keys of the cancel signals that still count: not those sent before the run was completed, or
        before it was cancelled and resumed on purpose."""
        wishes = {key: signal.number for key, signal in signals.items() if isinstance(signal, CancelSignal)}
        if not wishes:
            return ()
        since = await archive.commits(at.run_id, after=min(wishes.values()))
        stops = [commit.number for commit in since if commit.status in _OVER]
        last = at.number + 1 if at.status is WorkflowRunState.IDLE else max(stops, default=-1)
        self.stale_cancels = tuple(key for key, number in wishes.items() if number < last)
        return tuple(key for key in wishes if key not in self.stale_cancels)


def decode_pending(at: Checkpoint, signals: Sequence[tuple[str, bytes]], codec: Codec) -> list[ReceivedSignal]:
    """Return the typed signals of a run that are not applied yet. JSON responses are converted only on applying."""
    return _decode(_select_epoch(at, {key: read_signal(at.run_id, key, body) for key, body in signals}), codec)


def _decode(signals: Mapping[str, Signal], codec: Codec) -> list[ReceivedSignal]:
    received: list[ReceivedSignal] = []
    for signal in signals.values():
        match signal:
            case ResponseSignal(request_id=id, value=value):
                received.append(ReceivedResponse(id, content(value, codec)))
            case InputSignal(value=value):
                received.append(ReceivedInput(content(value, codec)))
            case PlainResponseSignal() | CancelSignal():
                pass
    return received


def _select_epoch(at: Checkpoint, signals: Mapping[str, Signal]) -> dict[str, Signal]:
    """Leave out signals sent to the run before it was moved back."""
    return {key: signal for key, signal in signals.items() if is_of_epoch(key, at.header.epoch)}
