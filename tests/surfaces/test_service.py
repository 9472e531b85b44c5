"""examples/service.py, as a client sees it."""

from __future__ import annotations

import ast
import asyncio
import runpy
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

SERVICE = Path(__file__).resolve().parents[2] / "examples/service.py"


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.chdir(tmp_path)
    app = runpy.run_path(str(SERVICE))["app"]
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://it") as made:
        yield made


async def wait_for(client: httpx.AsyncClient, path: str, wanted: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(20):
        while True:
            found = (await client.get(path)).json()
            if wanted(found):
                return found
            await asyncio.sleep(0.02)


def events_in(text: str) -> list[tuple[str, str]]:
    """Return the ids and types in an event stream."""
    parts = [dict(line.split(": ", 1) for line in part.splitlines()) for part in text.split("\n\n") if part]
    return [(part["id"], part["event"]) for part in parts]


async def test_a_run_is_submitted_answered_and_followed(client: httpx.AsyncClient) -> None:
    for _ in range(2):  # the second one changes nothing
        submitted = await client.put("/runs/r", json=400)
        assert (submitted.status_code, submitted.json()) == (202, {"run": "r"})
    assert (await client.put("/runs/r", json=1)).status_code == 409
    assert await wait_for(client, "/inbox", bool) == [{"run": "r", "request": "approval", "question": "refund 400?"}]
    waiting = (await client.get("/runs/r")).json()
    assert waiting == {"standing": "waiting", "tags": {"stage": "approval"}, "outputs": []}

    following = asyncio.create_task(client.get("/runs/r/events"))  # ends with the run
    for value, code in [("maybe", 409), (True, 202)]:
        answer = await client.post("/runs/r/requests/approval", json={"value": value, "by": "ada"})
        assert answer.status_code == code
    events = events_in((await following).text)
    assert [kind for _, kind in events if kind in ("request_answered", "output")] == ["request_answered", "output"]
    assert await wait_for(client, "/inbox", lambda found: not found) == []
    over = (await client.get("/runs/r")).json()
    assert over == {"standing": "completed", "tags": {}, "outputs": ["refunded"]}
    # A browser that comes back after any event gets those that follow it.
    for position, (id, _) in enumerate(events):
        again = await client.get("/runs/r/events", headers={"Last-Event-ID": id})
        assert events_in(again.text) == events[position + 1 :]


def test_the_loop_that_drives_has_20_lines() -> None:
    functions = [node for node in ast.parse(SERVICE.read_text()).body if isinstance(node, ast.AsyncFunctionDef)]
    loop = [node for node in functions if node.name in ("drive", "drive_ready_runs")]
    assert len(loop) == 2
    assert sum((node.end_lineno or 0) - node.lineno + 1 for node in loop) <= 20


async def test_a_run_is_cancelled_and_what_is_not_there_is_not_found(client: httpx.AsyncClient) -> None:
    await client.put("/runs/r", json=90)
    await wait_for(client, "/inbox", bool)
    cancelled = await client.delete("/runs/r", params={"by": "bob"})
    assert (cancelled.status_code, cancelled.json()) == (202, {"status": "cancelled"})
    assert (await client.get("/runs/r")).json()["standing"] == "cancelled"
    assert (await client.post("/runs/r/requests/approval", json={"value": True})).status_code == 409
    assert (await client.get("/runs/none")).status_code == 404
    assert (await client.delete("/runs/none")).status_code == 404
