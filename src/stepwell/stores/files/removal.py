"""Taking records out of a run in a directory, and whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stepwell.errors import CommitConflict
from stepwell.storage.port import CommitEffects, Entry, Record, follower_error, newest_error
from stepwell.stores.files import layout, open_page, superstep_log
from stepwell.stores.files.layout import LOCK, OWNER, StoredRecord
from stepwell.stores.files.lease import lease_in
from stepwell.stores.files.records import records_in
from stepwell.stores.files.run_folder import RunFolder


def remove(run: RunFolder, number: int, follower: Record | None, then: CommitEffects) -> bool:
    """Take a record out; `then` is what is open without it, if it is the newest."""
    run.sweep()
    stored = records_in(run.folder)
    if number not in stored:
        return False
    folder, entry = run.folder, layout.read_cover(stored[number]).entry
    after = layout.read_cover(stored[number + 1]) if number + 1 in stored else None
    if after is not None and follower is None and not after.is_snapshot:
        raise follower_error(entry.run_id, number)
    now = open_page.recover(run)
    origin = now.origin or run.cover().origin
    if len(stored) == 1:
        open_page.take_leave(folder, now)
    else:
        newest = layout.read_cover(stored[max(other for other in stored if other != number)])
        if newest.number < number:
            opened = now.anew(entry, then).beside(newest, origin)
            open_page.step_back(folder, stored[number], now, opened)
        else:
            open_page.rest(folder, now.beside(newest, origin))
    if after is not None and follower is not None:
        # in this order a crash in between leaves both records, and each can be read
        refuse_other_workflow(folder, follower.entry)
        replace(folder, stored[number + 1], layout.stored_record(follower, after.seq, origin))  # where it was in order
    stored[number].unlink()
    layout.sync_folder(folder)
    run.invalidate()
    left = run.newest()
    if left is None:
        discard(run)
    else:
        superstep_log.forget_after(folder, left.number)
    return True


def thin_out(run: RunFolder, numbers: Sequence[int], rewritten: Sequence[Record]) -> int:
    """Take many records out. Whenever a crash ends it, those that are there can be read."""
    run.sweep()
    stored = records_in(run.folder)
    going = sorted(set(numbers) & stored.keys(), reverse=True)
    if not going and not rewritten:
        return 0
    folder, newest = run.folder, layout.read_cover(stored[max(stored)])
    if newest.number in going:
        raise newest_error(newest.run_id, newest.number)
    replacements = {
        record.entry.number: record
        for record in rewritten
        if record.entry.number in stored and record.entry.number not in going
    }
    followed = {number: number + 1 for number in going if number + 1 in stored and number + 1 not in going}
    for number, after in followed.items():
        if after not in replacements and not layout.read_cover(stored[after]).is_snapshot:
            raise follower_error(newest.run_id, number)
    for record in replacements.values():
        refuse_other_workflow(folder, record.entry)
    now = open_page.recover(run)
    origin = now.origin or run.cover().origin
    open_page.rest(folder, now.beside(newest, origin))
    for number, record in replacements.items():  # first: from then on nothing that stays is based on what goes
        replace(folder, stored[number], layout.stored_record(record, layout.read_cover(stored[number]).seq, origin))
    for number in going:  # from the last one down: nothing that is still there is based on what is gone
        stored[number].unlink()
    layout.sync_folder(folder)
    run.invalidate()
    return len(going)


def replace(folder: Path, old: Path | None, stored: StoredRecord) -> Path:
    """Write a record and delete the file of its number, if that has another name. Its path."""
    path = folder / layout.record_name(stored.number, stored.checkpoint_id)
    layout.write(path, stored, stamp=stored.seq)
    if old is not None and old != path:
        old.unlink()
    return path


def discard(run: RunFolder) -> None:
    """Delete the folder of a run that has no records, unless someone holds a claim on it."""
    run.sweep()
    open_page.forget(run)
    stored = lease_in(run.folder)
    if stored is not None and stored.is_held():
        return
    (run.folder / OWNER).unlink(missing_ok=True)
    (run.folder / LOCK).unlink()  # who waits for it looks for the folder anew
    with suppress(OSError):  # or has made a new lock already, and goes on with an empty folder
        run.folder.rmdir()


def refuse_other_workflow(folder: Path, entry: Entry) -> None:
    if folder.parent.name != layout.safe_name(entry.workflow):
        raise CommitConflict(
            f"run {entry.run_id!r} belongs to the workflow in {folder.parent} and cannot go on as one of "
            f"{entry.workflow!r}; give the new run another id"
        )
