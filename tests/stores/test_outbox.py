"""The outbox keeps its promises on every store: messages are there if and only if their commit is."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import cast

import msgspec
import pytest

from stepwell.errors import CommitConflict
from stepwell.storage.outbox import Attempt, Outbox, OutboxRow, WebhookRow
from stepwell.storage.port import Store
from stepwell.storage.stored_values import CommitEffects, LogEffects, RequestEntry, RunMetadata
from stepwell.testing.store_rules.samples import ODD_IDS, record
from tests.stores.test_rules import STORES


class OutboxStore(Store, Outbox):
    """What every store of ours is."""


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    with ExitStack() as after:
        opened = STORES[request.param](tmp_path, after)()
        assert isinstance(opened, Outbox)
        yield opened


def webhook(id: str = "wh", **fields: object) -> WebhookRow:
    return msgspec.structs.replace(WebhookRow(id, None, (), False, b'{"url":"x"}'), **fields)


def asking(run_id: str, request_id: str, at: str = "2026-01-01T00:00:00+00:00") -> RequestEntry:
    return RequestEntry(run_id, request_id, "w", "clerk", "str", "bool", "{}", at)


async def kinds(store: OutboxStore, id: str = "wh") -> list[str]:
    return [row.kind for row in await store.outbox(id)]


async def test_webhooks_are_stored_replaced_and_removed(store: OutboxStore) -> None:
    first = webhook("a", workflow="w", kinds=("run.failed",))
    for each in (webhook("b"), first, *(webhook(odd) for odd in ODD_IDS)):
        await store.put_webhook(each)
    assert [row for row in await store.webhooks() if row.id in "ab" and row.id] == [first, webhook("b")]
    assert {row.id for row in await store.webhooks()} == {"a", "b", *ODD_IDS}
    await store.put_webhook(webhook("a", is_stopped=True))
    assert next(row for row in await store.webhooks() if row.id == "a").is_stopped
    assert await store.remove_webhook("a")
    assert not await store.remove_webhook("a")
    assert "a" not in {row.id for row in await store.webhooks()}


async def test_without_a_webhook_nothing_is_written(store: OutboxStore) -> None:
    await store.append(record("r", 0, status="IDLE"), CommitEffects(asked=(asking("r", "q"),)))
    await store.put_webhook(webhook())
    assert await store.outbox("wh") == []


async def test_a_commit_that_asks_and_one_that_ends_write_messages(store: OutboxStore) -> None:
    await store.put_webhook(webhook())
    await store.append(record("r", 0, status="IN_PROGRESS"))
    await store.append(record("r", 1, status="IDLE_WITH_PENDING_REQUESTS"), CommitEffects(asked=(asking("r", "q"),)))
    await store.append(record("r", 2, status="IDLE"), CommitEffects(closed=("q",)))
    asked, completed = await store.outbox("wh")
    assert (asked.kind, asked.number, asked.run_id, asked.request) == ("request.asked", 1, "r", asking("r", "q"))
    assert (completed.kind, completed.number, completed.request) == ("run.completed", 2, None)
    assert asked.position < completed.position
    assert asked.attempts == 0
    assert asked.error is None


async def test_a_refused_commit_writes_no_message(store: OutboxStore) -> None:
    await store.put_webhook(webhook())
    await store.append(record("r", 0, status="IN_PROGRESS"))
    with pytest.raises(CommitConflict):
        await store.append(record("r", 0, status="IDLE"))
    assert await store.outbox("wh") == []


async def test_a_run_that_stays_completed_ends_once_and_one_that_fails_again_fails_again(store: OutboxStore) -> None:
    await store.put_webhook(webhook())
    for number, status in enumerate(("IDLE", "IDLE", "FAILED", "FAILED", "CANCELLED", "CANCELLED")):
        await store.append(record("r", number, status=status))
    assert await kinds(store) == ["run.completed", "run.failed", "run.failed", "run.cancelled"]


async def test_the_end_of_a_run_that_works_for_another_is_nobodys_business(store: OutboxStore) -> None:
    await store.put_webhook(webhook())
    await store.append(record("child", 0, status="IN_PROGRESS"), CommitEffects(metadata=RunMetadata(caller="r")))
    await store.append(record("child", 1, status="IDLE"))
    await store.append(record("other", 0, status="IDLE"), CommitEffects(metadata=RunMetadata(caller="r")))
    assert await store.outbox("wh") == []


async def test_a_request_in_the_superstep_log_is_told_at_once_and_not_again_by_the_commit(store: OutboxStore) -> None:
    await store.put_webhook(webhook())
    await store.append(record("r", 0, status="IN_PROGRESS"))
    await store.write_log("r", 0, "0.0/ask/q", b"{}", effects=LogEffects(asked=(asking("r", "q"),)))
    assert [(row.kind, row.number) for row in await store.outbox("wh")] == [("request.asked", 1)]
    assert not await store.write_log("r", 0, "0.0/ask/q", b"{}", effects=LogEffects(asked=(asking("r", "p"),)))
    await store.append(record("r", 1, status="IN_PROGRESS"), CommitEffects(asked=(asking("r", "q"), asking("r", "p"))))
    told = [(row.kind, row.number, row.request and row.request.request_id) for row in await store.outbox("wh")]
    assert told == [("request.asked", 1, "q"), ("request.asked", 1, "p")]


async def test_a_request_that_is_open_again_is_told_again(store: OutboxStore) -> None:
    await store.put_webhook(webhook())
    await store.append(record("r", 0, status="IN_PROGRESS"), CommitEffects(asked=(asking("r", "q"),)))
    await store.append(record("r", 1, status="IN_PROGRESS"), CommitEffects(closed=("q",)))
    await store.append(record("r", 2, status="IN_PROGRESS"), CommitEffects(asked=(asking("r", "q"),)))
    assert [row.number for row in await store.outbox("wh")] == [0, 2]


async def test_expired_requests_are_told_before_they_are_closed(store: OutboxStore) -> None:
    await store.append(record("r", 0, status="IN_PROGRESS"), CommitEffects(asked=(asking("r", "q"), asking("r", "p"))))
    await store.put_webhook(webhook())
    await store.append(record("r", 1, status="IDLE"), CommitEffects(closed=("q",), expired=("q",)))
    await store.write_log("r", 1, "k", b"{}", effects=LogEffects(closed=("p",), expired=("p",)))
    rows = await store.outbox("wh")
    assert [row.kind for row in rows] == ["request.expired", "run.completed", "request.expired"]
    assert [rows[0].request, rows[2].request] == [asking("r", "q"), asking("r", "p")]


async def test_a_webhook_gets_what_it_wants(store: OutboxStore) -> None:
    await store.put_webhook(webhook("other", workflow="another"))
    await store.put_webhook(webhook("failures", kinds=("run.failed",)))
    await store.put_webhook(webhook("stopped", is_stopped=True))
    await store.put_webhook(webhook("mine", workflow="w"))
    await store.append(record("r", 0, status="IDLE"))
    await store.append(record("r", 1, status="FAILED"))
    assert await kinds(store, "mine") == ["run.completed", "run.failed"]
    assert await kinds(store, "failures") == ["run.failed"]
    assert await kinds(store, "other") == await kinds(store, "stopped") == []


async def fill(store: OutboxStore) -> list[OutboxRow]:
    await store.put_webhook(webhook())
    for run_id in ("a", "b"):
        await store.append(record(run_id, 0, status="IDLE"))
        await store.append(record(run_id, 1, status="FAILED"))
    return await store.outbox("wh")


FAR = "2999-01-01T00:00:00+00:00"


async def test_only_the_first_message_of_each_run_is_due(store: OutboxStore) -> None:
    rows = await fill(store)
    assert {(row.run_id, row.kind) for row in await store.outbox("wh", due_by=FAR)} == {
        ("a", "run.completed"),
        ("b", "run.completed"),
    }
    assert len(await store.outbox("wh", due_by=FAR, limit=1)) == 1
    assert await store.outbox("wh", due_by="2000-01-01T00:00:00+00:00") == []
    first = next(row for row in rows if row.run_id == "a")
    await store.settle(first)
    await store.settle(first)  # gone: nothing happens
    assert ("a", "run.failed") in {(row.run_id, row.kind) for row in await store.outbox("wh", due_by=FAR)}
    assert len(await store.outbox("wh")) == 3


async def test_a_failed_attempt_keeps_the_later_messages_of_its_run_back_until_it_is_set_aside(
    store: OutboxStore,
) -> None:
    first = next(row for row in await fill(store) if row.run_id == "a")
    await store.settle(first, Attempt(1, "2998-01-01T00:00:00+00:00", "HTTP 500 \x00 \x10"))
    assert [row.run_id for row in await store.outbox("wh", due_by="2997-01-01T00:00:00+00:00")] == ["b"]
    (failed,) = [row for row in await store.outbox("wh") if row.attempts]
    assert (failed.attempts, failed.due, failed.error) == (1, "2998-01-01T00:00:00+00:00", "HTTP 500 \x00 \x10")
    await store.settle(first, Attempt(80, None, "HTTP 500"))
    due = await store.outbox("wh", due_by="2997-01-01T00:00:00+00:00")
    assert {(row.run_id, row.kind) for row in due} == {("a", "run.failed"), ("b", "run.completed")}
    assert len(await store.outbox("wh")) == 4


async def test_a_webhook_and_a_run_take_their_messages_with_them(store: OutboxStore) -> None:
    await store.put_webhook(webhook("other"))
    await fill(store)
    await store.drop("a")
    assert {row.run_id for row in await store.outbox("wh")} == {"b"}
    await store.remove_webhook("wh")
    assert await store.outbox("wh") == []
    assert len(await store.outbox("other")) == 2


async def test_messages_outlive_the_records_that_caused_them(store: OutboxStore) -> None:
    await store.put_webhook(webhook())
    await store.append(record("r", 0, status="IN_PROGRESS"), CommitEffects(asked=(asking("r", "q"),)))
    snapshot = record("r", 1, status="IDLE")
    await store.append(snapshot, CommitEffects(drop_below=1, closed=("q",)))
    assert await kinds(store) == ["request.asked", "run.completed"]
    await store.rewrite("r", replace=[snapshot])
    assert await kinds(store) == ["request.asked", "run.completed"]


@pytest.mark.parametrize("name", [name for name in STORES if name != "memory"])
async def test_messages_are_there_after_the_store_is_opened_again(name: str, tmp_path: Path) -> None:
    with ExitStack() as after:
        open_store = STORES[name](tmp_path, after)
        first, second = cast(OutboxStore, open_store()), cast(OutboxStore, open_store())
        rows = await fill(first)
        await first.settle(rows[0], Attempt(1, FAR, "no"))
        before = await first.outbox("wh")
        await first.close()
        assert await second.outbox("wh") == before
        assert await second.webhooks() == [webhook()]
        await second.close()
