"""Live events on PostgreSQL: notified, written together, and free of charge for runs that nobody watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from psycopg.conninfo import make_conninfo

from stepwell import PostgresCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, WorkflowEvent, executor
from stepwell.engine.events.watchers import WATCHERS
from stepwell.server import live_watch
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.postgres.notifications import channel_of
from stepwell.worker import Worker, live_relay
from tests.support.postgres_server import ask, dsn, fresh_schema, own_server
from tests.worker.samples import all_are, eventually, serving

pytestmark = pytest.mark.process

SPOKEN = 200  # words of a run


def speaking(gate: asyncio.Event) -> Workflow:
    """A run that says many words in a moment, when the gate is open."""

    @executor(id="speaker")
    async def speak(text: str, ctx: WorkflowContext[None, str]) -> None:
        await gate.wait()
        for number in range(SPOKEN):
            await ctx.add_event(WorkflowEvent("word", data=number))
            await asyncio.sleep(0)
        await ctx.yield_output(text)

    return WorkflowBuilder(name="speaking", start_executor=speak).build()


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name


@asynccontextmanager
async def two_programs(where: str, schema: str, gate: asyncio.Event) -> AsyncIterator[tuple[BuiltInStorage, Workflow]]:
    """The storage of a program that only looks, while a worker with a storage of its own drives the workflow."""
    workflow = speaking(gate)
    async with (
        PostgresCheckpointStorage(where, schema=schema) as ours,
        PostgresCheckpointStorage(where, schema=schema) as theirs,
        serving(Worker(theirs, [workflow])),
    ):
        yield ours, workflow


async def read_words(watcher: live_watch.LiveWatcher) -> list[int]:
    words: list[int] = []
    while len(words) < SPOKEN:
        document = msgspec.json.decode(await watcher.next())
        if document["type"] == "word":
            words.append(document["data"])
    return words


async def is_watched() -> bool:
    return bool(WATCHERS)


async def watch_and_read(ours: BuiltInStorage, workflow: Workflow, gate: asyncio.Event) -> list[int]:
    """Return the words of a run, which is watched before it speaks."""
    assert ours._live is not None
    async with asyncio.timeout(20):
        with live_watch.watching(ours._live, "r") as watcher:
            await workflow.submit("hello", run_id="r", checkpoint_storage=ours)
            await eventually(is_watched)
            gate.set()
            return await read_words(watcher)


async def test_live_events_follow_their_notification(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_watch, "LOOK_ANYWAY", 3600.0)
    monkeypatch.setattr(live_relay, "_LOOK_ANYWAY", 3600.0)
    gate = asyncio.Event()
    async with two_programs(dsn(), schema, gate) as (ours, workflow):
        assert await watch_and_read(ours, workflow, gate) == list(range(SPOKEN))
        assert live_watch._READERS == {}  # the last one who left has ended it


@pytest.mark.parametrize("occasion", ["written", "watched"])
async def test_lost_notifications_cost_the_time_until_the_next_look(
    schema: str, monkeypatch: pytest.MonkeyPatch, occasion: str
) -> None:
    for module, name in ((live_watch, "LOOK_ANYWAY"), (live_relay, "_LOOK_ANYWAY")):
        monkeypatch.setattr(module, name, 0.2)
        monkeypatch.setattr(module, "_AGAIN", 3600.0)  # who is cut off stays so
    gate = asyncio.Event()
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = %s"
    listening = f"LISTEN {channel_of(schema)}_{occasion}"

    async def is_cut() -> bool:
        return bool(await asyncio.to_thread(ask, cut, listening))

    async with two_programs(dsn(), schema, gate) as (ours, workflow):
        assert ours._live is not None
        async with asyncio.timeout(20):
            if occasion == "watched":
                await eventually(is_cut)
            with live_watch.watching(ours._live, "r") as watcher:
                if occasion == "written":
                    await eventually(is_cut)
                await workflow.submit("hello", run_id="r", checkpoint_storage=ours)
                await eventually(is_watched)
                gate.set()
                assert await read_words(watcher) == list(range(SPOKEN))
        assert await asyncio.to_thread(ask, "SELECT 1 FROM pg_stat_activity WHERE query = %s", listening) == []


async def test_a_run_that_nobody_watches_costs_no_statement_and_a_watched_one_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_relay, "_LOOK_ANYWAY", 3600.0)
    gate = asyncio.Event()
    gate.set()
    with own_server() as server:
        where = make_conninfo(server.dsn, options="-c log_statement=all", application_name="counted")

        def count(words: str) -> int:
            return sum(words in line for line in server.log().splitlines())

        async with two_programs(where, "stepwell", gate) as (ours, workflow):

            async def listens() -> bool:
                return count("_watched") > 0 and count("to_regclass") > 0

            await eventually(listens)
            await asyncio.sleep(0.1)
            asked_before, committed_before = count("live_"), count(".append(")
            await workflow.submit("hello", run_id="alone", checkpoint_storage=ours)
            await all_are(ours, "completed")
            await asyncio.sleep(1.2)  # a worker that looks from time to time has done so
            assert count(".append(") - committed_before == 2  # its submission and its superstep
            assert count("live_") == asked_before  # nothing else was asked or written
            assert count("_written") == 0

            gate.clear()
            assert await watch_and_read(ours, workflow, gate) == list(range(SPOKEN))
            # Words of a moment share a statement, and with it a notification; no commit is in it.
            assert 1 <= count('INSERT INTO "stepwell".live_events') <= SPOKEN / 10
