"""Removing records from a run, and whole runs."""

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
    """Remove a record; `then` is what is open without it, if it is the newest."""
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
    # What is open afterwards is announced before the record goes, as with a commit.
    if len(stored) == 1:
        open_page.announce_end(folder, now)
    else:
        newest = layout.read_cover(stored[max(other for other in stored if other != number)])
        if newest.number < number:
            opened = now.with_only(entry, then).with_origin(newest, origin)
            open_page.announce_removal(folder, stored[number], now, opened)
        else:
            open_page.settle(folder, now.with_origin(newest, origin))
    if after is not None and follower is not None:
        # First the follower: a crash in between leaves both records, and each can be read. It keeps
        # its sequence number, and so its position in the order of commits.
        refuse_other_workflow(folder, follower.entry)
        replace(folder, stored[number + 1], layout.stored_record(follower, after.seq, origin))
    stored[number].unlink()
    layout.sync_folder(folder)
    run.invalidate()
    left = run.newest()
    if left is None:
        discard(run)
    else:
        superstep_log.drop_log_after(folder, left.number)
    return True


def thin_out(run: RunFolder, numbers: Sequence[int], rewritten: Sequence[Record]) -> int:
    """Remove many records. Wherever a crash interrupts it, what is left can be read."""
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
    open_page.settle(folder, now.with_origin(newest, origin))
    # First the rewritten records: from then on nothing that stays is a delta to what goes.
    for number, record in replacements.items():
        replace(folder, stored[number], layout.stored_record(record, layout.read_cover(stored[number]).seq, origin))
    # Then from the newest down, so that no record is left whose base is gone.
    for number in going:
        stored[number].unlink()
    layout.sync_folder(folder)
    run.invalidate()
    return len(going)


def replace(folder: Path, old: Path | None, stored: StoredRecord) -> Path:
    """Write a record, delete the old file of its number if named otherwise; return the path."""
    path = folder / layout.record_name(stored.number, stored.checkpoint_id)
    layout.write(path, stored, stamp=stored.seq)
    if old is not None and old != path:
        old.unlink()
    return path


def discard(run: RunFolder) -> None:
    """Delete the folder of a run without records, unless a process holds its lease."""
    run.sweep()
    open_page.delete_side_files(run)
    stored = lease_in(run.folder)
    if stored is not None and stored.is_held():
        return
    (run.folder / OWNER).unlink(missing_ok=True)
    # A process that waits for this lock notices that it is gone, and looks for the folder again. It
    # may have created a new lock by now: then the folder is not empty, stays, and is used by it.
    (run.folder / LOCK).unlink()
    with suppress(OSError):
        run.folder.rmdir()


def refuse_other_workflow(folder: Path, entry: Entry) -> None:
    if folder.parent.name != layout.safe_name(entry.workflow):
        raise CommitConflict(
            f"run {entry.run_id!r} belongs to the workflow in {folder.parent} and cannot continue as a run of "
            f"{entry.workflow!r}; give the new run another id"
        )
