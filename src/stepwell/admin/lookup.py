"""Finds the run or checkpoint a person means: by id, by the start of an id, or as `RUN@5`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointMissing, StepwellError
from stepwell.model.checkpoint import Checkpoint, RunHeader
from stepwell.model.commit import Commit
from stepwell.model.event import CheckpointInfo
from stepwell.model.valid_text import is_text
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import CheckpointFilter, RunFilter
from stepwell.storage.port import Store
from stepwell.storage.run_list import RunInfo, run_info
from stepwell.storage.store_archive import StoreArchive, is_head, superseded_error
from stepwell.storage.stored_values import Entry, RunEntry
from stepwell.storage.wire.format import header_of, read_shape

SHORTEST = 4  # characters of a shortened id
_MOST_CANDIDATES = 5
_ENOUGH = _MOST_CANDIDATES + 1  # one more than is shown, to know that there are more
T = TypeVar("T")
# 18 digits: a longer number does not fit the integers of a store.
_NUMBERED = re.compile(r"(.+)@(-?\d{1,18})", re.DOTALL)


class NotFound(CheckpointMissing):
    """Nothing stored has this id. `candidates` are up to five ids that exist."""

    def __init__(self, message: str, candidates: Sequence[str] = ()) -> None:
        self.candidates = tuple(candidates)
        super().__init__(message)


class Ambiguous(StepwellError):
    """A shortened id matches several. `candidates` are up to five of them."""

    def __init__(self, message: str, candidates: Sequence[str]) -> None:
        self.candidates = tuple(candidates)
        super().__init__(message)


def has_prefix(id: str, prefix: str) -> bool:
    """Return whether a shortened id may mean this one."""
    # Shorter prefixes match by accident, and a response, for example, cannot be taken back.
    return len(prefix) >= SHORTEST and id.startswith(prefix)


async def find_run(storage: BuiltInStorage, text: str) -> RunInfo:
    """Return the run with this id, or the only run whose id starts with these 4 or more characters.

    An exact match wins over ids that only start with `text`. Runs of sub-workflows are found, too.
    Raises NotFound or Ambiguous.

    Costs one or two indexed queries, however many runs there are. No payload is read.
    """
    return run_info(await _load_run(storage._store, text))


async def complete_run_id(storage: BuiltInStorage, text: str) -> str:
    """Return the id of the run that `text` means, or `text` if there is none: forks may outlive their parent.

    Raises Ambiguous if several runs start with it.
    """
    try:
        return (await find_run(storage, text)).run_id
    except NotFound:
        return text


async def find_checkpoint(storage: BuiltInStorage, text: str) -> CheckpointInfo:
    """Return the checkpoint that `text` means. The first of these that exists:

    - the checkpoint with this id;
    - the newest checkpoint of the run with this id;
    - `RUN@5`: checkpoint number 5 of a run. The input is number 0, and each commit adds one, as in
      `WorkflowCheckpoint.number`; numbers do not change when checkpoints are deleted. `RUN@-1` is
      the last one stored, `RUN@-2` the one before it. RUN may be shortened as in `find_run`;
    - the newest checkpoint of the only run whose id starts with `text`;
    - the only checkpoint whose id starts with `text`.

    Shortened ids have at least 4 characters. Raises NotFound or Ambiguous; CheckpointMissing for a
    checkpoint that was dropped because its run keeps only the latest.

    An id, complete or shortened, costs one indexed query, `RUN@5` reads one record, `RUN@-2` the
    list of that run's checkpoints. No state is read.
    """
    store = storage._store
    # Half a surrogate pair cannot be sent to a database, and no id has one.
    if not is_text(text):
        raise await _no_match(store, "checkpoint or run", text)
    if (entry := await store.locate(text)) is not None:
        return _info(await _check_readable(store, entry))
    if (exact := await store.run(text)) is not None:
        return CheckpointInfo(exact.run_id, exact.checkpoint_id, exact.number)
    # After the exact ids: an id chosen by a user may itself end in @5.
    if match := _NUMBERED.fullmatch(text):
        run = await _load_run(store, match[1])
        return await _find_by_number(store, run.run_id, int(match[2]))
    if runs := await _find_by_prefix(store, text):
        run = _require_unique(text, runs, [entry.run_id for entry in runs])
        return CheckpointInfo(run.run_id, run.checkpoint_id, run.number)
    if len(text) < SHORTEST or not (entries := await store.checkpoints(CheckpointFilter(prefix=text), limit=_ENOUGH)):
        raise await _no_match(store, "checkpoint or run", text)
    names = [f"{entry.checkpoint_id} ({entry.run_id}@{entry.number})" for entry in entries]
    return _info(await _check_readable(store, _require_unique(text, entries, names)))


async def load_checkpoint(store: Store, at: CheckpointInfo) -> tuple[Checkpoint, Commit]:
    """Return a checkpoint found before, and its commit. Raises NotFound if it was deleted since.

    Payloads stay in their stored form until somebody opens them: no class of the program is needed.
    """
    entry = await store.locate(at.checkpoint_id)
    if entry is None:
        raise NotFound(f"checkpoint {at.checkpoint_id!r} of run {at.run_id!r} was deleted meanwhile")
    return await StoreArchive(store, DEFAULT_CODEC).at(entry)


async def load_header(store: Store, run_id: str) -> RunHeader:
    """Return the header of a run, as it was when the run started. Raises NotFound if the run was deleted."""
    # The first record stands alone, so nothing has to be folded. It is missing if the run keeps only its latest.
    if records := await store.history(run_id, upto=0):
        return header_of(read_shape(records[0]))
    return require_head(await StoreArchive(store, DEFAULT_CODEC).head(run_id), run_id).header


def require_head(head: Checkpoint | None, run_id: str) -> Checkpoint:
    """Return the head of a run found before. Raises NotFound if the run was deleted since."""
    if head is None:
        raise NotFound(f"run {run_id!r} was deleted meanwhile")
    return head


async def pages_of_runs(store: Store, wanted: RunFilter, size: int) -> AsyncIterator[list[RunEntry]]:
    """Yield the runs a filter selects, newest first, a page at a time."""
    past: RunEntry | None = None
    while page := await store.runs(wanted, past=past, limit=size):
        yield page
        past = page[-1]


async def _load_run(store: Store, text: str) -> RunEntry:
    if is_text(text) and (exact := await store.run(text)) is not None:
        return exact
    if not (runs := await _find_by_prefix(store, text)):
        raise await _no_match(store, "run", text)
    return _require_unique(text, runs, [run.run_id for run in runs])


async def _find_by_prefix(store: Store, text: str) -> list[RunEntry]:
    if not is_text(text) or len(text) < SHORTEST:
        return []
    return await store.runs(RunFilter(prefix=text, children=True), limit=_ENOUGH)


async def _find_by_number(store: Store, run_id: str, number: int) -> CheckpointInfo:
    if number >= 0:
        records = await store.history(run_id, after=number - 1, upto=number)
        if records:
            return _info(await _check_readable(store, records[0].entry))
        newest = await store.checkpoints(CheckpointFilter(run_id=run_id), limit=1)
        # Not NotFound: the number is right, and no other number than the head's can be read.
        if newest and (head := newest[0]).latest_only and number < head.number:
            raise CheckpointMissing(
                f"checkpoint {number} of run {run_id!r} is not stored any more: the run keeps only its latest "
                f"checkpoint, which is {run_id}@{head.number}"
            )
    checkpoints = await StoreArchive(store, DEFAULT_CODEC).checkpoints(run_id)
    if -len(checkpoints) <= number < 0:
        return checkpoints[number]
    raise NotFound(
        f"run {run_id!r} has no checkpoint {number}: {len(checkpoints)} are stored, "
        f"from {run_id}@{checkpoints[0].number} to {run_id}@{checkpoints[-1].number}; "
        f"the input is number 0, and -1 is the last",
        [f"{run_id}@{checkpoint.number}" for checkpoint in checkpoints[-_MOST_CANDIDATES:]],
    )


async def _check_readable(store: Store, entry: Entry) -> Entry:
    # With LatestOnly, a superseded record may still be stored for a while; readers must not depend
    # on that.
    if entry.latest_only and not await is_head(store, entry):
        raise superseded_error(entry)
    return entry


def _info(entry: Entry) -> CheckpointInfo:
    return CheckpointInfo(entry.run_id, entry.checkpoint_id, entry.number)


def _require_unique(text: str, matches: Sequence[T], names: Sequence[str]) -> T:
    if len(matches) == 1:
        return matches[0]
    candidates = list(names[:_MOST_CANDIDATES])
    more = "" if len(names) <= _MOST_CANDIDATES else " and others"
    raise Ambiguous(f"{text!r} matches {', '.join(candidates)}{more}; use more characters of the id", candidates)


async def _no_match(store: Store, what: str, text: str) -> NotFound:
    newest = [run.run_id for run in await store.runs(limit=_MOST_CANDIDATES)]
    hint = f"the newest runs are {', '.join(newest)}" if newest else "it holds no runs"
    short = "" if len(text) >= SHORTEST else f" (a shortened id has at least {SHORTEST} characters)"
    return NotFound(f"no {what} {text!r} in this store{short}; {hint}", newest)


async def find_inside(storage: BuiltInStorage, run: str, checkpoint: str) -> str:
    """Return the name of a checkpoint of this run. Raises NotFound if it belongs to another run."""
    run_id = (await find_run(storage, run)).run_id
    # A number counts from the start of the run, or from its end if it is negative.
    if checkpoint.lstrip("-").isdigit():
        return f"{run_id}@{checkpoint}"
    info = await find_checkpoint(storage, checkpoint)
    if info.run_id != run_id:
        raise NotFound(f"checkpoint {info.checkpoint_id!r} belongs to run {info.run_id!r}, not to run {run_id!r}")
    return info.checkpoint_id
