"""Rules for stores with an outbox: a message is stored if and only if its commit is, and until it is delivered."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from stepwell.errors import CommitConflict, RunBusy
from stepwell.storage.outbox import Attempt, OutboxRow, WebhookRow
from stepwell.storage.stored_values import CommitEffects, LogEffects
from stepwell.testing.store_rules.rule import OutboxStore, outbox_rule, outbox_rule_of_two
from stepwell.testing.store_rules.samples import (
    ODD_IDS,
    acquire,
    after,
    expect_error,
    head,
    listed,
    question,
    record,
    release,
    renew,
    run_metadata,
)

_FAR = "2999-01-01T00:00:00+00:00"
_LEASE = "rules:webhooks"  # in place of the id of a run
_ASKING = "IDLE_WITH_PENDING_REQUESTS"


def webhook(id: str = "wh", **fields: object) -> WebhookRow:
    return replace(WebhookRow(id, None, (), False, b'{"url":"x"}'), **fields)


async def kinds(at: OutboxStore, id: str = "wh") -> list[str]:
    return [row.kind for row in await at.outbox.outbox(id)]


async def due(at: OutboxStore, by: str = _FAR) -> set[tuple[str, str]]:
    return {(row.run_id, row.kind) for row in await at.outbox.outbox("wh", due_by=by)}


async def fill(at: OutboxStore) -> list[OutboxRow]:
    """Return the messages of two runs that each end twice."""
    await at.outbox.put_webhook(webhook())
    for run_id in ("a", "b"):
        await at.store.append(record(run_id, 0, status="IDLE"))
        await at.store.append(record(run_id, 1, status="FAILED"))
    return await at.outbox.outbox("wh")


# ---------------------------------------------------------------- webhooks


@outbox_rule
async def webhooks_are_stored_replaced_and_removed(at: OutboxStore) -> None:
    first = webhook("a", workflow="w", kinds=("run.failed",))
    for each in (webhook("b"), first, *(webhook(odd) for odd in ODD_IDS)):
        await at.outbox.put_webhook(each)
    rows = {row.id: row for row in await at.outbox.webhooks()}
    assert rows == {"a": first, "b": webhook("b"), **{odd: webhook(odd) for odd in ODD_IDS}}
    await at.outbox.put_webhook(webhook("a", is_stopped=True))
    assert {row.id: row for row in await at.outbox.webhooks()}["a"].is_stopped
    assert await at.outbox.remove_webhook("a")
    assert not await at.outbox.remove_webhook("a")
    assert "a" not in {row.id for row in await at.outbox.webhooks()}


@outbox_rule
async def a_webhook_gets_the_messages_that_it_wants(at: OutboxStore) -> None:
    await at.outbox.put_webhook(webhook("other", workflow="another"))
    await at.outbox.put_webhook(webhook("failures", kinds=("run.failed",)))
    await at.outbox.put_webhook(webhook("stopped", is_stopped=True))
    await at.outbox.put_webhook(webhook("mine", workflow="w"))
    await at.store.append(record("r", 0, status="IDLE"))
    await at.store.append(record("r", 1, status="FAILED"))
    assert await kinds(at, "mine") == ["run.completed", "run.failed"]
    assert await kinds(at, "failures") == ["run.failed"]
    assert await kinds(at, "other") == await kinds(at, "stopped") == []


# ---------------------------------------------------------------- what a commit causes


@outbox_rule
async def a_commit_without_webhooks_writes_no_message(at: OutboxStore) -> None:
    await at.store.append(record("r", 0, status="IDLE"), CommitEffects(asked=(question("r", "q"),)))
    await at.outbox.put_webhook(webhook())
    assert await at.outbox.outbox("wh") == []


@outbox_rule
async def a_commit_writes_the_messages_that_it_causes(at: OutboxStore) -> None:
    await at.outbox.put_webhook(webhook())
    await at.store.append(record("r", 0, status="IN_PROGRESS"))
    await at.store.append(record("r", 1, status=_ASKING), CommitEffects(asked=(question("r", "q"),)))
    await at.store.append(record("r", 2, status="IDLE"), CommitEffects(closed=("q",)))
    rows = await at.outbox.outbox("wh")
    assert [row.kind for row in rows] == ["request.asked", "run.completed"]
    asked, completed = rows
    assert (asked.number, asked.run_id, asked.request) == (1, "r", question("r", "q"))
    assert (completed.number, completed.request) == (2, None)
    assert asked.position < completed.position
    assert (asked.attempts, asked.error, asked.workflow) == (0, None, "w")


@outbox_rule
async def a_refused_commit_writes_no_message(at: OutboxStore) -> None:
    await at.outbox.put_webhook(webhook())
    await at.store.append(record("r", 0, status="IN_PROGRESS"))
    asking = CommitEffects(asked=(question("r", "q"),))
    await expect_error(CommitConflict, at.store.append(record("r", 0, status="IDLE"), asking))
    fence = await acquire(at.store, "r")
    await release(at.store, "r")
    await acquire(at.store, "r", "other")
    late = replace(asking, fence=fence)
    await expect_error(CommitConflict, at.store.append(record("r", 1, status="IDLE"), late))
    assert await at.outbox.outbox("wh") == []


@outbox_rule
async def a_commit_and_its_messages_become_visible_together(at: OutboxStore) -> None:
    await at.outbox.put_webhook(webhook())

    async def commit() -> None:
        for number in range(20):
            await at.store.append(record("r", number, status=("IDLE", "FAILED")[number % 2]))
            await asyncio.sleep(0)  # a store in memory never waits

    committing = asyncio.create_task(commit())
    while not committing.done():
        at_least = await head(at.store, "r")
        seen = [row.number for row in await at.outbox.outbox("wh")]
        at_most = await head(at.store, "r")
        assert len(seen) >= (0 if at_least is None else at_least.entry.number + 1)
        assert len(seen) <= (0 if at_most is None else at_most.entry.number + 1)
        assert seen == list(range(len(seen)))
        await asyncio.sleep(0)
    await committing


@outbox_rule
async def a_run_that_stays_completed_ends_once_and_one_that_fails_again_fails_again(at: OutboxStore) -> None:
    await at.outbox.put_webhook(webhook())
    for number, status in enumerate(("IDLE", "IDLE", "FAILED", "FAILED", "CANCELLED", "CANCELLED")):
        await at.store.append(record("r", number, status=status))
    assert await kinds(at) == ["run.completed", "run.failed", "run.failed", "run.cancelled"]


@outbox_rule
async def the_end_of_a_run_that_works_for_another_causes_no_message(at: OutboxStore) -> None:
    await at.outbox.put_webhook(webhook())
    child = CommitEffects(metadata=run_metadata(caller="r"))
    await at.store.append(record("child", 0, status="IN_PROGRESS"), child)
    await at.store.append(record("child", 1, status="IDLE"))
    await at.store.append(record("other", 0, status="IDLE"), child)
    assert await at.outbox.outbox("wh") == []


@outbox_rule
async def a_request_in_the_superstep_log_causes_its_message_at_once_and_not_again(at: OutboxStore) -> None:
    await at.outbox.put_webhook(webhook())
    await at.store.append(record("r", 0, status="IN_PROGRESS"))
    q, p = question("r", "q"), question("r", "p")
    await at.store.write_log("r", 0, "0.0/ask/q", b"{}", effects=LogEffects(asked=(q,)))
    assert [(row.kind, row.number) for row in await at.outbox.outbox("wh")] == [("request.asked", 1)]
    assert not await at.store.write_log("r", 0, "0.0/ask/q", b"{}", effects=LogEffects(asked=(p,)))
    await at.store.append(record("r", 1, status="IN_PROGRESS"), CommitEffects(asked=(q, p)))
    asked = [(row.kind, row.number, row.request and row.request.request_id) for row in await at.outbox.outbox("wh")]
    assert asked == [("request.asked", 1, "q"), ("request.asked", 1, "p")]


@outbox_rule
async def a_request_that_is_open_again_causes_another_message(at: OutboxStore) -> None:
    await at.outbox.put_webhook(webhook())
    asking = CommitEffects(asked=(question("r", "q"),))
    await at.store.append(record("r", 0, status="IN_PROGRESS"), asking)
    await at.store.append(record("r", 1, status="IN_PROGRESS"), CommitEffects(closed=("q",)))
    await at.store.append(record("r", 2, status="IN_PROGRESS"), asking)
    assert [row.number for row in await at.outbox.outbox("wh")] == [0, 2]


@outbox_rule
async def expired_requests_are_read_before_they_are_closed(at: OutboxStore) -> None:
    q, p = question("r", "q"), question("r", "p")
    await at.store.append(record("r", 0, status="IN_PROGRESS"), CommitEffects(asked=(q, p)))
    await at.outbox.put_webhook(webhook())
    await at.store.append(record("r", 1, status="IDLE"), CommitEffects(closed=("q",), expired=("q",)))
    await at.store.write_log("r", 1, "k", b"{}", effects=LogEffects(closed=("p",), expired=("p",)))
    rows = await at.outbox.outbox("wh")
    assert [row.kind for row in rows] == ["request.expired", "run.completed", "request.expired"]
    assert [rows[0].request, rows[2].request] == [q, p]


# ---------------------------------------------------------------- delivery


@outbox_rule
async def a_message_stays_until_it_is_settled(at: OutboxStore) -> None:
    rows = await fill(at)
    for _ in range(2):  # reading is not delivering
        assert await at.outbox.outbox("wh") == rows
        assert await due(at) == {("a", "run.completed"), ("b", "run.completed")}
    first = rows[0]
    await at.outbox.settle(first)
    await at.outbox.settle(first)  # gone: nothing happens
    await at.outbox.settle(first, Attempt(1, _FAR, "late"))
    assert await at.outbox.outbox("wh") == rows[1:]


@outbox_rule
async def messages_of_a_run_are_due_one_after_the_other(at: OutboxStore) -> None:
    rows = await fill(at)
    assert [row.kind for row in rows if row.run_id == "a"] == ["run.completed", "run.failed"]
    assert await due(at) == {("a", "run.completed"), ("b", "run.completed")}
    assert len(await at.outbox.outbox("wh", due_by=_FAR, limit=1)) == 1
    assert await due(at, by="2000-01-01T00:00:00+00:00") == set()
    await at.outbox.settle(next(row for row in rows if row.run_id == "a"))
    assert await due(at) == {("a", "run.failed"), ("b", "run.completed")}


@outbox_rule
async def a_failed_attempt_keeps_its_run_back_until_the_message_is_set_aside(at: OutboxStore) -> None:
    first = next(row for row in await fill(at) if row.run_id == "a")
    await at.outbox.settle(first, Attempt(1, "2998-01-01T00:00:00+00:00", "HTTP 500 \x00 \x10"))
    assert await due(at, by="2997-01-01T00:00:00+00:00") == {("b", "run.completed")}
    assert await due(at) == {("a", "run.completed"), ("b", "run.completed")}
    attempts = [(row.attempts, row.due, row.error) for row in await at.outbox.outbox("wh") if row.attempts]
    assert attempts == [(1, "2998-01-01T00:00:00+00:00", "HTTP 500 \x00 \x10")]
    await at.outbox.settle(first, Attempt(80, None, "HTTP 500"))
    assert await due(at) == {("a", "run.failed"), ("b", "run.completed")}
    assert len(await at.outbox.outbox("wh")) == 4


@outbox_rule
async def a_webhook_and_a_run_take_their_messages_with_them(at: OutboxStore) -> None:
    await at.outbox.put_webhook(webhook("other"))
    await fill(at)
    await at.store.drop("a")
    assert {row.run_id for row in await at.outbox.outbox("wh")} == {"b"}
    await at.outbox.remove_webhook("wh")
    assert await at.outbox.outbox("wh") == []
    assert len(await at.outbox.outbox("other")) == 2


@outbox_rule
async def messages_outlive_the_records_that_caused_them(at: OutboxStore) -> None:
    await at.outbox.put_webhook(webhook())
    await at.store.append(record("r", 0, status="IN_PROGRESS"), CommitEffects(asked=(question("r", "q"),)))
    snapshot = record("r", 1, status="IDLE")
    await at.store.append(snapshot, CommitEffects(drop_below=1, closed=("q",)))
    assert await kinds(at) == ["request.asked", "run.completed"]
    await at.store.rewrite("r", replace=[snapshot])
    assert await kinds(at) == ["request.asked", "run.completed"]


# ---------------------------------------------------------------- two programs


@outbox_rule_of_two
async def messages_of_one_program_are_delivered_by_another(one: OutboxStore, other: OutboxStore) -> None:
    rows = await fill(one)
    await one.outbox.settle(rows[0], Attempt(1, _FAR, "no"))
    assert await other.outbox.webhooks() == [webhook()]
    assert await other.outbox.outbox("wh") == await one.outbox.outbox("wh")
    await other.outbox.settle(rows[0])
    assert await one.outbox.outbox("wh") == rows[1:]
    await other.store.append(record("a", 2, status="IDLE"))  # the webhook of the other program
    assert [row.kind for row in await one.outbox.outbox("wh") if row.run_id == "a"][-1] == "run.completed"


@outbox_rule_of_two
async def one_program_at_a_time_holds_the_lease_for_delivering(one: OutboxStore, other: OutboxStore) -> None:
    fence = await acquire(one.store, _LEASE)
    await expect_error(RunBusy, acquire(other.store, _LEASE, "other"))
    assert await listed(one.store) == []  # it is not a run
    assert await renew(one.store, {_LEASE: fence}) == ([], [])
    with after(minutes=2):
        await acquire(other.store, _LEASE, "other")
        assert await renew(one.store, {_LEASE: fence}) == ([_LEASE], [])
        await expect_error(RunBusy, acquire(one.store, _LEASE))
        await release(other.store, _LEASE, "other")
        await acquire(one.store, _LEASE)
