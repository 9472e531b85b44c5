"""Collects the facts about runs that a pruning decision needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

from stepwell.admin.lookup import pages_of_runs
from stepwell.admin.retention.policy import RunFacts
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CannotUnseal, DurabilityError, StoreUnavailable
from stepwell.storage.filters import ALL_RUNS, CheckpointFilter
from stepwell.storage.port import Store
from stepwell.storage.signals import find_signalled
from stepwell.storage.store_archive import parent_of
from stepwell.storage.stored_values import Entry, RunEntry
from stepwell.storage.wire.format import header_of, read_commit

_PAGE = 500
BATCH = 64  # jobs at a time: a store may combine concurrent calls into one transaction

T = TypeVar("T")
Wanted = Callable[[RunEntry], bool]


async def load_facts(store: Store, only: Collection[str] | None, wanted: Wanted | None = None) -> list[RunFacts]:
    """Return facts about all runs, for removing those that are `wanted`, or `only` these of them.

    Their checkpoints are left out: those of all runs may be millions. Without `wanted`, which runs
    have open requests does not matter, and is not read.
    """
    runs = [run async for page in pages_of_runs(store, ALL_RUNS, _PAGE) for run in page]
    with_requests = {request.run_id for request in await store.requests()} if wanted else ()
    candidates = {
        run.run_id for run in runs if (wanted is None or wanted(run)) and (only is None or run.run_id in only)
    }
    signalled: set[str] = set()
    for begin in range(0, len(runs), _PAGE):
        page = [run.run_id for run in runs[begin : begin + _PAGE] if run.run_id in candidates]
        signalled |= await find_signalled(store, page)
    going = set(candidates)
    while more := {run.run_id for run in runs if run.metadata.caller in going} - going:
        going |= more
    # A fork has the workflow of its parent, so only runs of these workflows can be forks of a
    # candidate. That spares reading a record of every other run.
    workflows = {run.workflow for run in runs if run.run_id in going}

    async def load(run: RunEntry) -> RunFacts:
        has_requests, has_signals = run.run_id in with_requests, run.run_id in signalled
        try:
            parent = await _find_parent(store, run) if run.workflow in workflows else None
        except (StoreUnavailable, CannotUnseal):
            # Not damage: the parent of the run exists and is merely unknown to us, so nothing may
            # be deleted.
            raise
        except DurabilityError as error:
            return RunFacts(run, (), None, has_requests, has_signals, str(error))
        return RunFacts(run, (), parent, has_requests, has_signals)

    return await gather_in_batches(load(run) for run in runs)


async def find_new_forks(store: Store, known_ids: Collection[str]) -> dict[str, str]:
    """Return the forks created since the known runs were listed: one for each parent."""
    forks: dict[str, str] = {}
    async for page in pages_of_runs(store, ALL_RUNS, _PAGE):
        for run in page:
            # Runs are listed newest first, so everything from here on is known.
            if run.run_id in known_ids:
                return forks
            if (parent := await _find_parent(store, run)) is not None:
                forks[parent[0]] = run.run_id
    return forks


async def entries_of(store: Store, run_id: str) -> tuple[Entry, ...]:
    """Return the checkpoints of a run, ordered by number."""
    return tuple(await store.checkpoints(CheckpointFilter(run_id=run_id)))


async def _find_parent(store: Store, run: RunEntry) -> tuple[str, int] | None:
    """Return the run and the number a run was forked from; None if neither is known."""
    # Every snapshot holds the header; record 0 is one, costs a single read, and may have been
    # pruned.
    records = await store.history(run.run_id, upto=0)
    if not records or not records[0].entry.is_snapshot:
        snapshot = next((entry for entry in await entries_of(store, run.run_id) if entry.is_snapshot), None)
        records = [] if snapshot is None else await store.read(run.run_id, snapshot.number)
    return await parent_of(store, header_of(read_commit(records[0], DEFAULT_CODEC)[1])) if records else None


async def gather_in_batches(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run jobs concurrently, a batch at a time, and return their results in order.

    If one raises, its batch finishes first and no further batch starts.
    """
    waiting, results = iter(jobs), list[T]()
    while batch := list(islice(waiting, BATCH)):
        # return_exceptions: nothing may still be writing when the caller sees the error.
        for result in await asyncio.gather(*batch, return_exceptions=True):
            if isinstance(result, BaseException):
                # Closed, so that Python does not warn of coroutines that were never awaited.
                for job in waiting:
                    job.close()
                raise result
            results.append(result)
    return results
