"""What came for a run from outside: read from its mail, with what is overdue answered by its default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stepwell.codec.codec import Codec
from stepwell.engine.responses import convert_response, find_overdue, send_defaults
from stepwell.errors import ResponseRejected
from stepwell.graph.graph import Graph
from stepwell.kernel import ReceivedInput, ReceivedResponse, ReceivedSignal
from stepwell.model.event import WorkflowRunState
from stepwell.model.payload import Payload
from stepwell.model.superstep import Checkpoint
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
    """What arrived, and the keys it came under."""

    arrived: tuple[ReceivedSignal, ...] = ()
    keys: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()  # of the letters that want the run to stop
    refused: tuple[ResponseRejected, ...] = ()  # for plain answers that are not what was asked for


class SignalReader:
    """The mail of the run a drive moves on. A run that is kept nowhere gets only what the drive was given."""

    def __init__(self, archive: Archive | None, codec: Codec, graph: Graph) -> None:
        self._archive, self._codec, self._graph = archive, codec, graph
        self._responses: list[ReceivedResponse] = []
        self.overtaken: tuple[str, ...] = ()  # keys of wishes to stop that came too late: the next commit consumes them

    def add_responses(self, answers: Mapping[str, Payload]) -> None:
        """Answers for a run that is kept nowhere."""
        self._responses += [ReceivedResponse(id, value) for id, value in answers.items()]

    async def find_response_ids(self, at: Checkpoint) -> set[str]:
        """The open questions whose answer is there, only not yet taken in."""
        return {
            signal.request_id for signal in (await self.receive(at)).arrived if isinstance(signal, ReceivedResponse)
        }

    async def receive(self, at: Checkpoint) -> ReceivedSignals:
        """Everything that is there now. What was meant for the run as it was before it was moved back is passed over,
        and gone with whatever is taken in next."""
        if self._archive is None:
            responses = tuple(item for item in self._responses if item.request_id in at.requests)
            late = [ReceivedResponse(r.id, r.default) for r in find_overdue(at) if r.default is not None]
            return ReceivedSignals((*responses, *late))
        signals = await self._read_signals(self._archive, at)
        offered, refused = self._convert_plain_responses(at, signals)
        if expired := [item for item in find_overdue(at) if item.id not in offered]:  # plain answers came in time, too
            await send_defaults(self._archive, at, expired)
            signals = await self._read_signals(self._archive, at)
        current = _select_epoch(at, signals)
        arrived = _decode(current, self._codec)
        # whoever answered with the very type was told that the answer stands
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
        """Plain answers to open questions, as what was asked for: the first that can be made into that. And why not."""
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
        """The keys of the letters that want the run to stop now."""
        return () if self._archive is None else (await self.receive(at)).cancel

    async def _find_valid_cancels(
        self, archive: Archive, at: Checkpoint, signals: Mapping[str, Signal]
    ) -> tuple[str, ...]:
        """The keys of the wishes to stop that are not overtaken: because the run was done since, or stopped since and
        resumed on purpose."""
        wishes = {key: signal.number for key, signal in signals.items() if isinstance(signal, CancelSignal)}
        if not wishes:
            return ()
        since = await archive.commits(at.run_id, after=min(wishes.values()))
        stops = [commit.number for commit in since if commit.status in _OVER]
        last = at.number + 1 if at.status is WorkflowRunState.IDLE else max(stops, default=-1)
        self.overtaken = tuple(key for key, number in wishes.items() if number < last)
        return tuple(key for key in wishes if key not in self.overtaken)


def decode_pending(at: Checkpoint, signals: Sequence[tuple[str, bytes]], codec: Codec) -> list[ReceivedSignal]:
    """What came for a run as values of its own types, and is not taken in. Plain answers become that only then."""
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
    """Without those that were meant for the run as it was before it was moved back."""
    return {key: signal for key, signal in signals.items() if is_of_epoch(key, at.header.epoch)}
