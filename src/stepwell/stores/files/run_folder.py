"""The folder of one run in the hands of who holds its lock, and what is still known of it the next time.

Listing a folder costs as much as the run is long. So a store that appends keeps in mind what the newest record is
and what lies beside it, and relies on it as long as it can tell that nothing has changed. For others it leaves a
hint in the lock: which record is the newest, as long as nobody has been there since.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stepwell.storage.port import Record, fence_error
from stepwell.stores.files import layout
from stepwell.stores.files.layout import MAIL, MEMORY, RECORD_NAME, REDUCED, TEMPORARY, Cover, Origin
from stepwell.stores.files.lease import fence_in
from stepwell.stores.files.lock import hint_in
from stepwell.stores.files.open_state import Open
from stepwell.stores.files.records import Stock, has_records, records_in
from stepwell.stores.files.signals import Signals, signals_in
from stepwell.stores.files.superstep_log import forget_after, items_at


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest record of a run."""

    number: int
    path: Path


@dataclass(frozen=True, slots=True)
class FolderCache:
    """What was so of a run when its lock was last given back by this store. What is None was not looked up."""

    word: bytes  # that was written into the lock
    changed_at: tuple[int, int]
    newest: Newest
    cover: Cover | None
    signals: Signals
    fence: int | None
    open: Open | None
    rests: bool
    keys: dict[int, set[str]]
    keys_at: int
    spare: dict[int, Path] | None

    def is_still_so(self, folder: Path, word: bytes) -> bool:
        """Whether nobody has held the lock since, nor put files there or taken them away by hand."""
        return (
            word == self.word
            and folder == self.newest.path.parent
            and self.newest.path.exists()
            and _change_times(folder) == self.changed_at
        )

    @property
    def hint(self) -> str:
        """What others may know."""
        return f"{_boot()} {self.changed_at[0]} {self.newest.path.name}"


class RunFolder:
    """The folder of a run while its lock is held. What is not known of it is looked up."""

    def __init__(self, folder: Path, cache: FolderCache | None = None, hinted: Newest | None = None) -> None:
        self.folder = folder
        self._newest = cache.newest if cache else hinted
        self._cover = cache.cover if cache else None
        self._signals = cache.signals if cache else None
        self._fence = cache.fence if cache else None
        self.open = cache.open if cache else None  # what is open
        self.rests = cache.rests if cache else False  # and that it is so whatever becomes of any record
        self._keys = cache.keys if cache else {}  # of what is remembered, by place
        self._keys_at = cache.keys_at if cache else 0  # when the memory was last changed
        self._spare = cache.spare if cache else None  # the records without outputs
        self._is_swept = self._newest is not None  # who left that had finished; nobody was killed here since

    def newest(self) -> Newest | None:
        if self._newest is None:
            stored = records_in(self.folder)
            self._newest = Newest(max(stored), stored[max(stored)]) if stored else None
        return self._newest

    def cover(self) -> Cover:
        """That of the newest record. Only if there is one."""
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
        """The number of the last claim on the run."""
        if self._fence is None:
            self._fence = fence_in(self.folder)
        return self._fence

    def refuse_late(self, run_id: str, fence: int | None) -> None:
        """Refuse whoever writes under a claim that is not the last one any more."""
        if fence is not None and self.fence() > fence:
            raise fence_error(run_id, fence)

    def keys(self, place: int) -> set[str]:
        """The keys of what is remembered at a place. Whoever adds to the memory adds to them."""
        if self._keys_at and self._keys_at != _time_of(self.folder / MEMORY):  # by hand
            self._keys = {}
        self._keys_at = 0
        if place not in self._keys:
            self._keys[place] = {item.key for item in items_at(self.folder, place)}
        return self._keys[place]

    def sweep(self) -> None:
        """Delete what killed writers left: half-written files, records that were replaced or were to go, and the memory
        of places that are no more."""
        if self._is_swept:
            return
        _delete_halves(self.folder)
        stock = Stock(self.folder)
        self.install_reduced(0 if stock.head is None else stock.head.drop_below or 0)
        left_over = stock.left_over()
        for path in left_over:
            path.unlink()
        if left_over:
            layout.sync_folder(self.folder)  # before the record that said so may go
        if stock.head is not None:
            forget_after(self.folder, stock.head.number)
            self.forget_keys()
        self._is_swept = True

    def stage_reduced(self, reduced: Sequence[Record], origin: Origin) -> None:
        """Write what will be kept of records beside them, before the commit that lets the rest go.

        After a crash, what the newest record has dropped is installed, and what was staged for a commit that never
        came is deleted. So no record loses anything that the newest is based on.
        """
        stored = records_in(self.folder) if reduced else {}
        for record in reduced:
            if record.entry.number in stored:
                path = stored[record.entry.number]
                seq = layout.read_cover(path).seq
                layout.write(_staged_path(path), layout.stored_record(record, seq, origin), stamp=seq, lasting=False)

    def install_reduced(self, below: int) -> None:
        """Put what is staged of records before that number in their places, and delete what else is staged."""
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
        if self._spare is None:
            covers = {path: layout.read_cover(path) for path in records_in(self.folder).values()}
            self._spare = {cover.number: path for path, cover in covers.items() if not cover.outputs}
        for each in [each for each in self._spare if each < number and self._spare[each] != self._newest_path()]:
            self._spare.pop(each).unlink(missing_ok=True)

    def note_append(self, path: Path, cover: Cover) -> None:
        """That record was added at the end."""
        self._newest, self._cover = Newest(cover.number, path), cover
        if self._spare is not None and not cover.outputs:
            self._spare[cover.number] = path

    def note_open(self, open: Open, *, rests: bool) -> None:
        """That is open from now on."""
        self.open, self.rests = open, rests

    def note_fence(self, fence: int) -> None:
        """Somebody has claimed the run."""
        self._fence = fence

    def note_move(self, folder: Path) -> None:
        """It has another folder now."""
        self.folder, self._signals = folder, None

    def forget_keys(self) -> None:
        """Something remembered was forgotten."""
        self._keys = {}

    def invalidate(self) -> None:
        """Records or mail were changed in another way: nothing is known any more."""
        self._newest = self._cover = self._signals = self._fence = self.open = self._spare = None
        self.rests = False
        self._keys = {}
        self._is_swept = False

    def make_cache(self, word: bytes) -> FolderCache | None:
        """What may be kept in mind when the lock is given back, into which that word was written."""
        if self._newest is None or not self._is_swept or not word:
            return None
        keys_at = _time_of(self.folder / MEMORY) if self._keys else 0
        return FolderCache(
            word,
            _change_times(self.folder),
            self._newest,
            self._cover,
            self.signals(),
            self._fence,
            self.open,
            self.rests,
            self._keys,
            keys_at,
            self._spare,
        )

    def _newest_path(self) -> Path | None:
        newest = self.newest()
        return newest.path if newest else None


