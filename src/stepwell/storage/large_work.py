"""Work on large values leaves the event loop: they are encoded, compared and digested in a thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from stepwell.codec.encoded import Encoded
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.model.state_writes import Assigned, Edited
from stepwell.storage.json_text import size_of

# Bytes. So much takes the event loop milliseconds; a change of threads takes a tenth of one.
LARGE_WORK = 1 << 20

T = TypeVar("T")


def is_large_work(commit: Commit, after: Checkpoint, *, snapshot: bool) -> bool:
    """Return whether building the record of a commit is work for a thread."""
    if snapshot:
        return sum(map(size_of, (*after.state.values(), *after.executors.values()))) >= LARGE_WORK
    # Values in chunks are not counted: only the chunks that changed are looked at.
    written = [write.value for write in commit.state.values() if isinstance(write, Assigned)]
    written += [saved for saved in commit.executors.values() if not isinstance(saved, Edited)]
    return sum([len(payload.json) for payload in written if isinstance(payload, Encoded)]) >= LARGE_WORK


async def build_in_thread(build: Callable[[], T], store: Callable[[T], Awaitable[object]]) -> T:
    """Build something large in a thread, store it, and return it.

    A cancellation that arrives meanwhile is raised once it is stored: a commit that has started is
    finished.
    """
    import asyncio  # lazy: a program that only reads a store does not load it

    from stepwell.storage.cancellation_shield import finish  # lazy: it imports asyncio

    async def build_and_store() -> T:
        built = await asyncio.to_thread(build)
        await store(built)
        return built

    return await finish(build_and_store())
