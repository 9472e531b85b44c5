"""What a person types to name a run or a checkpoint, and which one that is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointMissing, StepwellError
from stepwell.model.event import CheckpointInfo
from stepwell.model.superstep import is_text
from stepwell.storage.archive import StoreArchive, is_head, not_kept
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.port import Entry, RunEntry, Sieve, Store
from stepwell.storage.run_list import RunInfo, run_info

SHORTEST = 4  # characters of a shortened id
_SHOWN = 5
_ENOUGH = _SHOWN + 1  # to know that there are more than are shown
T = TypeVar("T")
_PLACE = re.compile(r"(.+)@(-?\d{1,18})", re.DOTALL)  # no store counts further than that


class NotFound(CheckpointMissing):
    """Nothing stored is called so. `candidates` are up to five that are there."""

    def __init__(self, message: str, candidates: Sequence[str] = ()) -> None:
        self.candidates = tuple(candidates)
        super().__init__(message)


class Ambiguous(StepwellError):
    """A shortened id fits several. `candidates` are up to five of them."""

    def __init__(self, message: str, candidates: Sequence[str]) -> None:
        self.candidates = tuple(candidates)
        super().__init__(message)


async def find_run(storage: BuiltInStorage, text: str) -> RunInfo:
    """The run of that id, or the only one whose id begins so, if `text` has at least 4 characters.

    An id that is there as it is given goes before those that only begin with it. Runs of sub-workflows are found,
    too. Raises NotFound or Ambiguous.

    No payload is read, and the list of runs is not walked through: it costs a look or two, however many there are.
    """
    return run_info(await _run(storage.store, text))


async def find_checkpoint(storage: BuiltInStorage, text: str) -> CheckpointInfo:
    """The checkpoint that is meant. The first of these that there is:

    - the checkpoint of that id;
    - the newest checkpoint of the run of that id;
    - `RUN@5`: the checkpoint with number 5 of a run. The input is number 0, and each commit since is one more, as
      `WorkflowCheckpoint.number` says; numbers do not move if checkpoints go. `RUN@-1` is the last that is stored,
      `RUN@-2` the one stored before it. RUN may be shortened as in `find_run`;
    - the newest checkpoint of the only run whose id begins so;
    - the only checkpoint whose id begins so.

    Shortened ids have at least 4 characters. Raises NotFound or Ambiguous; CheckpointMissing for a checkpoint that went
    because its run keeps only the latest.

    Ids cost a look each, whole or shortened, `RUN@5` one record, `RUN@-2` a list of that run's checkpoints, however
    many runs and checkpoints there are. No state is read for that.
    """
    store = storage.store
    if not is_text(text):
        raise await _nothing(store, "checkpoint or run", text)
    if (entry := await store.locate(text)) is not None:
        return _info(await _for_readers(store, entry))
    if (head := await store.head(text)) is not None:
        return _info(head.entry)
    if placed := _PLACE.fullmatch(text):
        run = await _run(store, placed[1])
        return await _at_place(store, run.run_id, int(placed[2]))
    if begun := await _begun_so(store, text):
        run = _only(text, begun, [one.run_id for one in begun])
        return CheckpointInfo(run.run_id, run.checkpoint_id, run.number)
    entries = await store.checkpoints(text, limit=_ENOUGH) if _long(text) else []
    if not entries:
        raise await _nothing(store, "checkpoint or run", text)
    return _info(await _for_readers(store, _only(text, entries, [_words(one) for one in entries])))


async def entry_of(store: Store, at: CheckpointInfo) -> Entry:
    """The entry of a checkpoint that was found. Raises NotFound if it has gone since."""
    entry = await store.locate(at.checkpoint_id)
    if entry is None:
        raise NotFound(f"checkpoint {at.checkpoint_id!r} of run {at.run_id!r} has gone meanwhile")
    return entry


async def _run(store: Store, text: str) -> RunEntry:
    if is_text(text) and (whole := await store.run(text)) is not None:
        return whole
    if not (begun := await _begun_so(store, text)):
        raise await _nothing(store, "run", text)
    return _only(text, begun, [one.run_id for one in begun])


async def _begun_so(store: Store, text: str) -> list[RunEntry]:
    if not (is_text(text) and _long(text)):
        return []
    return await store.runs(inner=True, sieve=Sieve(prefix=text), limit=_ENOUGH)


async def _at_place(store: Store, run_id: str, number: int) -> CheckpointInfo:
    if number >= 0:
        there = await store.history(run_id, after=number - 1, upto=number)
        if there:
            return _info(await _for_readers(store, there[0].entry))
        head = await store.newest(run_id=run_id)
        if head is not None and head.fleeting and number < head.number:
            raise CheckpointMissing(
                f"checkpoint {number} of run {run_id!r} is gone: the run keeps only its latest, and has moved on to "
                f"{run_id}@{head.number}"
            )
    stored = await StoreArchive(store, DEFAULT_CODEC).checkpoints(run_id)
    if -len(stored) <= number < 0:
        return stored[number]
    raise NotFound(
        f"run {run_id!r} has no checkpoint {number}: {len(stored)} are stored, from {run_id}@{stored[0].number} "
        f"to {run_id}@{stored[-1].number}; the input is number 0, and -1 is the last",
        [f"{run_id}@{one.number}" for one in stored[-_SHOWN:]],
    )


async def _for_readers(store: Store, entry: Entry) -> Entry:
    if entry.fleeting and not await is_head(store, entry):
        raise not_kept(entry)
    return entry


def _info(entry: Entry) -> CheckpointInfo:
    return CheckpointInfo(entry.run_id, entry.checkpoint_id, entry.number)


def _words(entry: Entry) -> str:
    return f"{entry.checkpoint_id} ({entry.run_id}@{entry.number})"


def _long(text: str) -> bool:
    return len(text) >= SHORTEST


def _only(text: str, found: Sequence[T], names: Sequence[str]) -> T:
    if len(found) == 1:
        return found[0]
    shown = list(names[:_SHOWN])
    more = "" if len(names) <= _SHOWN else ", or others"
    raise Ambiguous(f"{text!r} may be {', '.join(shown)}{more}: give more of the id", shown)


async def _nothing(store: Store, what: str, text: str) -> NotFound:
    newest = [run.run_id for run in await store.runs(limit=_SHOWN)]
    there = f"the newest runs are {', '.join(newest)}" if newest else "no run is stored here"
    short = "" if _long(text) else f" (a shortened id has at least {SHORTEST} characters)"
    return NotFound(f"no {what} {text!r} is stored here{short}; {there}", newest)
