"""A damaged store, as the server answers for it: what can be read, and a sentence about what cannot."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from stepwell import SQLiteCheckpointStorage
from stepwell.server.damaged_entries import KeptSurvey
from stepwell.server.run_feed import EventCursor, follow_several
from stepwell.storage.filters import TOP_RUNS
from tests.server.clients import serving
from tests.support.operating_runs import Order, asking

DOCTOR = "`stepwell doctor` says what is damaged and what is not"
OF_RUN = "run = (SELECT run FROM runs WHERE run_id = ?)"
OF_ENTRY = "run_id = ?"
READ_DAMAGED = {"damaged": True}


@pytest.fixture
async def storage(tmp_path: Path) -> Any:
    """Three runs that wait for an answer."""
    async with SQLiteCheckpointStorage(tmp_path / "runs.db") as storage:
        for id in range(3):
            await asking(storage).run(Order(id, ["tea"]), run_id=f"tea-{id}")
        yield storage


def damage(folder: Path, change: str, run_id: str) -> None:
    with closing(sqlite3.connect(folder / "runs.db")) as db, db:
        assert db.execute(change, [run_id]).rowcount >= 1


async def get(client: Any, path: str, **params: Any) -> Any:
    return (await client.get(f"/api/v1/{path}", params=params)).json()


@pytest.mark.parametrize(
    "path", ["runs/tea-1", "runs/tea-1/state", "runs/tea-1/events", "runs/tea-1/lines", "diff?before=tea-1&after=tea-0"]
)
async def test_a_damaged_record_is_a_sentence_with_a_command(storage: Any, tmp_path: Path, path: str) -> None:
    damage(tmp_path, f"UPDATE commits SET body = '{{' WHERE number = 1 AND {OF_RUN}", "tea-1")
    async with serving(storage) as client:
        response = await client.get(f"/api/v1/{path}")
        problem = response.json()
        assert (response.status_code, problem["type"], problem["hint"]) == (424, "CheckpointCorrupt", DOCTOR)
        assert "tea-1" in problem["detail"]
        assert [run["run_id"] for run in (await get(client, "runs"))["runs"]] == ["tea-2", "tea-1", "tea-0"]
        assert (await get(client, "runs/tea-0"))["status"] == "waiting"


@pytest.mark.parametrize(
    "change", ["status = 'ASLEEP'", "tags = '{'", "owner = 'somebody', until = 9"], ids=["status", "tags", "lease"]
)
async def test_runs_beside_a_damaged_entry_are_listed_page_by_page(storage: Any, tmp_path: Path, change: str) -> None:
    damage(tmp_path, f"UPDATE runs SET {change} WHERE {OF_ENTRY}", "tea-1")
    async with serving(storage) as client:
        refused = await client.get("/api/v1/runs")
        assert (refused.status_code, refused.json()["hint"]) == (424, DOCTOR)  # nobody takes the rest for the whole
        first = await get(client, "runs", limit=1, **READ_DAMAGED)
        assert ([run["run_id"] for run in first["runs"]], first["next"]) == (["tea-2"], "tea-2")
        (damaged,) = first["damaged"]
        assert damaged["run_id"] == "tea-1"
        assert "tea-1" in damaged["detail"]
        second = await get(client, "runs", limit=1, after=first["next"], **READ_DAMAGED)
        assert ([run["run_id"] for run in second["runs"]], second["next"]) == (["tea-0"], None)
        for criteria in ({"status": "waiting"}, {"text": "TEA"}, {"workflow": "refunds"}, {"prefix": "tea-"}):
            page = await get(client, "runs", **criteria, **READ_DAMAGED)
            assert [run["run_id"] for run in page["runs"]] == ["tea-2", "tea-0"], criteria
        assert (await get(client, "runs", status="failed", **READ_DAMAGED))["runs"] == []


async def test_a_whole_store_has_no_damaged_entries(storage: Any) -> None:
    async with serving(storage) as client:
        for path in ("runs", "requests"):
            assert (await get(client, path, **READ_DAMAGED))["damaged"] == []


@pytest.mark.parametrize("change", ["body = '{'", "schema = '{'", "at = 'noon'"])
async def test_requests_beside_a_damaged_one_are_listed_page_by_page(storage: Any, tmp_path: Path, change: str) -> None:
    damage(tmp_path, f"UPDATE requests SET {change} WHERE {OF_ENTRY}", "tea-1")
    async with serving(storage) as client:
        refused = await client.get("/api/v1/requests")
        assert (refused.status_code, refused.json()["hint"]) == (424, DOCTOR)
        page = await get(client, "requests", **READ_DAMAGED)
        assert [request["run_id"] for request in page["requests"]] == ["tea-0", "tea-2"]
        (damaged,) = page["damaged"]
        assert (damaged["run_id"], damaged["request_id"]) == ("tea-1", "refund-1")
        seen: list[str] = []
        after: dict[str, str] | None = {}
        while after is not None:
            page = await get(client, "requests", limit=1, **after, **READ_DAMAGED)
            seen += [request["run_id"] for request in (*page["requests"], *page["damaged"])]
            after = None if page["next"] is None else {"after": page["next"]}
        assert sorted(seen) == ["tea-0", "tea-1", "tea-2"]


async def test_the_stream_of_a_damaged_run_says_so_once_and_goes_on_with_the_others(
    storage: Any, tmp_path: Path
) -> None:
    damage(tmp_path, f"UPDATE commits SET body = '{{' WHERE number = 1 AND {OF_RUN}", "tea-1")
    cursors = {"tea-1": EventCursor(), "tea-2": EventCursor()}
    seen = list[tuple[str, str]]()
    async with asyncio.timeout(20), aclosing(follow_several(storage, cursors, None)) as items:
        while not {("tea-1", "damaged"), ("tea-2", "request_info")} <= set(seen):
            item = await anext(items)
            seen.append((item.data["run_id"], item.name))
            assert "tea-1" in item.data["detail"] if item.name == "damaged" else True
    assert seen.count(("tea-1", "damaged")) == 1


async def test_a_survey_that_took_long_is_not_repeated_at_once(storage: Any, tmp_path: Path) -> None:
    damage(tmp_path, f"UPDATE runs SET tags = '{{' WHERE {OF_ENTRY}", "tea-1")
    survey = KeptSurvey(storage)
    runs, damaged = await survey.list_runs(TOP_RUNS, None, past=None, limit=10)
    assert ([run.run_id for run in runs], [entry.run_id for entry in damaged]) == (["tea-2", "tea-0"], ["tea-1"])
    survey._until += 3600  # as after one that took three minutes
    await asking(storage).run(Order(7, ["tea"]), run_id="tea-7")
    runs, _ = await survey.list_runs(TOP_RUNS, None, past=None, limit=10)
    assert [run.run_id for run in runs] == ["tea-2", "tea-0"]
