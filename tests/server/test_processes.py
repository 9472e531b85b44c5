"""Servers that are killed, doubled and cut off from their store, under open streams."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from stepwell import PostgresCheckpointStorage, SQLiteCheckpointStorage
from stepwell.admin.event_documents import event_to_dict
from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.kernel.commit import events
from stepwell.storage.wire.format import read_commit
from stepwell.worker import Worker
from tests.server.flows import counting_down
from tests.server.processes import HEADERS, server, stream_once, stream_to_the_end
from tests.support.postgres_server import own_server

pytestmark = pytest.mark.process


@asynccontextmanager
async def working(storage: Any) -> AsyncIterator[None]:
    """A worker of this process."""
    worker = Worker(storage, [counting_down])
    serving = asyncio.create_task(worker.serve())
    try:
        yield
    finally:
        worker.stop(at_once=True)
        await serving


async def history(storage: Any, run_id: str) -> list[Any]:
    """Return the durable events of a run as they are stored, as JSON."""
    commits = [read_commit(record, DEFAULT_CODEC)[0] for record in await storage._store.history(run_id)]
    documents = [
        event_to_dict(event, commit.stamp.at)
        for commit in commits
        for event in events(run_id, commit, stored=True, replayed=True)
    ]
    return [msgspec.json.decode(msgspec.json.encode(document)) for document in documents]


async def test_no_event_is_lost_or_repeated_though_servers_are_killed(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    async with SQLiteCheckpointStorage(store) as storage:
        await counting_down.submit(40, run_id="r", checkpoint_storage=storage)
        with server(store) as one, server(store) as two:
            seen: list[Any] = []
            async with asyncio.timeout(180), working(storage):
                async for event in stream_to_the_end([one.address, two.address], "/api/v1/runs/r/events/stream"):
                    seen.append(event["data"])
                    if len(seen) in (30, 90):
                        one.kill()
                        one.start()
                    if len(seen) == 60:
                        two.kill()
                        two.start()
            assert seen[:-1] == await history(storage, "r")
            assert seen[-1] == {"run_id": "r", "status": "completed"}


async def test_a_stream_of_several_runs_goes_on_elsewhere_though_servers_are_killed(tmp_path: Path) -> None:
    store, runs = str(tmp_path / "runs.db"), ("a", "b")
    async with SQLiteCheckpointStorage(store) as storage:
        for run in runs:
            await counting_down.submit(15, run_id=run, checkpoint_storage=storage)
        path = f"/api/v1/stream?page=true&{'&'.join(f'run={run}' for run in runs)}"

        def have_ended(events: list[Any]) -> bool:
            ends = [event for event in events if (event["type"], event["state"]) == ("status", "completed")]
            return len(ends) == len(runs)

        with server(store) as one, server(store) as two:
            seen: list[Any] = []
            last, killed, turn = None, 0, 0
            async with asyncio.timeout(180), working(storage):
                # It never ends by itself: it is read until both runs are completed.
                while not have_ended(seen):
                    try:
                        async for event in stream_once((one, two)[turn % 2].address, path, last):
                            if event["event"] == "run":  # how a run of the page stands: sent again by every server
                                continue
                            seen.append(event["data"])
                            last = event["id"]
                            if len(seen) >= 25 * (killed + 1) and killed < 2:
                                killed += 1
                                (one, two)[turn % 2].kill()
                            if have_ended(seen):
                                break
                    except httpx.HTTPError:
                        (one, two)[turn % 2].start()
                    turn += 1
            for run in runs:
                assert [event for event in seen if event["run_id"] == run] == await history(storage, run)
            assert killed == 2


async def test_a_stream_outlasts_a_restart_of_postgresql() -> None:
    with own_server() as database:
        async with PostgresCheckpointStorage(database.dsn) as storage:
            await counting_down.submit(40, run_id="r", checkpoint_storage=storage)
            address = f"postgresql:///postgres?host={database.socket.parent}&user=stepwell"
            with server(address) as one:
                seen: list[Any] = []
                async with asyncio.timeout(180), working(storage):
                    # One connection to the server, from the first event to the last.
                    async for event in stream_once(one.address, "/api/v1/runs/r/events/stream", None):
                        seen.append(event["data"])
                        if len(seen) == 40:
                            await asyncio.to_thread(database.stop, "immediate")
                            await asyncio.to_thread(database.start)
                assert seen[:-1] == await history(storage, "r")
                assert seen[-1]["status"] == "completed"


async def test_a_server_with_a_worker_drives_and_stops_in_good_order(tmp_path: Path) -> None:
    with server(str(tmp_path / "runs.db"), "--work", "tests.server.flows:refunds") as one:
        async with asyncio.timeout(30), httpx.AsyncClient(base_url=one.address, headers=HEADERS) as client:
            order = {"workflow": "refunds", "input": 400, "run_id": "r"}
            driver = (await client.post("/api/v1/runs", json=order)).json()["driver"]
            assert (driver["is_driven"], driver["command"]) == (True, None)
            stream = stream_to_the_end([one.address], "/api/v1/runs/r/events/stream")
            answered = False
            async for event in stream:
                if event["event"] == "request_info":
                    path = "/api/v1/runs/r/requests/approval/response"
                    answered = (await client.post(path, json={"value": True})).is_success
            assert answered
            run = (await client.get("/api/v1/runs/r")).json()
            assert (run["status"], run["outputs"]) == ("completed", ["refunded"])
            assert (await client.get("/api/v1/workers")).json()["workers"][0]["is_alive"]

            # A stream that never ends does not keep the server.
            endless = stream_once(one.address, "/api/v1/stream?page=true", None)
            assert (await anext(endless))["event"] == "run"
            assert await asyncio.to_thread(one.stop) == 0
            with suppress(httpx.HTTPError):
                async for _ in endless:
                    pass


def test_a_server_without_a_token_does_not_listen_to_other_machines(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stepwell.cli", "serve", "--store", str(tmp_path / "runs.db")]
    refused = subprocess.run([*command, "--no-token", "--host", "0.0.0.0"], capture_output=True, text=True, timeout=30)
    assert refused.returncode != 0
    assert "must not be reached from other machines" in refused.stderr
