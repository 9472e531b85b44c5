"""Event streams: history from a cursor, then live, without gap and without repeat."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepwell import InMemoryCheckpointStorage, SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext, executor
from stepwell.server import app
from stepwell.server.api.runs import RunListQuery, read_page
from stepwell.server.damaged_entries import KeptSurvey
from stepwell.server.event_stream import EventStream, StreamItem
from stepwell.server.open_streams import OpenStreams
from stepwell.server.page_looks import PageLooks
from stepwell.server.process import bind, serve
from stepwell.server.run_feed import EventCursor, follow_events, follow_page, follow_several, read_cursors
from stepwell.server.run_items import RunPage
from stepwell.server.services import ServerLimits
from tests.server.clients import ADA, serving
from tests.support.operating_runs import Order, asking, counting


def read_stream(text: str) -> list[dict[str, Any]]:
    """Return the events in a stream, each with its id, its type and its data."""
    parts = [part.splitlines() for part in text.split("\n\n") if part and not part.startswith(":")]
    return [dict(line.split(": ", 1) for line in part) for part in parts]


async def test_a_client_that_comes_back_after_any_event_gets_those_that_follow(storage: Any) -> None:
    await counting(storage).run(1, run_id="numbers")
    async with serving(storage) as client:
        path = "/api/v1/runs/numbers/events/stream"
        events = read_stream((await client.get(path)).text)
        listed = (await client.get("/api/v1/runs/numbers/events")).json()["events"]
        assert [msgspec.json.decode(event["data"]) for event in events[:-1]] == listed
        assert events[-1]["event"] == "end"
        for position, event in enumerate(events):
            again = await client.get(path, headers={"last-event-id": event["id"]})
            assert read_stream(again.text)[:-1] == events[position + 1 : -1]
        assert read_stream((await client.get(path, params={"after": "1"})).text) == [
            event for event in events if int(event["id"].partition(".")[0]) > 1 or event["event"] == "end"
        ]
        for wrong in ("x", "1.x", "-", "9" * 40):
            assert (await client.get(path, params={"after": wrong})).status_code == 422
        assert (await client.get("/api/v1/runs/missing/events/stream")).status_code == 404


async def test_what_another_program_commits_is_sent_at_once(tmp_path: Path) -> None:
    here, there = (SQLiteCheckpointStorage(tmp_path / "runs.db") for _ in range(2))
    await asking(there).submit(Order(1, []), run_id="order")
    types: list[str] = []
    async with asyncio.timeout(20), aclosing(follow_events(here, "order", EventCursor())) as events:
        driving = asyncio.create_task(asking(there).run(run_id="order"))
        async for event in events:
            types.append(event.name)
            if event.name == "request_info":
                await driving
                await asking(there).run(run_id="order", responses={"refund-1": True})
    assert types[-1] == "end"
    assert types.count("output") == types.count("request_info") == types.count("request_answered") == 1
    await here.close()
    await there.close()


async def test_one_stream_follows_several_runs_and_a_page(storage: Any) -> None:
    for name in ("one", "two"):
        await counting(storage).run(1, run_id=name)
    followed = {"one": EventCursor(), "two": EventCursor()}

    async def collect(cursors: dict[str, EventCursor], count: int) -> list[StreamItem]:
        async with asyncio.timeout(20), aclosing(follow_several(storage, cursors, None)) as items:
            return [await anext(items) for _ in range(count)]

    total = sum([len(await storage.event_history(name)) for name in followed])
    everything = await collect(followed, total)
    assert {item.data["run_id"] for item in everything} == {"one", "two"}
    middle = everything[total // 2].id
    assert middle is not None
    rest = await collect(read_cursors(middle), total - total // 2 - 1)
    seen = everything[: total // 2 + 1] + rest
    assert sorted(str(item.data) for item in seen) == sorted(str(item.data) for item in everything)


async def test_a_page_is_sent_and_then_what_changes_on_it(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    await counting(storage).submit(1, run_id="first")
    async with asyncio.timeout(20), aclosing(follow_page(looks_at(storage).follow(RunListQuery()))) as items:
        assert (await anext(items)).data["status"] == "queued"
        await counting(storage).submit(1, run_id="second")
        assert (await anext(items)).data["run_id"] == "second"
        await counting(storage).run(run_id="first")
        changed = await anext(items)
        assert (changed.data["run_id"], changed.data["status"]) == ("first", "completed")
    await storage.close()


def looks_at(storage: Any, read: list[float] | None = None) -> PageLooks[RunListQuery]:
    async def look(query: RunListQuery) -> RunPage:
        if read is not None:
            read.append(asyncio.get_running_loop().time())
        return await read_page(storage, KeptSurvey(storage), query)

    return PageLooks(look)


async def test_streams_of_the_same_page_share_one_look_each_second_and_the_last_to_leave_ends_it(
    tmp_path: Path,
) -> None:
    storage, read = SQLiteCheckpointStorage(tmp_path / "runs.db"), list[float]()
    looks = looks_at(storage, read)
    await counting(storage).submit(1, run_id="first")

    async def follow(query: RunListQuery, count: int) -> list[RunPage]:
        async with aclosing(looks.follow(query)) as pages:
            return [await anext(pages) for _ in range(count)]

    async with asyncio.timeout(30):
        followed = await asyncio.gather(
            *(follow(RunListQuery(limit=9), 3) for _ in range(10)), follow(RunListQuery(), 1)
        )
    assert all([run.run_id for run in page.runs] == ["first"] for pages in followed for page in pages)
    # Each reads the page when it comes, and then all together. A stream that comes late makes a look of its own.
    assert 11 + 2 <= len(read) < 11 + 2 * 10
    await storage.close()
    await asyncio.sleep(1.2)  # nobody follows: a look would open the store again
    assert max(read) < asyncio.get_running_loop().time() - 1.2


async def test_a_silent_stream_shows_that_it_is_alive_and_a_slow_client_is_cut_off() -> None:
    sent, alive = list[bytes](), asyncio.Event()
    limits = ServerLimits(heartbeat=0.02, patience=0.1)
    streams = OpenStreams(1, 1)

    async def silence() -> AsyncGenerator[StreamItem, None]:
        yield StreamItem("output", {"run_id": "r"}, "0.0")
        await asyncio.Event().wait()

    async def endless() -> AsyncGenerator[StreamItem, None]:
        for number in range(1_000_000):
            yield StreamItem("output", {"number": number}, f"{number}.0")

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if sent.count(b": still here\n\n") == 2:
            alive.set()

    async def send_slowly(message: Any) -> None:
        sent.append(message.get("body", b""))
        if len(sent) > 5:
            await asyncio.Event().wait()

    stream = asyncio.create_task(EventStream(silence(), "ada", streams, limits)({}, receive, send))
    await asyncio.wait_for(alive.wait(), 5)
    with pytest.raises(Exception, match="at most 1"):
        streams.check("ada")
    streams.end_all()
    await asyncio.wait_for(stream, 5)
    streams.check("ada")

    sent.clear()
    await asyncio.wait_for(EventStream(endless(), "ada", streams, limits)({}, receive, send_slowly), 5)
    assert len(sent) == 6  # what was not read is not even encoded


async def test_a_client_that_leaves_ends_its_stream() -> None:
    closed = asyncio.Event()

    async def silence() -> AsyncGenerator[StreamItem, None]:
        try:
            await asyncio.Event().wait()
            yield StreamItem("never", {}, None)
        finally:
            closed.set()

    async def receive() -> Any:
        await asyncio.sleep(0.02)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    streams = OpenStreams(1, 1)
    await asyncio.wait_for(EventStream(silence(), "ada", streams, ServerLimits())({}, receive, send), 5)
    assert closed.is_set()


@pytest.mark.process  # it listens at a port
async def test_a_client_that_reads_nothing_is_cut_off_and_comes_back_with_its_cursor(tmp_path: Path) -> None:
    @executor(id="talk")
    async def talk(number: int, ctx: WorkflowContext[int, str]) -> None:
        await ctx.yield_output("x" * 200_000)
        if number > 1:
            await ctx.send_message(number - 1)

    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    await (
        WorkflowBuilder(start_executor=talk)
        .add_edge(talk, talk)
        .build()
        .run(90, run_id="loud", checkpoint_storage=storage)
    )
    application = app(storage, auth=ADA, limits=ServerLimits(patience=0.5))
    services, started = application.state.services, asyncio.Event()
    listener = bind("127.0.0.1", 0, services)
    port = listener.getsockname()[1]
    running = asyncio.create_task(serve(application, listener, started.set))
    async with asyncio.timeout(30):
        await started.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        lines = (
            "GET /api/v1/runs/loud/events/stream HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            f"Authorization: Bearer {ADA}",
        )
        writer.write("\r\n".join((*lines, "", "")).encode())
        await reader.readexactly(100)  # and no more: 18 MB wait to be read
        while services.streams._open.total():  # noqa: ASYNC110 - it is cut off by the server
            await asyncio.sleep(0.05)
        received = await reader.read(-1)
        writer.close()
        running.cancel()
        await asyncio.wait((running,))
    listener.close()
    assert b"event: end" not in received
    assert len(received) < 12_000_000  # what the buffers of the connection held
    await storage.close()


async def test_streams_that_wait_look_at_the_store_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What streams cost that have nothing to send does not grow with their number."""
    storage = InMemoryCheckpointStorage()
    for n in range(40):
        await asking(storage).submit(Order(1, []), run_id=f"order-{n}")
    looks = list[str]()

    def count(name: str) -> None:
        read = getattr(storage._store, name)

        async def counted(*arguments: Any, **options: Any) -> Any:
            looks.append(name)
            return await read(*arguments, **options)

        monkeypatch.setattr(storage._store, name, counted)

    for name in ("run", "runs", "history"):
        count(name)
    sent = asyncio.Queue[StreamItem]()

    async def follow(run_id: str) -> None:
        async with aclosing(follow_events(storage, run_id, EventCursor())) as events:
            async for event in events:
                sent.put_nowait(event)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        tasks = [group.create_task(follow(f"order-{n}")) for n in range(40)]
        await asyncio.sleep(2.5)  # from now on each looks once per second
        looks.clear()
        await asyncio.sleep(2.5)
        assert looks
        assert set(looks) == {"runs"}
        assert len(looks) <= 8
        # What is new is read for its run alone, and sent.
        assert sent.empty()
        await asking(storage).run(run_id="order-7")
        assert (await sent.get()).data["run_id"] == "order-7"
        assert "history" in looks
        for task in tasks:
            task.cancel()


async def test_an_answer_is_not_held_back_until_its_beginning_is_confirmed() -> None:
    with bind("127.0.0.1", 0, app(InMemoryCheckpointStorage(), auth=ADA).state.services) as listener:
        listener.listen()
        accepted, (_, writer) = await asyncio.gather(
            asyncio.to_thread(listener.accept), asyncio.open_connection(*listener.getsockname())
        )
        with accepted[0] as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        await writer.wait_closed()
