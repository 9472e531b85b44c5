"""What is read from a run, and what each transaction checks and changes.

All checks come before the first change: a transaction that is refused must leave no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from msgspec.structs import replace

from stepwell.storage import clock
from stepwell.storage.conflicts import check_chain, check_fence, check_follows, check_workflow
from stepwell.storage.lease import Owner
from stepwell.storage.outbox import Attempt, OutboxRow, WebhookRow, find_messages, is_end
from stepwell.storage.rewrite_plan import plan_rewrite
from stepwell.storage.stored_values import (
    NO_EFFECTS,
    CommitEffects,
    Entry,
    LogEffects,
    LogRow,
    OpenedRun,
    Record,
    RequestEntry,
    SignalRow,
)
from stepwell.stores.runs.run import Run, lease_text
from stepwell.stores.runs.state import Acquire, CommitLine, LogWrite, Settle, Signal, State

AnyRun = Run[Any]
FindWebhooks = Callable[[], Sequence[WebhookRow]]

# -------------------------------------------------------------------- reading


def read_chain(run: AnyRun, number: int | None = None) -> list[Record]:
    """Return the last snapshot at or before that number (None: the newest) and every record up to it."""
    if run.state.newest is None:
        return []
    first = last = run.state.latest if number is None else number
    while (stored := run.find(first)) is not None and not stored.entry.is_snapshot:
        first -= 1
    if stored is not None:
        return [run.read_record(n) for n in range(first, last + 1)]
    run.check_complete()
    if last in run.records:
        snapshots = [n for n, stored in run.records.items() if n <= last and stored.entry.is_snapshot]
        first = max(snapshots, default=0)
        check_chain(run.run_id, last, [run.read_record(n) for n in sorted(run.records) if first <= n <= last])
    return []


def read_history(run: AnyRun, after: int, upto: int | None, *, outputs_only: bool) -> list[Record]:
    """Return the records past `after`, up to and including `upto`, oldest first."""
    last = run.state.latest if upto is None else min(upto, run.state.latest)
    run.index(run.state.latest)
    if not outputs_only or sum(each.entry.outputs for each in run.records.values()) < run.state.outputs:
        run.index(after + 1)
    # Few of many records may be wanted, and few records may be left of a long run.
    wanted, stored = range(after + 1, last + 1), run.records.keys()
    numbers = sorted(stored & set(wanted) if len(wanted) < len(stored) else filter(wanted.__contains__, stored))
    if len(numbers) < len(wanted):
        run.check_complete()
    return [run.read_record(n) for n in numbers if run.records[n].entry.outputs or not outputs_only]


def read_entries(run: AnyRun, at_least: int | None = None) -> list[Entry]:
    """Return the entries of all records, or of the newest ones, at least so many."""
    run.index(max(run.state.latest, 0))
    records = run.find_all() if at_least is None or len(run.records) < at_least else run.records
    # Usually no number is missing: then a page of a long run costs no more than one of a short run.
    newest = [records[n] for n in range(run.state.latest, run.state.latest - (at_least or 0), -1) if n in records]
    return [stored.entry for stored in (newest if newest and len(newest) == at_least else records.values())]


def find_entry(run: AnyRun, number: int) -> Entry | None:
    stored = run.find(number)
    if stored is None:
        run.check_complete()
    return None if stored is None else stored.entry


def read_signals(run: AnyRun) -> list[SignalRow]:
    """Return the signals that are not consumed, oldest first."""
    return [SignalRow(key, run.read_body(body, f"signal {key!r}")) for key, body in run.state.signals.items()]


# -------------------------------------------------------------------- a drive


def open_run(run: AnyRun, owner: Owner | None, seconds: float) -> OpenedRun:
    if owner is not None:
        _check_not_busy(run, owner)
    # Everything is read before the lease is given: nobody gets one with an error.
    records, signals = read_chain(run), read_signals(run)
    log = [
        LogRow(place, key, run.read_body(body, f"log entry {key!r}"))
        for place, entries in run.state.log.items()
        for key, body in entries.items()
    ]
    fence = None if owner is None else acquire(run, owner, seconds)
    return OpenedRun(records, log, signals, fence, run.state.outputs > 0, run.state.takeovers)


def append(run: AnyRun, record: Record, effects: CommitEffects, find_webhooks: FindWebhooks) -> None:
    entry, state = record.entry, run.state
    check_fence(run.run_id, effects.fence, state.fence)
    check_follows(entry, state.latest)
    check_workflow(entry, state.workflow or entry.workflow)
    line = _commit_line(entry, effects)
    line.release = effects.release and effects.fence == state.fence
    line.outbox = _messages(state, entry, effects, find_webhooks)
    _store(run, line, [record], effects)


def write_log(
    run: AnyRun, line: LogWrite, body: bytes, effects: LogEffects, fence: int | None, find_webhooks: FindWebhooks
) -> bool:
    check_fence(run.run_id, fence, run.state.fence)
    is_new = line.key not in run.state.log.get(line.place, {})
    if is_new:
        if run.state.newest is not None:
            line.outbox = _messages(run.state, run.state.newest, effects, find_webhooks)
        run.put(line, body)
    return is_new


def _messages(
    state: State[Any], entry: Entry, effects: CommitEffects | LogEffects, find_webhooks: FindWebhooks
) -> tuple[OutboxRow, ...]:
    """Return the messages of a commit or, if the entry is that of the newest record, of the next one."""
    is_commit = state.newest is None or entry.number > state.newest.number
    before = None if state.newest is None else state.newest.status
    if not (effects.asked or effects.expired or (is_commit and is_end(before, entry.status))):
        return ()
    webhooks = find_webhooks()
    if not webhooks:
        return ()
    if not is_commit:
        entry = replace(entry, number=entry.number + 1, at=clock.stamp())
    metadata = effects.metadata if isinstance(effects, CommitEffects) and effects.metadata else state.metadata
    messages = find_messages(
        webhooks,
        before=before,
        entry=entry,
        expired=[state.requests[id] for id in effects.expired if id in state.requests],
        asked=[request for request in effects.asked if not _is_open(state, request)],
        ends=is_commit and metadata.caller is None,
    )
    return tuple(replace(row, position=state.outbox_end + n) for n, row in enumerate(messages))


def _is_open(state: State[Any], request: RequestEntry) -> bool:
    """Return whether a request is open already: the superstep log has asked it before the commit does."""
    other = state.requests.get(request.request_id)
    return other is not None and other.at == request.at


def settle(run: AnyRun, message: OutboxRow, attempt: Attempt | None) -> None:
    """Note what became of a message, if it is still there."""
    if any(_is_same(row, message) for row in run.state.outbox):
        run.put(Settle(webhook=message.webhook, position=message.position, attempt=attempt))


def _is_same(row: OutboxRow, message: OutboxRow) -> bool:
    return (row.webhook, row.position, row.number, row.at) == (
        message.webhook,
        message.position,
        message.number,
        message.at,
    )


def settle_all(run: AnyRun, webhook_id: str) -> None:
    """Delete the messages of a webhook."""
    for row in run.state.outbox:
        if row.webhook == webhook_id:
            run.put(Settle(webhook=webhook_id, position=row.position))


def send(run: AnyRun, key: str, body: bytes, fence: int | None) -> bool:
    check_fence(run.run_id, fence, run.state.fence)
    is_new = key not in run.state.used_keys
    if is_new:
        run.put(Signal(key=key), body)
    return is_new


def acquire(run: AnyRun, owner: Owner, seconds: float) -> int:
    _check_not_busy(run, owner)
    lease = run.read_lease()
    is_takeover = lease is not None and lease.owner != owner and not lease.was_released
    line = Acquire(owner=owner, fence=run.state.fence + 1, takeovers=run.state.takeovers + is_takeover)
    run.put(line, lease_text(owner.clock() + seconds))
    return run.state.fence


def renew(run: AnyRun, fence: int, seconds: float | None) -> None:
    lease = run.read_lease()
    # A released lease is not brought back, and that of another owner is left alone.
    if seconds is not None and lease is not None and not lease.was_released and run.state.fence == fence:
        run.set_lease_end(lease.owner.clock() + seconds)


def release(run: AnyRun, owner: Owner, *, stalls: bool) -> None:
    lease = run.read_lease()
    if lease is not None and lease.owner == owner:
        run.set_lease_end(0.0 if stalls and run.state.newest is not None else None)
        if run.state.is_empty:
            run.remove()


def _check_not_busy(run: AnyRun, owner: Owner) -> None:
    lease = run.read_lease()
    if lease is not None and lease.owner != owner and not lease.is_over():
        raise lease.busy_error(run.run_id)


def _commit_line(entry: Entry, effects: CommitEffects) -> CommitLine:
    metadata = effects.metadata
    return CommitLine(
        entry=entry,
        drop_log_through=effects.drop_log_through,
        consumed=effects.consumed,
        closed=effects.closed,
        asked=effects.asked,
        wake=effects.wake,
        # A copy: the caller's dict may change later.
        metadata=None if metadata is None else replace(metadata, tags=dict(metadata.tags)),
    )


def _store(
    run: AnyRun, line: CommitLine, records: Sequence[Record], effects: CommitEffects, going: Collection[int] = ()
) -> None:
    """Store records, with what a commit does beside them: as a line, or by writing the run anew."""
    below, drops = effects.drop_below or 0, False
    if below:
        run.index()
        drops = any(number < below and not stored.entry.outputs for number, stored in run.records.items())
    if line.entry.number > run.state.latest and len(records) == 1 and not (going or drops or effects.reduced):
        run.put(line, records[0].body)
        return
    run.flush()  # what comes now is written elsewhere
    entries = {number: stored.entry for number, stored in run.find_all().items() if number not in going}
    run.state.apply_effects(line)
    new = {record.entry.number: record for record in records}
    new |= {record.entry.number: record for record in effects.reduced if record.entry.number in entries.keys() | new}
    entries |= {number: record.entry for number, record in new.items()}
    numbers = sorted(number for number, entry in entries.items() if number >= below or entry.outputs)
    if not numbers:
        # Nothing stays but a lease that is held.
        run.state = State(owner=run.state.owner, until=run.state.until, fence=run.state.fence)
    if numbers or run.read_lease() is not None:
        run.write_anew(new.get(number) or run.read_record(number) for number in numbers)
    else:
        run.remove()


# -------------------------------------------------------------------- maintenance


def rewrite(
    run: AnyRun, insert: Record | None, replace: Sequence[Record], remove: Sequence[int], effects: CommitEffects | None
) -> int:
    entries = {number: stored.entry for number, stored in run.find_all().items()}
    plan = plan_rewrite(
        run.run_id, entries, run.state.fence, insert=insert, replace=replace, remove=remove, effects=effects
    )
    entry = run.state.newest if insert is None else insert.entry
    if entry is None or not (plan.store or plan.remove or effects):
        return 0
    line = _commit_line(entry, effects or NO_EFFECTS)
    line.drop_log_above, line.closed, line.clears_requests = plan.latest, (), plan.is_new_head
    if not plan.is_new_head:
        line.asked, line.wake = (), run.state.wake
    _store(run, line, plan.store, effects or NO_EFFECTS, plan.remove)
    return len(plan.remove)


def drop(run: AnyRun) -> bool:
    is_stored = run.state.newest is not None
    if is_stored:
        run.remove()
    return is_stored
