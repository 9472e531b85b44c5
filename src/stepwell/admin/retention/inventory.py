"""What must be known of runs before some of them go: where they are, what they were forked from, who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

from stepwell.admin.retention.policy import RunFacts
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


async def load_all_facts(store: Store, only: Collection[str] | None, wanted: Wanted) -> list[RunFacts]:
    """All runs, as far as must be known of them if those that are `wanted` may go, or `only` these of them. Which
    checkpoints they have is not: those of all runs may be millions."""
    runs = await _list_runs(store)
    asking = {request.run_id for request in await store.pending()}
    meant = {run.run_id for run in runs if wanted(run) and (only is None or run.run_id in only)}
    return await _load_facts(store, runs, meant, asking)


async def load_facts_for(store: Store, run_ids: Collection[str]) -> list[RunFacts]:
    """All runs, as far as must be known of them if these go."""
    return await _load_facts(store, await _list_runs(store), run_ids, ())


async def _load_facts(
    store: Store,
    runs: Sequence[RunEntry],
    meant: Collection[str],
    asking: Collection[str],
) -> list[RunFacts]:
    """`meant` may go, and with them those that work for them."""
    signalled: set[str] = set()
    for begin in range(0, len(runs), _PAGE):
        page = [run.run_id for run in runs[begin : begin + _PAGE] if run.run_id in meant]
        signalled |= set(await asyncio.to_thread(store.runs_with_signals, page)) if page else set()
    going = set(meant)
    while more := {run.run_id for run in runs if run.metadata.caller in going} - going:
        going |= more
    workflows = {run.workflow for run in runs if run.run_id in going}  # a fork is of the same workflow

    async def load(run: RunEntry) -> RunFacts:
        has_requests, has_signals = run.run_id in asking, run.run_id in signalled
        try:
            header = await _load_header(store, run) if run.workflow in workflows else None
            parent = None if header is None else await parent_of(store, header)
        except (StoreUnavailable, CannotUnseal):
            raise  # it is not damaged: we cannot know what it was forked from
        except DurabilityError as error:
            return RunFacts(run, (), None, has_requests, has_signals, str(error))
        return RunFacts(run, (), parent, has_requests, has_signals)

    return await gather_in_batches(load(run) for run in runs)


async def find_new_forks(store: Store, known_ids: Collection[str]) -> dict[str, str]:
    """The runs that were begun after all these were listed, and are forks: of each parent, one of them."""
    forks: dict[str, str] = {}
    past: RunEntry | None = None
    while page := await store.runs(inner=True, past=past, limit=_PAGE):
        for run in page:
            if run.run_id in known_ids:  # the newest come first
                return forks
            header = await _load_header(store, run)
            parent = None if header is None else await parent_of(store, header)
            if parent is not None:
                forks[parent[0]] = run.run_id
        past = page[-1]
    return forks


async def _list_runs(store: Store) -> list[RunEntry]:
    runs: list[RunEntry] = []
    while page := await store.runs(inner=True, past=runs[-1] if runs else None, limit=_PAGE):
        runs += page
    return runs


async def entries_of(store: Store, run_id: str) -> tuple[Entry, ...]:
    """The checkpoints of a run, by number."""
    return tuple(sorted(await store.entries(run_id=run_id), key=lambda entry: entry.number))


async def _load_header(store: Store, run: RunEntry) -> RunHeader | None:
    """What a run was forked from, and for whom it works. Any frame of it says so; the first record is the cheapest."""
    records = await store.history(run.run_id, upto=0)
    if not records or not records[0].entry.is_snapshot:
        snapshot = next((entry for entry in await entries_of(store, run.run_id) if entry.is_snapshot), None)
        records = [] if snapshot is None else await store.chain(run.run_id, snapshot.number)
    return header_of(read_commit(records[0], DEFAULT_CODEC)[1]) if records else None


async def gather_in_batches(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do what can be done side by side, some at a time; what each gave, in order. All are over when it raises."""
    waiting, results = iter(jobs), list[T]()
    while batch := list(islice(waiting, SIDE_BY_SIDE)):
        for result in await asyncio.gather(*batch, return_exceptions=True):
            if isinstance(result, BaseException):
                for job in waiting:
                    job.close()
                raise result
            results.append(result)
    return results
