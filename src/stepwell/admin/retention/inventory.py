"""What must be known of runs before some of them go: where they are, what they were forked from, who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

from stepwell.admin.retention.policy import Known
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CannotUnseal, DurabilityError, StoreUnavailable
from stepwell.model.superstep import RunHeader
from stepwell.storage.archive import parent_of
from stepwell.storage.port import Entry, RunEntry, Store
from stepwell.storage.wire.format import header_of, read_commit

_PAGE = 500
SIDE_BY_SIDE = 64  # a store does in one transaction what it is told at one time

T = TypeVar("T")
Wanted = Callable[[RunEntry], bool]


async def all_known(store: Store, only: Collection[str] | None, wanted: Wanted) -> list[Known]:
    """All runs, as far as must be known of them if those that are `wanted` may go, or `only` these of them. Which
    checkpoints they have is not: those of all runs may be millions."""
    runs = await _listed(store)
    asking = {one.run_id for one in await store.pending()}
    meant = {run.run_id for run in runs if wanted(run) and (only is None or run.run_id in only)}
    return await _known(store, runs, meant, asking)


async def known_for(store: Store, run_ids: Collection[str]) -> list[Known]:
    """All runs, as far as must be known of them if these go."""
    return await _known(store, await _listed(store), run_ids, ())


async def _known(
    store: Store,
    runs: Sequence[RunEntry],
    meant: Collection[str],
    asking: Collection[str],
) -> list[Known]:
    """`meant` may go, and with them those that work for them."""
    mailed: set[str] = set()
    for begin in range(0, len(runs), _PAGE):
        page = [run.run_id for run in runs[begin : begin + _PAGE] if run.run_id in meant]
        mailed |= set(await asyncio.to_thread(store.mailed, page)) if page else set()
    going = set(meant)
    while more := {run.run_id for run in runs if run.about.caller in going} - going:
        going |= more
    workflows = {run.workflow for run in runs if run.run_id in going}  # a fork is of the same workflow

    async def look(run: RunEntry) -> Known:
        asks, mail = run.run_id in asking, run.run_id in mailed
        try:
            header = await _header(store, run) if run.workflow in workflows else None
            parent = None if header is None else await parent_of(store, header)
        except (StoreUnavailable, CannotUnseal):
            raise  # it is not damaged: we cannot know what it was forked from
        except DurabilityError as error:
            return Known(run, (), None, asks, mail, str(error))
        return Known(run, (), parent, asks, mail)

    return await together(look(run) for run in runs)


async def forked_since(store: Store, known: Collection[str]) -> dict[str, str]:
    """The runs that were begun after all these were listed, and are forks: of each parent, one of them."""
    found: dict[str, str] = {}
    past: RunEntry | None = None
    while page := await store.runs(inner=True, past=past, limit=_PAGE):
        for run in page:
            if run.run_id in known:  # the newest come first
                return found
            header = await _header(store, run)
            parent = None if header is None else await parent_of(store, header)
            if parent is not None:
                found[parent[0]] = run.run_id
        past = page[-1]
    return found


async def _listed(store: Store) -> list[RunEntry]:
    found: list[RunEntry] = []
    while page := await store.runs(inner=True, past=found[-1] if found else None, limit=_PAGE):
        found += page
    return found


async def entries_of(store: Store, run_id: str) -> tuple[Entry, ...]:
    """The checkpoints of a run, by number."""
    return tuple(sorted(await store.entries(run_id=run_id), key=lambda one: one.number))


async def _header(store: Store, run: RunEntry) -> RunHeader | None:
    """What a run was forked from, and for whom it works. Any frame of it says so; the first record is the cheapest."""
    first = await store.history(run.run_id, upto=0)
    if not first or not first[0].entry.frame:
        frame = next((entry for entry in await entries_of(store, run.run_id) if entry.frame), None)
        first = [] if frame is None else await store.chain(run.run_id, frame.number)
    return header_of(read_commit(first[0], DEFAULT_CODEC)[1]) if first else None


async def together(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do what can be done side by side, some at a time; what each gave, in order. All are over when it raises."""
    waiting, found = iter(jobs), list[T]()
    while some := list(islice(waiting, SIDE_BY_SIDE)):
        for one in await asyncio.gather(*some, return_exceptions=True):
            if isinstance(one, BaseException):
                for left in waiting:
                    left.close()
                raise one
            found.append(one)
    return found
