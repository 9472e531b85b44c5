"""A stream that is read for a long time holds no more at its end than at its beginning."""

import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stepwell import (
    CheckpointStorage,
    SQLiteCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    executor,
)

FIRST, LAST = 100, 600
ALLOWED = 100  # bytes for each superstep: caches that fill up and the like; an event alone takes 160


@executor(id="count")
async def count(left: int, ctx: WorkflowContext[int, int]) -> None:
    if left:
        await ctx.send_message(left - 1)
    else:
        await ctx.yield_output(0)


def counting(storage: CheckpointStorage | None) -> Workflow:
    builder = WorkflowBuilder(2 * LAST, start_executor=count, checkpoint_storage=storage)
    return builder.add_edge(count, count).build()


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.fixture(params=["nowhere", "sqlite"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CheckpointStorage | None]:
    if request.param == "nowhere":
        yield None
        return
    async with SQLiteCheckpointStorage(tmp_path / "runs.db") as made:
        yield made


def held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def grown(events: AsyncIterator[WorkflowEvent]) -> float:
    """Bytes that are held more for each superstep."""
    seen: dict[int, int] = {}
    async for event in events:
        if event.type == "superstep_started" and event.iteration in (FIRST, LAST):
            seen[event.iteration] = held()
    return (seen[LAST] - seen[FIRST]) / (LAST - FIRST)


@pytest.mark.long
@pytest.mark.usefixtures("traced")
async def test_what_a_stream_has_told_is_not_held(storage: CheckpointStorage | None) -> None:
    assert await grown(aiter(counting(storage).run(LAST, stream=True))) < ALLOWED


async def test_a_stream_that_is_held_still_has_its_whole_result() -> None:
    stream = counting(None).run(5, stream=True)
    told = [event async for event in stream]
    result = await stream
    assert result.get_outputs() == [0]
    assert [event.type for event in told if event.type not in ("started", "status")] == [event.type for event in result]
