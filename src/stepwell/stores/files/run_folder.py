"""The folder of one run while its lock is held, and what is cached of it until the next time.

Listing a folder costs as much as the run is long. So a store that appends caches the newest record
and what is stored next to the records, and trusts the cache as long as it can tell that nothing has
changed. For other processes it leaves a hint in the lock: which record is the newest, valid until
somebody else writes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stepwell.storage.port import Record, fence_error
from stepwell.stores.files import layout
from stepwell.stores.files.layout import LOG_FOLDER, RECORD_NAME, REDUCED, SIGNALS_FOLDER, TEMPORARY, Cover, Origin
from stepwell.stores.files.lease import fence_in
from stepwell.stores.files.lock import hint_in
from stepwell.stores.files.open_state import Open
from stepwell.stores.files.records import StoredRecords, has_records, records_in
from stepwell.stores.files.signals import Signals, signals_in
from stepwell.stores.files.superstep_log import drop_log_after, items_at


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest record of a run."""

    number: int
    path: Path


@dataclass(frozen=True, slots=True)
class FolderCache:
    """What was true of a run when this store last released its lock. None means not looked up."""

    token: bytes  # that this store wrote into the lock
    changed_at: tuple[int, int]
    newest: Newest
    cover: Cover | None
    signals: Signals
    fence: int | None
    open: Open | None
    is_settled: bool
    keys: dict[int, set[str]]
    keys_at: int
    droppable: dict[int, Path] | None

    def is_current(self, folder: Path, token: bytes) -> bool:
        """Return whether nobody has held the lock since, or added or deleted files by hand."""
        return (
            token == self.token
            and folder == self.newest.path.parent
            and self.newest.path.exists()
            and _change_times(folder) == self.changed_at
        )

    @property
    def hint(self) -> str:
        """What other processes may use."""
        return f"{_boot()} {self.changed_at[0]} {self.newest.path.name}"


class RunFolder:
    """The folder of a run while its lock is held. What is not cached is looked up."""

    def __init__(self, folder: Path, cache: FolderCache | None = None, hinted: Newest | None = None) -> None:
        self.folder = folder
        self._newest = cache.newest if cache else hinted
        self._cover = cache.cover if cache else None
        self._signals = cache.signals if cache else None
        self._fence = cache.fence if cache else None
        self.open = cache.open if cache else None  # requests and wake-up time
        # `open` does not depend on any record.
        self.is_settled = cache.is_settled if cache else False
        self._keys = cache.keys if cache else {}  # keys in the superstep log, by place
        self._keys_at = cache.keys_at if cache else 0  # when the folder of the log last changed
        self._droppable = cache.droppable if cache else None  # the records without outputs
        # A cache or hint was left by a writer that finished, so no killed writer has to be cleaned
        # up after.
        self._is_swept = self._newest is not None

    def newest(self) -> Newest | None:
        if self._newest is None:
            stored = records_in(self.folder)
            self._newest = Newest(max(stored), stored[max(stored)]) if stored else None
        return self._newest

    def cover(self) -> Cover:
        """Return the cover of the newest record, which must exist."""
        newest = self.newest()
        assert newest is not None
        if self._cover is None:
            self._cover = layout.read_cover(newest.path)
        return self._cover

    def has_records(self) -> bool:
        return self._newest is not None or has_records(self.folder)

    def signals(self) -> Signals:
        if self._signals is None:
            self._signals = signals_in(self.folder)
        return self._signals

    def fence(self) -> int:
        """Return the fence of the last lease of the run."""
        if self._fence is None:
            self._fence = fence_in(self.folder)
        return self._fence

    def check_fence(self, run_id: str, fence: int | None) -> None:
        """Refuse a write under a lease that is no longer the last one."""
        if fence is not None and self.fence() > fence:
            raise fence_error(run_id, fence)

    def keys(self, place: int) -> set[str]:
        """Return the keys in the superstep log of a place. Code that adds to the log adds to them."""
        if self._keys_at and self._keys_at != _time_of(self.folder / LOG_FOLDER):  # changed by hand
            self._keys = {}
        self._keys_at = 0
        if place not in self._keys:
            self._keys[place] = {item.key for item in items_at(self.folder, place)}
        return self._keys[place]

    def sweep(self) -> None:
        """Delete what killed writers left.

        That is half-written files, records that were replaced or dropped, and the superstep log of
        places that no longer exist.
        """
        if self._is_swept:
            return
        _delete_partial_files(self.folder)
        records = StoredRecords(self.folder)
        self.install_reduced(0 if records.head is None else records.head.drop_below or 0)
        left_over = records.left_over()
        for path in left_over:
            path.unlink()
        if left_over:
            # Durably, before the record that dropped them can itself be replaced.
            layout.sync_folder(self.folder)
        if records.head is not None:
            drop_log_after(self.folder, records.head.number)
            self.forget_keys()
        self._is_swept = True

    def stage_reduced(self, reduced: Sequence[Record], origin: Origin) -> None:
        """Write the reduced forms of records next to them, before the commit that drops the rest.

        After a crash, those that the newest record has dropped are installed, and those staged for
        a commit that never came are deleted. So no record loses anything that the newest needs.
        """
        stored = records_in(self.folder) if reduced else {}
        for record in reduced:
            if record.entry.number in stored:
                path = stored[record.entry.number]
                seq = layout.read_cover(path).seq
                layout.write(_staged_path(path), layout.stored_record(record, seq, origin), stamp=seq, lasting=False)

    def install_reduced(self, below: int) -> None:
        """Install the staged forms of records before that number, and delete all others."""
        installed = False
        for name in os.listdir(self.folder):
            match = RECORD_NAME.fullmatch(name.removeprefix(REDUCED)) if name.startswith(REDUCED) else None
            if match is not None:
                staged, path = self.folder / name, self.folder / match[0]
                if int(match[1]) < below and path.exists():
                    os.replace(staged, path)
                    installed = True
                else:
                    staged.unlink()
        if installed:
            layout.sync_folder(self.folder)

    def drop_below(self, number: int) -> None:
        """Delete the records before that number, except those with outputs."""
        if self._droppable is None:
            covers = {path: layout.read_cover(path) for path in records_in(self.folder).values()}
            self._droppable = {cover.number: path for path, cover in covers.items() if not cover.outputs}
        for each in [
            each for each in self._droppable if each < number and self._droppable[each] != self._newest_path()
        ]:
            self._droppable.pop(each).unlink(missing_ok=True)

    def note_append(self, path: Path, cover: Cover) -> None:
        """Note that a record was appended."""
        self._newest, self._cover = Newest(cover.number, path), cover
        if self._droppable is not None and not cover.outputs:
            self._droppable[cover.number] = path

    def note_open(self, open: Open, *, is_settled: bool) -> None:
        """Note what is open from now on."""
        self.open, self.is_settled = open, is_settled

    def note_fence(self, fence: int) -> None:
        """Note the fence of a new lease."""
        self._fence = fence

    def note_move(self, folder: Path) -> None:
        """Note that the run has another folder."""
        self.folder, self._signals = folder, None

    def forget_keys(self) -> None:
        """Note that log entries were deleted."""
        self._keys = {}

    def invalidate(self) -> None:
        """Forget everything: records or signals were changed in another way."""
        self._newest = self._cover = self._signals = self._fence = self.open = self._droppable = None
        self.is_settled = False
        self._keys = {}
        self._is_swept = False

    def make_cache(self, token: bytes) -> FolderCache | None:
        """Return what to cache when the lock is released; None if it could not be trusted later."""
        if self._newest is None or not self._is_swept or not token:
            return None
        keys_at = _time_of(self.folder / LOG_FOLDER) if self._keys else 0
        return FolderCache(
            token,
            _change_times(self.folder),
            newest=self._newest,
            cover=self._cover,
            signals=self.signals(),
            fence=self._fence,
            open=self.open,
            is_settled=self.is_settled,
            keys=self._keys,
            keys_at=keys_at,
            droppable=self._droppable,
        )

    def _newest_path(self) -> Path | None:
        newest = self.newest()
        return newest.path if newest else None


