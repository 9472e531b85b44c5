"""Follows a run: its history, then what any process commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import NamedTuple

from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.errors import CheckpointMissing
from stepwell.kernel.commit import events
from stepwell.model.commit import Commit
from stepwell.model.event import WorkflowEvent
from stepwell.storage.append_news import expect_appends
from stepwell.storage.filters import RunFilter, check_after
from stepwell.storage.port import Store
from stepwell.storage.run_list import run_info
from stepwell.storage.stored_values import RunEntry
from stepwell.storage.wire.format import read_commit

_PAGE = 100  # commits in memory at a time
# Seconds between two looks at a run in which nothing happens: the first one, doubled each time up
# to the last one.
_FIRST_LOOK, _LAST_LOOK = 0.05, 1.0

STOPPED = frozenset(("completed", "failed", "cancelled"))
AT_REST = STOPPED | {"waiting"}


async def follow_run(store: Store, run_id: str, after: int, *, until_rest: bool) -> AsyncGenerator[WorkflowEvent, None]:
    """Yield the durable events of a run past a commit, and new ones as they are committed: see `follow`."""
    last = check_after(after)
    async with aclosing(follow_commits(store, run_id, last, ends=AT_REST if until_rest else STOPPED)) as commits:
        async for commit in commits:
            for event in events(run_id, commit, stored=True, replayed=True):
                yield event


async def follow_commits(
    store: Store, run_id: str, after: int, *, ends: frozenset[str] = STOPPED
) -> AsyncGenerator[Commit, None]:
    """Yield the commits of a run past `after`, and new ones as they are made, until the run stands as `ends` says."""
    last, wait = after, _FIRST_LOOK
    appended = asyncio.Event()
    notify = partial(asyncio.get_running_loop().call_soon_threadsafe, appended.set)
    with expect_appends(store, run_id, notify):
        while True:
            appended.clear()  # before the look: what is appended during it is seen, or wakes us
            entry = await _look_at(store, run_id)
            if entry is None:
                raise CheckpointMissing(f"there is no run {run_id!r} in this storage")
            while last < entry.number:
                upto = min(last + _PAGE, entry.number)
                for record in await store.history(run_id, after=last, upto=upto):
                    yield read_commit(record, DEFAULT_CODEC)[0]
                last, wait = upto, _FIRST_LOOK
            # Judged by the entry that was read before its commits: none of them can be missing.
            if run_info(entry).standing in ends:
                return
            with suppress(TimeoutError):
                # At whole multiples of the wait, so that those who wait alike look together.
                async with asyncio.timeout_at((asyncio.get_running_loop().time() // wait + 1) * wait):
                    await appended.wait()
            wait = min(2 * wait, _LAST_LOOK)


class _Look(NamedTuple):
    """A look at several runs of a store, in one query."""

    run_ids: set[str]
    task: asyncio.Task[dict[str, RunEntry]]


_NEXT_LOOKS: dict[tuple[int, asyncio.AbstractEventLoop], _Look] = {}  # by store; those that have not begun


async def _look_at(store: Store, run_id: str) -> RunEntry | None:
    """Return how a run stands now; None if it is not stored. All who ask at the same moment share one query."""
    key = id(store), asyncio.get_running_loop()
    look = _NEXT_LOOKS.get(key)
    if look is None:
        look = _NEXT_LOOKS[key] = _Look(set(), asyncio.create_task(_look(store, key)))
        look.task.add_done_callback(lambda task: task.cancelled() or task.exception())  # all may have left
    look.run_ids.add(run_id)
    # A follower that leaves must not end the look of the others.
    return (await asyncio.shield(look.task)).get(run_id)


async def _look(store: Store, key: tuple[int, asyncio.AbstractEventLoop]) -> dict[str, RunEntry]:
    run_ids = tuple(_NEXT_LOOKS.pop(key).run_ids)
    if len(run_ids) > 1:
        return {entry.run_id: entry for entry in await store.runs(RunFilter(ids=run_ids, children=True))}
    entry = await store.run(run_ids[0])
    return {} if entry is None else {entry.run_id: entry}
