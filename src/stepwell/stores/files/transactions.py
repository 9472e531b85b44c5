"""What is read from the file of a run, and what each transaction checks and writes there.

All checks come before the first change: a transaction that is refused must leave no trace.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from stepwell.storage.conflicts import check_chain, check_fence, check_follows, check_workflow
from stepwell.storage.lease import Owner
from stepwell.storage.rewrite_plan import plan_rewrite
from stepwell.storage.stored_values import NO_EFFECTS, CommitEffects, Entry, LogRow, OpenedRun, Record, SignalRow
from stepwell.stores.files.lines import Acquire, CommitLine, LogWrite, Signal, State
from stepwell.stores.files.run_file import RunFile, lease_text

_LINE = 350  # bytes of a commit beside its body, about

# -------------------------------------------------------------------- reading


def read_chain(run: RunFile, number: int | None = None) -> list[Record]:
    """Return the last snapshot at or before that number (None: the newest) and every record up to it."""
    newest = run.state.newest
    if newest is None:
        return []
    last = newest.number if number is None else number
    for lowest in (last, 0):  # most chains begin at the newest snapshot
        run.index(lowest)
        first = last
        while first in run.records and not run.records[first].entry.is_snapshot:
            first -= 1
        if first in run.records:
            return [run.read_record(n) for n in range(first, last + 1)]
    run.check_complete()
    if last in run.records:
        stored = sorted(n for n in run.records if n <= last)
        snapshots = [n for n in stored if run.records[n].entry.is_snapshot]
        check_chain(run.run_id, last, [run.read_record(n) for n in stored if n >= max(snapshots, default=0)])
    return []


def read_history(run: RunFile, after: int, upto: int | None, *, outputs_only: bool) -> list[Record]:
    """Return the records past `after`, up to and including `upto`, oldest first."""
    newest = -1 if run.state.newest is None else run.state.newest.number
    last = newest if upto is None else min(upto, newest)
    run.index(newest)
    if not outputs_only or sum(stored.entry.outputs for stored in run.records.values()) < run.state.outputs:
        run.index(after + 1)
    numbers = sorted(n for n in run.records if after < n <= last)
    if len(numbers) < last - after:
        run.check_complete()
    return [run.read_record(n) for n in numbers if run.records[n].entry.outputs or not outputs_only]


def read_entries(run: RunFile, at_least: int | None = None) -> list[Entry]:
    """Return the entries of all records, or of the newest ones, at least so many."""
    run.index(0 if run.state.newest is None else run.state.newest.number)
    if at_least is None or len(run.records) < at_least:
        run.index()
        run.check_complete()
    return [stored.entry for stored in run.records.values()]


def find_entry(run: RunFile, number: int) -> Entry | None:
    run.index(number)
    if number in run.records:
        return run.records[number].entry
    run.check_complete()
    return None


def read_signals(run: RunFile) -> list[SignalRow]:
    """Return the signals that are not consumed, oldest first."""
    return [SignalRow(key, run.read_body(body, f"signal {key!r}")) for key, body in run.state.signals.items()]


# -------------------------------------------------------------------- a drive


def open_run(run: RunFile, owner: Owner | None, seconds: float) -> OpenedRun:
    if owner is not None:
        _check_not_busy(run, owner)
    # Everything is read before the lease is given: nobody gets one with an error.
    records, signals = read_chain(run), read_signals(run)
    log = [
        LogRow(place, key, run.read_body(body, f"log entry {key!r}"))
        for place, entries in run.state.log.items()
        for key, body in entries.items()
    ]
    return OpenedRun(records, log, signals, None if owner is None else acquire(run, owner, seconds))


def append(run: RunFile, record: Record, effects: CommitEffects) -> None:
    entry, state = record.entry, run.state
    check_fence(run.run_id, effects.fence, state.fence)
    check_follows(entry, -1 if state.newest is None else state.newest.number)
    check_workflow(entry, state.workflow or entry.workflow)
    line = _commit_line(entry, effects)
    line.release = effects.release and effects.fence == state.fence
    _store(run, line, [record], effects)


def write_log(run: RunFile, place: int, key: str, body: bytes, fence: int | None) -> bool:
    check_fence(run.run_id, fence, run.state.fence)
    is_new = key not in run.state.log.get(place, {})
    if is_new:
        run.put(LogWrite(place=place, key=key), body)
    return is_new


def send(run: RunFile, key: str, body: bytes) -> bool:
    is_new = key not in run.state.used_keys
    if is_new:
        run.put(Signal(key=key), body)
    return is_new


def acquire(run: RunFile, owner: Owner, seconds: float) -> int:
    _check_not_busy(run, owner)
    run.put(Acquire(owner=owner, fence=run.state.fence + 1), lease_text(owner.clock() + seconds))
    return run.state.fence


def renew(run: RunFile, fence: int, seconds: float) -> None:
    lease = run.read_lease()
    # A released lease is not brought back, and that of another owner is left alone.
    if lease is not None and run.state.fence == fence:
        run.set_lease_end(lease.owner.clock() + seconds)


def release(run: RunFile, owner: Owner) -> None:
    lease, state = run.read_lease(), run.state
    if lease is not None and lease.owner == owner:
        run.set_lease_end(None)
        if state.newest is None and not (state.log or state.used_keys):
            run.remove()  # without records there is nothing to protect with a fence


def _check_not_busy(run: RunFile, owner: Owner) -> None:
    lease = run.read_lease()
    if lease is not None and lease.owner != owner and not lease.is_over():
        raise lease.busy_error(run.run_id)


def _commit_line(entry: Entry, effects: CommitEffects) -> CommitLine:
    return CommitLine(
        entry=entry,
        drop_log_through=effects.drop_log_through,
        consumed=effects.consumed,
        closed=effects.closed,
        asked=effects.asked,
        wake=effects.wake,
        metadata=effects.metadata,
    )


def _store(
    run: RunFile, line: CommitLine, records: Sequence[Record], effects: CommitEffects, going: Collection[int] = ()
) -> None:
    """Store records, with what a commit does beside them: as a line, or by writing the file anew."""
    newest, below = run.state.newest, effects.drop_below or 0
    if below:
        run.index()
    drops = any(number < below and not stored.entry.outputs for number, stored in run.records.items())
    is_next = newest is None or line.entry.number > newest.number
    if is_next and len(records) == 1 and not (going or drops or effects.reduced):
        run.put(line, records[0].body)
        return
    run.flush()  # what comes now is written to another file
    run.index()
    run.check_complete()
    run.state.apply_effects(line)
    entries = {number: stored.entry for number, stored in run.records.items() if number not in going}
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
    run: RunFile, insert: Record | None, replace: Sequence[Record], remove: Sequence[int], effects: CommitEffects | None
) -> int:
    run.index()
    run.check_complete()
    entry = run.state.newest if insert is None else insert.entry
    entries = {number: stored.entry for number, stored in run.records.items()}
    plan = plan_rewrite(
        run.run_id, entries, run.state.fence, insert=insert, replace=replace, remove=remove, effects=effects
    )
    if entry is None or not (plan.store or plan.remove or effects):
        return 0
    line = _commit_line(entry, effects or NO_EFFECTS)
    line.drop_log_above, line.closed, line.clears_requests = plan.latest, (), plan.is_new_head
    if not plan.is_new_head:
        line.asked, line.wake = (), run.state.wake
    _store(run, line, plan.store, effects or NO_EFFECTS, plan.remove)
    return len(plan.remove)


def drop(run: RunFile) -> bool:
    is_stored = run.state.newest is not None
    if is_stored:
        run.remove()
    return is_stored


def compact(run: RunFile) -> int:
    """Write the file anew if a quarter of it is not needed any more; return by how much it shrank."""
    run.index()
    run.check_complete()
    size, needed = run.end, sum(stored.body.size + _LINE for stored in run.records.values())
    if run.state.newest is None or size - needed < size / 4:
        return 0
    run.write_anew([run.read_record(number) for number in sorted(run.records)])
    return size - os.stat(run.path).st_size