def _staged_path(path: Path) -> Path:
    return path.with_name(f"{REDUCED}{path.name}")


def newest_path(folder: Path) -> Path | None:
    """Return the file of the newest record.

    Needs no lock; lists the folder only without a valid hint.
    """
    newest = read_hint(folder, hint_in(folder))
    if newest is not None:
        return newest.path
    stored = records_in(folder)
    return stored[max(stored)] if stored else None


def read_hint(folder: Path, hint: str | None) -> Newest | None:
    """Return the newest record according to a hint; None if the hint cannot be trusted.

    One from before the last boot may have outlived changes that a power failure undid, and one
    from before the last change of the folder is outdated.
    """
    boot, changed_at, name = (hint or "").split(" ", 2) if (hint or "").count(" ") >= 2 else ("", "", "")
    match = RECORD_NAME.fullmatch(name)
    path = folder / name
    if not match or not boot or boot != _boot() or changed_at != str(_change_times(folder)[0]) or not path.exists():
        return None
    return Newest(int(match[1]), path)


def _delete_partial_files(folder: Path) -> None:
    stored = records_in(folder)
    names = set(stored.names.values())
    for name in os.listdir(folder):
        match = RECORD_NAME.fullmatch(name) if name not in names else None
        if match:
            # Raises if the newer file of this number is not a valid record: a file that somebody
            # put there by hand must not cost us the true one.
            layout.read_record(stored[int(match[1])])
        if match or name.startswith(TEMPORARY):
            (folder / name).unlink()
    for below in (folder / LOG_FOLDER, folder / SIGNALS_FOLDER):
        if below.is_dir():
            for name in os.listdir(below):
                if name.startswith(TEMPORARY):
                    (below / name).unlink()


def _change_times(folder: Path) -> tuple[int, int]:
    """Return when names in a run's folder, and in that of its signals, last changed."""
    return _time_of(folder), _time_of(folder / SIGNALS_FOLDER)


def _time_of(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0


@cache
def _boot() -> str:
    """Return the id of this boot.

    Locks are not synced, so their content means nothing after the next.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # unknown, so no hint is trusted
        return ""
