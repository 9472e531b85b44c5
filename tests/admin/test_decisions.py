"""What people decided is on record: listed with who and when, and readable with SQL."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stepwell import (
    CannotUnseal,
    InMemoryCheckpointStorage,
    PostgresCheckpointStorage,
    Retention,
    Seal,
    SQLiteCheckpointStorage,
)
from stepwell.admin import cancel, export_run, fork, import_run, list_decisions, respond, restore, retry
from stepwell.admin.decisions import DecisionRecord
from stepwell.testing import FakeClock
from tests.support.nesting import Asker, alone, around, deep
from tests.support.operating_runs import Order, asking, counting
from tests.support.postgres_server import dsn, fresh_schema


def brief(decisions: list[DecisionRecord]) -> list[tuple[str, str, str | None]]:
    return [(decision.kind, decision.run_id, decision.by) for decision in decisions]


async def decide(storage: Any) -> None:
    """Everything that can be decided, once."""
    workflow = asking(storage)
    await workflow.run(Order(1, ["tea"]), run_id="tea")
    await respond(storage, "tea", "refund-1", True, by="ann", comment="as usual")
    await workflow.run(run_id="tea")
    await workflow.submit(Order(2, ["hat"]), run_id="hat", by="bo")
    await workflow.run(run_id="hat")
    await cancel(storage, "hat", by="cy", reason="no hats")
    await retry(storage, ["hat"], status="cancelled", by="di")
    await fork(storage, "tea@0", run_id="tea-2", by="ed")
    await restore(storage, "tea@1", by="flo")
    await counting(storage).run(1, run_id="numbers")  # nobody decides anything here


DECIDED = [
    ("restored", "tea", "flo"),
    ("forked", "tea-2", "ed"),
    ("retried", "hat", "di"),
    ("cancelled", "hat", "cy"),
    ("started", "hat", "bo"),
    ("answered", "tea", "ann"),
]


async def test_decisions_are_listed_with_who_what_and_why(everywhere: Any) -> None:
    async with everywhere() as storage:
        await decide(storage)
        decisions = await list_decisions(storage)
        assert brief(decisions) == DECIDED
        restored, forked, _, cancelled, _, answered = decisions
        assert (answered.request_id, answered.value, answered.comment) == ("refund-1", True, "as usual")
        assert (answered.workflow_name, answered.executor_id) == ("refunds", "desk")
        assert (cancelled.comment, cancelled.request_id, cancelled.source) == ("no hats", None, None)
        assert forked.source is not None
        assert (forked.source.run_id, forked.source.number) == ("tea", 0)
        assert restored.source is not None
        assert (restored.source.run_id, restored.source.number) == ("tea", 1)
        assert restored.source.checkpoint_id == (await storage.list_checkpoint_ids(run_id="tea"))[1]
        assert restored.to_dict()["source_number"] == 1


async def test_decisions_are_filtered_and_paged(everywhere: Any) -> None:
    async with everywhere() as storage:
        await decide(storage)
        cases: list[tuple[dict[str, Any], list[tuple[str, str, str]]]] = [
            ({"run_id": "hat"}, DECIDED[2:5]),
            ({"by": "ann"}, DECIDED[5:]),
            ({"workflow_name": "refunds"}, DECIDED),
            ({"workflow_name": "counting"}, []),
            ({"kinds": ["forked", "restored"]}, DECIDED[:2]),
            ({"since": datetime.now(UTC) + timedelta(hours=1)}, []),
            ({"until": datetime.now(UTC) - timedelta(hours=1)}, []),
            ({"since": datetime.now(UTC) - timedelta(hours=1), "until": datetime.now(UTC)}, DECIDED),
            ({"run_id": "\ud800"}, []),
        ]
        for criteria, expected in cases:
            assert brief(await list_decisions(storage, **criteria)) == expected, criteria
            pages, after = list[DecisionRecord](), None
            while page := await list_decisions(storage, **criteria, after=after, limit=2):
                pages, after = pages + page, page[-1].position
            assert brief(pages) == expected, criteria
        mistakes: list[dict[str, Any]] = [{"kinds": ["eaten"]}, {"limit": 0}, {"after": "tea"}]
        for wrong in (*mistakes, {"after": '["\\ud800","a",0,0]'}):
            with pytest.raises(ValueError, match=r"kinds|limit|after"):
                await list_decisions(storage, **wrong)


async def test_several_answers_of_one_commit_are_never_torn_by_a_page() -> None:
    async with InMemoryCheckpointStorage() as storage:
        with FakeClock():  # all of it happens at one moment
            workflow = around(alone(Asker()), storage)
            await workflow.run("three little words", run_id="many")
            requests = [request.request_id for request in await storage.pending_requests()]
            assert len(requests) == 3
            for request_id in requests:
                await respond(storage, "many", request_id, {"yes": True}, by=request_id)
            await workflow.run(run_id="many")
        (one, *_) = whole = await list_decisions(storage)
        assert sorted(decision.by or "" for decision in whole) == sorted(requests)
        pages, after = [one], one.position
        while page := await list_decisions(storage, after=after, limit=1):
            pages, after = pages + page, page[-1].position
        assert pages == whole


async def test_an_answer_for_a_sub_workflow_is_on_record_once(everywhere: Any) -> None:
    async with everywhere() as storage:
        workflow = deep(alone(Asker()), 2, storage)
        await workflow.run("go", run_id="outer")
        (request,) = await storage.pending_requests()
        await respond(storage, "outer", request.request_id, {"yes": False}, by="ann")
        await workflow.run(run_id="outer")
        await cancel(storage, "outer", by="bo")
        assert brief(await list_decisions(storage)) == [("cancelled", "outer", "bo"), ("answered", "outer", "ann")]


async def test_decisions_come_along_when_a_run_is_moved(everywhere: Any) -> None:
    async with everywhere() as storage, InMemoryCheckpointStorage() as other:
        await decide(storage)
        await import_run(other, await export_run(storage, "tea"))
        assert brief(await list_decisions(other)) == [DECIDED[0], DECIDED[5]]
        for checkpoint in await storage.list_checkpoints(run_id="hat"):
            await other.save(checkpoint)
        assert brief(await list_decisions(other, run_id="hat")) == DECIDED[2:5]


async def test_a_run_that_keeps_its_latest_checkpoint_keeps_what_that_one_says(everywhere: Any) -> None:
    async with everywhere(retention=Retention.LatestOnly) as storage:
        workflow = asking(storage)
        await workflow.run(Order(1, ["tea"]), run_id="tea")
        await workflow.run(run_id="tea", responses={"refund-1": True}, by="ann")
        assert brief(await list_decisions(storage)) == []  # a later commit has taken its place
        await workflow.run(Order(2, ["hat"]), run_id="hat")
        await cancel(storage, "hat", by="bo")
        assert brief(await list_decisions(storage)) == [("cancelled", "hat", "bo")]


VIEW = (
    "SELECT kind, run_id, by, comment, request_id, executor, CAST(response AS TEXT) FROM {}decisions ORDER BY at DESC"
)
ROWS = [
    ("restored", "tea", "flo", None, None, None, None),
    ("forked", "tea-2", "ed", None, None, None, None),
    ("retried", "hat", "di", None, None, None, None),
    ("cancelled", "hat", "cy", "no hats", None, None, None),
    ("started", "hat", "bo", None, None, None, None),
    ("answered", "tea", "ann", "as usual", "refund-1", "desk", "true"),
]


async def test_decisions_are_a_view_of_sqlite(tmp_path: Path) -> None:
    async with SQLiteCheckpointStorage(tmp_path / "runs.db") as storage:
        await decide(storage)
    db = sqlite3.connect(tmp_path / "runs.db")
    assert db.execute(VIEW.format("")).fetchall() == ROWS
    plan = str(db.execute("EXPLAIN QUERY PLAN SELECT * FROM decisions").fetchall())
    assert "commits_with_decisions" in plan  # other commits are not looked at
    db.close()


@pytest.mark.process
async def test_decisions_are_a_view_of_postgresql() -> None:
    with fresh_schema() as schema:
        async with PostgresCheckpointStorage(dsn(), schema=schema) as storage:
            await decide(storage)
        with psycopg.connect(dsn()) as db:
            assert db.execute(VIEW.format(f"{schema}.").encode()).fetchall() == ROWS


@pytest.mark.process
async def test_sealed_decisions_are_seen_as_sealed_and_read_with_the_key(tmp_path: Path) -> None:
    seal = Seal({"k": b"0" * 32}, "k")
    async with SQLiteCheckpointStorage(tmp_path / "runs.db", seal=seal) as storage:
        await decide(storage)
        assert brief(await list_decisions(storage)) == DECIDED
    db = sqlite3.connect(tmp_path / "runs.db")
    rows = db.execute(VIEW.format("")).fetchall()
    assert [(row[0], *row[2:]) for row in rows] == [("sealed", None, None, None, None, None)] * 6
    db.close()
    with fresh_schema() as schema:
        async with PostgresCheckpointStorage(dsn(), schema=schema, seal=seal) as storage:
            await decide(storage)
        with psycopg.connect(dsn()) as pg:
            sealed = pg.execute(VIEW.format(f"{schema}.").encode()).fetchall()
        assert [(row[0], *row[2:]) for row in sealed] == [("sealed", None, None, None, None, None)] * 6
    async with SQLiteCheckpointStorage(tmp_path / "runs.db", seal=Seal({"x": b"1" * 32}, "x")) as other:
        with pytest.raises(CannotUnseal):
            await list_decisions(other)