def _staged_path(path: Path) -> Path:
    return path.with_name(f"{REDUCED}{path.name}")


def newest_path(folder: Path) -> Path | None:
    """The file of the newest record of a run. Needs no lock, and lists the folder only without a good hint."""
    newest = read_hint(folder, hint_in(folder))
    if newest is not None:
        return newest.path
    stored = records_in(folder)
    return stored[max(stored)] if stored else None


def read_hint(folder: Path, hint: str | None) -> Newest | None:
    """What a hint says, unless it is from before the machine was started or files were changed by hand since."""
    boot, changed_at, name = (hint or "").split(" ", 2) if (hint or "").count(" ") >= 2 else ("", "", "")
    match = RECORD_NAME.fullmatch(name)
    path = folder / name
    if not match or not boot or boot != _boot() or changed_at != str(_change_times(folder)[0]) or not path.exists():
        return None
    return Newest(int(match[1]), path)


def _delete_halves(folder: Path) -> None:
    stored = records_in(folder)
    names = set(stored.names.values())
    for name in os.listdir(folder):
        match = RECORD_NAME.fullmatch(name) if name not in names else None
        if match:
            layout.read_record(stored[int(match[1])])  # a file that somebody else put there must not cost the true one
        if match or name.startswith(TEMPORARY):
            (folder / name).unlink()
    for below in (folder / MEMORY, folder / MAIL):
        if below.is_dir():
            for name in os.listdir(below):
                if name.startswith(TEMPORARY):
                    (below / name).unlink()


def _change_times(folder: Path) -> tuple[int, int]:
    """When the names in a run's folder and in that of its mail were last changed."""
    return _time_of(folder), _time_of(folder / MAIL)


def _time_of(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0


@cache
def _boot() -> str:
    """When the machine was started, in its own words. What is in a lock does not survive a power failure in order."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # nobody can tell: no hint is as good as the list
        return ""
