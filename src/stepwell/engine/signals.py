"""What came for a run from outside: read from its mail, with what is overdue answered by its default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stepwell.codec.codec import Codec
from stepwell.engine.responses import overdue, post_defaults, typed
from stepwell.errors import ResponseRejected
from stepwell.graph.graph import Graph
from stepwell.kernel import Answer, Arrival, Input
from stepwell.model.event import WorkflowRunState
from stepwell.model.payload import Parcel
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


class Mail(msgspec.Struct, frozen=True):
    """What arrived, and the keys it came under."""

    arrived: tuple[Arrival, ...] = ()
    keys: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()  # of the letters that want the run to stop
    refused: tuple[ResponseRejected, ...] = ()  # for plain answers that are not what was asked for


class Mailbox:
    """The mail of the run a drive moves on. A run that is kept nowhere gets only what the drive was given."""

    def __init__(self, archive: Archive | None, codec: Codec, graph: Graph) -> None:
        self._archive, self._codec, self._graph = archive, codec, graph
        self._given: list[Answer] = []
        self.overtaken: tuple[str, ...] = ()  # keys of wishes to stop that came too late: the next commit consumes them

    def give(self, answers: Mapping[str, Parcel]) -> None:
        """Answers for a run that is kept nowhere."""
        self._given += [Answer(id, value) for id, value in answers.items()]

    async def answered(self, at: Checkpoint) -> set[str]:
        """The open questions whose answer is there, only not yet taken in."""
        return {one.request_id for one in (await self.read(at)).arrived if isinstance(one, Answer)}

    async def read(self, at: Checkpoint) -> Mail:
        """Everything that is there now. What was meant for the run as it was before it was moved back is passed over,
        and gone with whatever is taken in next."""
        if self._archive is None:
            given = tuple(one for one in self._given if one.request_id in at.requests)
            late = [Answer(r.id, r.default) for r in overdue(at) if r.default is not None]
            return Mail((*given, *late))
        letters = await self._letters(self._archive, at)
        offered, refused = self._offers(at, letters)
        if vain := [one for one in overdue(at) if one.id not in offered]:  # plain answers came in time, too
            await post_defaults(self._archive, at, vain)
            letters = await self._letters(self._archive, at)
        meant = _meant(at, letters)
        arrived = _arrived(meant, self._codec)
        # whoever answered with the very type was told that the answer stands
        known = {one.request_id for one in arrived if isinstance(one, Answer)}
        offers = [Answer(id, value) for id, value in offered.items() if id not in known]
        return Mail(
            (*arrived, *offers),
            tuple(letters),
            await self._obeyed(self._archive, at, meant),
            tuple(error for id, error in refused.items() if id not in known and id not in offered),
        )

    async def _letters(self, archive: Archive, at: Checkpoint) -> dict[str, Signal]:
        return {key: read_signal(at.run_id, key, body) for key, body in await archive.mail(at.run_id)}

    def _offers(
        self, at: Checkpoint, letters: Mapping[str, Signal]
    ) -> tuple[dict[str, Parcel], dict[str, ResponseRejected]]:
        """Plain answers to open questions, as what was asked for: the first that can be made into that. And why not."""
        offered: dict[str, Parcel] = {}
        refused: dict[str, ResponseRejected] = {}
        for letter in _meant(at, letters).values():
            if not isinstance(letter, PlainResponseSignal) or letter.request_id in offered:
                continue
            if (request := at.requests.get(letter.request_id)) is not None:
                try:
                    value = msgspec.json.decode(letter.value)
                    offered[request.id] = typed(self._graph, at, request, value, self._codec.pack)
                except ResponseRejected as error:
                    refused[request.id] = error
        return offered, refused

    async def cancelled(self, at: Checkpoint) -> tuple[str, ...]:
        """The keys of the letters that want the run to stop now."""
        return () if self._archive is None else (await self.read(at)).cancel

    async def _obeyed(self, archive: Archive, at: Checkpoint, meant: Mapping[str, Signal]) -> tuple[str, ...]:
        """The keys of the wishes to stop that are not overtaken: because the run was done since, or stopped since and
        resumed on purpose."""
        wishes = {key: letter.number for key, letter in meant.items() if isinstance(letter, CancelSignal)}
        if not wishes:
            return ()
        since = await archive.commits(at.run_id, after=min(wishes.values()))
        stops = [commit.number for commit in since if commit.status in _OVER]
        last = at.number + 1 if at.status is WorkflowRunState.IDLE else max(stops, default=-1)
        self.overtaken = tuple(key for key, number in wishes.items() if number < last)
        return tuple(key for key in wishes if key not in self.overtaken)


def lying_there(at: Checkpoint, mail: Sequence[tuple[str, bytes]], codec: Codec) -> list[Arrival]:
    """What came for a run as values of its own types, and is not taken in. Plain answers become that only then."""
    return _arrived(_meant(at, {key: read_signal(at.run_id, key, body) for key, body in mail}), codec)


def _arrived(letters: Mapping[str, Signal], codec: Codec) -> list[Arrival]:
    found: list[Arrival] = []
    for letter in letters.values():
        match letter:
            case ResponseSignal(request_id=id, value=value):
                found.append(Answer(id, content(value, codec)))
            case InputSignal(value=value):
                found.append(Input(content(value, codec)))
            case PlainResponseSignal() | CancelSignal():
                pass
    return found


def _meant(at: Checkpoint, letters: Mapping[str, Signal]) -> dict[str, Signal]:
    """Without those that were meant for the run as it was before it was moved back."""
    return {key: letter for key, letter in letters.items() if is_of_epoch(key, at.header.epoch)}
