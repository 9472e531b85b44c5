"""What came for a run from outside: read from its mail, with what is overdue answered by its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.events import WorkflowRunState
from ..core.model import Checkpoint
from ..core.parcel import Parcel
from ..durable.archive import Archive
from ..durable.codec import Codec
from ..durable.letters import AnswerLetter, CancelLetter, InputLetter, Letter, content, is_of_epoch, read_letter
from ..kernel import Answer, Arrival, Input
from .answering import overdue, post_defaults

_OVER = (WorkflowRunState.IDLE, WorkflowRunState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Mail:
    """What arrived, and the keys it came under."""

    arrived: tuple[Arrival, ...] = ()
    keys: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()  # of the letters that want the run to stop


class Mailbox:
    """The mail of the run a drive moves on. A run that is kept nowhere gets only what the drive was given."""

    def __init__(self, archive: Archive | None, codec: Codec) -> None:
        self._archive, self._codec = archive, codec
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
        await post_defaults(self._archive, at, overdue(at))
        letters = {key: read_letter(at.run_id, key, body) for key, body in await self._archive.mail(at.run_id)}
        meant = {key: letter for key, letter in letters.items() if is_of_epoch(key, at.header.epoch)}
        arrived = [self._arrival(letter) for letter in meant.values()]
        return Mail(
            tuple(one for one in arrived if one is not None),
            tuple(letters),
            await self._obeyed(self._archive, at, meant),
        )

    async def cancelled(self, at: Checkpoint) -> tuple[str, ...]:
        """The keys of the letters that want the run to stop now."""
        return () if self._archive is None else (await self.read(at)).cancel

    async def _obeyed(self, archive: Archive, at: Checkpoint, meant: Mapping[str, Letter]) -> tuple[str, ...]:
        """The keys of the wishes to stop that are not overtaken: because the run was done since, or stopped since and
        resumed on purpose."""
        wishes = {key: letter.number for key, letter in meant.items() if isinstance(letter, CancelLetter)}
        if not wishes:
            return ()
        since = await archive.commits(at.run_id, after=min(wishes.values()))
        stops = [commit.number for commit in since if commit.status in _OVER]
        last = at.number + 1 if at.status is WorkflowRunState.IDLE else max(stops, default=-1)
        self.overtaken = tuple(key for key, number in wishes.items() if number < last)
        return tuple(key for key in wishes if key not in self.overtaken)

    def _arrival(self, letter: Letter) -> Arrival | None:
        match letter:
            case AnswerLetter(request_id=id, value=value):
                return Answer(id, content(value, self._codec))
            case InputLetter(value=value):
                return Input(content(value, self._codec))
            case CancelLetter():
                return None
