"""What is read from the file of a run, and what each transaction checks and writes there.

All checks come before the first change: a transaction that is refused must leave no trace.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from stepwell.storage.conflicts import (
    check_chain,
    check_fence,
    check_follows,
    check_workflow,
    follower_error,
    newest_error,
)
from stepwell.storage.lease import Owner
from stepwell.storage.stored_values import CommitEffects, Entry, LogRow, OpenedRun, Record, SignalRow
from stepwell.stores.files.lines import Acquire, Commit, LogEntry, Signal, State
from stepwell.stores.files.run_file import RunFile, lease_text

# -------------------------------------------------------------------- reading


def read_chain(run: RunFile, number: int | None = None) -> list[Record]:
    """Return the last snapshot at or before that number (None: the newest) and every record up to it."""
    newest = run.state.newest
    if newest is None:
        return []
    if number is None:
        number = newest.number
    for start in (run.state.snapshot, 0):
        run.index(start)
        chain = [number] if number in run.records else []
        while chain and not run.records[chain[-1]].entry.is_snapshot and chain[-1] - 1 in run.records:
            chain.append(chain[-1] - 1)
        if chain and run.records[chain[-1]].entry.is_snapshot:
            return [run.read_record(n) for n in reversed(chain)]
    run.check_complete()
    if number in run.records:
        stored = sorted(n for n in run.records if n <= number)
        snapshots = [n for n in stored if run.records[n].entry.is_snapshot]
        first = snapshots[-1] if snapshots else stored[0]
        check_chain(run.run_id, number, [run.read_record(n) for n in stored if n >= first])
    return []


def read_history(run: RunFile, after: int, upto: int | None, *, outputs_only: bool) -> list[Record]:
    """Return the records past `after`, up to and including `upto`, oldest first."""
    newest = run.state.newest
    last = -1 if newest is None else newest.number if upto is None else min(upto, newest.number)
    if last <= after:
        return []
    run.index(run.state.snapshot)
    known_outputs = sum(stored.entry.outputs for stored in run.records.values())
    if after + 1 < min(run.records, default=0) and not (outputs_only and known_outputs == run.state.outputs):
        run.index()
    numbers = sorted(n for n in run.records if after < n <= last)
    if len(numbers) < last - max(after, -1):
        run.check_complete()
    return [run.read_record(n) for n in numbers if run.records[n].entry.outputs or not outputs_only]


def read_log(run: RunFile) -> list[LogRow]:
    return [
        LogRow(place, key, run.read_body(body, f"log entry {key!r}"))
        for place, entries in run.state.log.items()
        for key, body in entries.items()
    ]


def read_signals(run: RunFile) -> list[SignalRow]:
    """Return the signals that are not consumed, oldest first."""
    return [SignalRow(key, run.read_body(body, f"signal {key!r}")) for key, body in run.state.signals.items()]


def read_entries(run: RunFile, at_least: int | None = None) -> list[Entry]:
    """Return the entries of all records; of the newest ones, if these are enough."""
    run.index(run.state.snapshot)
    if at_least is None or len(run.records) < at_least:
        run.index()
        run.check_complete()
    return [stored.entry for stored in run.records.values()]


def find_entry(run: RunFile, number: int) -> Entry | None:
    run.index(run.state.snapshot)
    if number not in run.records:
        run.index()
        if number not in run.records:
            run.check_complete()
            return None
    return run.records[number].entry


# -------------------------------------------------------------------- a drive


def append(run: RunFile, record: Record, effects: CommitEffects) -> None:
    entry, state = record.entry, run.state
    check_fence(run.run_id, effects.fence, state.fence)
    check_follows(entry, -1 if state.newest is None else state.newest.number)
    check_workflow(entry, state.workflow or entry.workflow)
    line = _commit_line(state, entry, effects)
    if effects.reduced or _drops(run, effects.drop_below):
        _write_anew(run, {entry.number: record}, line, effects)
    else:
        run.put(line, record.body)


def open_run(run: RunFile, owner: Owner | None, seconds: float) -> OpenedRun:
    if owner is not None:
        _check_not_busy(run, owner)
    # Read before the lease is given: nobody gets one with an error.
    records, log, signals = read_chain(run), read_log(run), read_signals(run)
    fence = None if owner is None else acquire(run, owner, seconds)
    return OpenedRun(records, log, signals, fence)


def write_log(run: RunFile, place: int, key: str, body: bytes, fence: int | None) -> bool:
    check_fence(run.run_id, fence, run.state.fence)
    if key in run.state.log.get(place, {}):
        return False
    run.put(LogEntry(place=place, key=key), body)
    return True


def send(run: RunFile, key: str, body: bytes) -> bool:
    if key in run.state.used_keys:
        return False
    run.put(Signal(key=key), body)
    return True


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


def _commit_line(state: State, entry: Entry, effects: CommitEffects) -> Commit:
    return Commit(
        entry=entry,
        drop_log_through=effects.drop_log_through,
        consumed=effects.consumed,
        closed=effects.closed,
        asked=effects.asked,
        wake=effects.wake,
        metadata=effects.metadata,
        release=effects.release and effects.fence == state.fence,
    )


def _drops(run: RunFile, below: int | None) -> bool:
    """Return whether there are records to drop before a number."""
    if below is None or run.state.newest is None:
        return False
    run.index()
    return any(number < below and not stored.entry.outputs for number, stored in run.records.items())


# -------------------------------------------------------------------- maintenance


def rewrite(
    run: RunFile, insert: Record | None, replace: Sequence[Record], remove: Sequence[int], effects: CommitEffects | None
) -> int:
    state = run.state
    if insert is None and state.newest is None:
        return 0
    run.index()
    run.check_complete()
    going = {number for number in remove if number in run.records}
    changed = {r.entry.number: r for r in replace if r.entry.number in run.records and r.entry.number not in going}
    if insert is not None:
        changed[insert.entry.number] = insert
    check_fence(run.run_id, None if effects is None else effects.fence, state.fence)
    _check_removal(run, going, changed, head_may_go=effects is not None)
    for record in changed.values():
        check_workflow(record.entry, state.workflow or record.entry.workflow)
    before = -1 if state.newest is None else state.newest.number
    latest = max([*(run.records.keys() - going), *changed], default=-1)
    is_moved = before in going or (insert is not None and insert.entry.number == latest)
    line = _rewrite_line(state, insert, effects, is_moved=is_moved)
    if insert is not None and before < latest and not going and changed.keys() == {latest} and not state.log:
        if effects is None or not (effects.reduced or _drops(run, effects.drop_below)):
            run.put(line, insert.body)
            return 0
    if going or changed or effects is not None:
        run.flush()  # what comes now is written to another file
        state.drop_log(above=latest)
        _write_anew(run, changed, line, effects, going)
    return len(going)


def drop(run: RunFile) -> bool:
    if run.state.newest is None:
        return False
    run.remove()
    return True


def compact(run: RunFile) -> int:
    """Write the file anew if a quarter of it is not needed any more; return by how much it shrank."""
    run.index()
    needed = sum(stored.body.offset + stored.body.size - stored.start for stored in run.records.values())
    size = run.end
    if run.state.newest is None or run.is_damaged or size - needed < size / 4:
        return 0
    numbers = sorted(run.records)
    run.write_anew(run.read_record(number) for number in numbers)
    return size - os.stat(run.path).st_size


def _rewrite_line(state: State, insert: Record | None, effects: CommitEffects | None, *, is_moved: bool) -> Commit:
    """Return what a rewrite does beside the records, as the line of a commit."""
    entry = state.newest if insert is None else insert.entry
    assert entry is not None
    line = _commit_line(state, entry, effects or CommitEffects())
    line.closed, line.release = (), False
    if effects is not None and is_moved:
        line.clears_requests = True
    else:
        line.asked, line.wake = (), state.wake
    return line


def _check_removal(run: RunFile, going: set[int], changed: Mapping[int, Record], *, head_may_go: bool) -> None:
    newest = run.state.newest
    if newest is not None and newest.number in going and not head_may_go:
        raise newest_error(run.run_id, newest.number)
    for number in going:
        after = run.records.get(number + 1)
        if after is not None and number + 1 not in going | changed.keys() and not after.entry.is_snapshot:
            raise follower_error(run.run_id, number)


def _write_anew(
    run: RunFile,
    changed: Mapping[int, Record],
    line: Commit,
    effects: CommitEffects | None,
    going: Collection[int] = (),
) -> None:
    """Write the file anew, with records changed and removed, and what a commit does beside them."""
    run.flush()
    run.index()
    run.check_complete()
    run.state.apply_effects(line)
    entries = {number: stored.entry for number, stored in run.records.items() if number not in going}
    entries |= {number: record.entry for number, record in changed.items()}
    new = dict(changed)
    if effects is not None:
        new |= {record.entry.number: record for record in effects.reduced if record.entry.number in entries}
        entries |= {number: record.entry for number, record in new.items()}
        below = effects.drop_below or 0
        entries = {number: entry for number, entry in entries.items() if number >= below or entry.outputs}
    if entries:
        run.write_anew(new.get(number) or run.read_record(number) for number in sorted(entries))
    elif run.read_lease() is None:
        run.remove()
    else:  # nothing stays but the lease
        run.state = State(owner=run.state.owner, until=run.state.until, fence=run.state.fence)
        run.write_anew([])
