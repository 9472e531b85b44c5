"""The folders of a store: which there are, where a run has its own, and who may write there."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stepwell.errors import StoreUnavailable
from stepwell.storage.permissions import OWNER_ONLY
from stepwell.storage.port import Entry
from stepwell.stores.files import layout
from stepwell.stores.files.layout import FORMAT, GONE, MARK, MARKS, NEW, TEMPORARY, Mark
from stepwell.stores.files.lock import hint_of, leave_hint, lock_folder, word_in, word_of, write_word
from stepwell.stores.files.run_folder import FolderCache, RunFolder, read_hint
from stepwell.stores.files.signals import Signals, signals_in

CACHED_RUNS = 1000  # a bound on what is kept in mind


class Folders:
    """Finds the folders below a root, and creates them at the first write."""

    def __init__(self, root: Path, mode: int = OWNER_ONLY) -> None:
        self.root = root
        self._mode = mode  # of files; a store that is there says it by its mark
        self._format: int | None = None  # of the mark of the root, once it was seen
        self._is_cleared = False  # of what killed writers have left of runs that are gone
        self._homes: dict[str, Path] = {}  # where runs were found; checked before use
        self._caches: dict[str, FolderCache] = {}  # what runs were like when we last held them; checked before use

    def check_mark(self) -> int | None:
        """The version of the format of the store, None if there is none. Raises if it is not one we know."""
        if self._format is None:
            try:
                version = layout.read(self.root / MARK, MARKS).format
                self._mode = stat.S_IMODE((self.root / MARK).stat().st_mode) & 0o666 | OWNER_ONLY
            except FileNotFoundError:
                self._refuse_other_folders()
                return None
            self._format = version
        return self._format

    def _refuse_other_folders(self) -> None:
        """A root without a mark must hold no folders: they are not ours, and would be read as workflows."""
        if self._workflows() and not (self.root / MARK).exists():  # another process may have made the store just now
            raise StoreUnavailable(
                f"{self.root} is not a store of Stepwell: it holds folders and no {MARK}; it was left as it is. "
                f"Name a new or an empty folder"
            )

    def find(self, run_id: str) -> Path | None:
        """The folder of a run."""
        home = self._homes.get(run_id)
        if home is not None and home.is_dir():
            return home
        name = layout.safe_name(run_id)
        if (self.root / NEW / name).is_dir():  # first: from there it may be moved to a workflow while we look
            return self.root / NEW / name
        for workflow in self._workflows():
            if (workflow / name).is_dir():
                self._homes[run_id] = workflow / name
                return workflow / name
        return None

    def runs(self, workflow: str | None, run_id: str | None) -> list[Path]:
        """The folders of all runs that match."""
        if run_id is not None:
            home = self.find(run_id)
            return [home] if home and (workflow is None or home.parent.name == layout.safe_name(workflow)) else []
        above = self._workflows() if workflow is None else [self.root / layout.safe_name(workflow)]
        return [run for folder in above if folder.is_dir() for run in sorted(folder.iterdir()) if run.is_dir()]

    @contextmanager
    def lock_run(self, run_id: str, *, create: bool) -> Iterator[RunFolder | None]:
        """The folder of a run, locked; None if there is none and none is to be created."""
        version = self.check_mark()
        if create if version is None else version < FORMAT:
            self._make_mark()
        if not self._is_cleared:
            self._clear()
        while True:
            folder = self.find(run_id) or (self._make(run_id) if create else None)
            if folder is None:
                yield None
                return
            with lock_folder(folder) as lock:
                if lock is not None:
                    cache = self._caches.pop(run_id, None)
                    if cache is not None and cache.is_still_so(folder, word_of(lock)):
                        run = RunFolder(folder, cache)
                    else:
                        run = RunFolder(folder, hinted=read_hint(folder, hint_of(lock)))
                    word = write_word(lock)
                    yield run
                    self._keep_in_mind(
                        run_id, run, lock, word
                    )  # not if something was raised: who knows what is so then
                    return

    def move(self, run: RunFolder, entry: Entry) -> None:
        """Bring a folder without records to the workflow of its first one."""
        folder, home = run.folder, self.root / layout.safe_name(entry.workflow) / layout.safe_name(entry.run_id)
        if folder != home:
            with lock_folder(self.root, self._mode):
                layout.make_folder(home.parent, self._mode)
                os.rename(folder, home)
                layout.sync_folder(home.parent)
                layout.sync_folder(folder.parent)
            self._homes[entry.run_id] = home
            run.note_move(home)

    def throw_away(self, run: RunFolder) -> None:
        """Delete a run with everything beside it: it is gone as soon as its folder has another name."""
        folder = run.folder
        with lock_folder(self.root, self._mode):
            layout.make_folder(self.root / GONE, self._mode)
            os.rename(folder, self.root / GONE / f"{folder.name[:60]}-{secrets.token_hex(8)}")
            layout.sync_folder(folder.parent)
        run.invalidate()
        self._clear()

    def tidy(self) -> None:
        """Delete what is left of runs that are gone, and the folders of workflows that have no runs any more."""
        if self.check_mark() is None:
            return
        self._clear()
        with lock_folder(self.root, self._mode):  # nobody brings a run to such a folder meanwhile
            for folder in self._workflows():
                with suppress(OSError):  # there is something in it
                    folder.rmdir()

    def signals(self, run_id: str, folder: Path) -> Signals:
        """The mail of a run. Needs no lock."""
        cache = self._caches.get(run_id)
        return cache.signals if cache and cache.is_still_so(folder, word_in(folder)) else signals_in(folder)

    def forget_caches(self) -> None:
        """Look everything up again."""
        self._caches.clear()

    def _clear(self) -> None:
        """Delete what is left of runs that are gone. Others may do the same meanwhile."""
        if (self.root / GONE).is_dir():
            for folder in (self.root / GONE).iterdir():
                shutil.rmtree(folder, ignore_errors=True)
        self._is_cleared = True

    def _keep_in_mind(self, run_id: str, run: RunFolder, lock: int, word: bytes) -> None:
        cache = None
        with suppress(OSError):  # what had to be written is written; to look it up again only costs time
            cache = run.make_cache(word)
            if cache is not None:
                leave_hint(lock, word, cache.hint)
        if cache is not None:
            if len(self._caches) >= CACHED_RUNS:
                self.forget_caches()
            self._caches[run_id] = cache

    def _workflows(self) -> list[Path]:
        try:
            with os.scandir(self.root) as entries:
                return sorted(Path(e.path) for e in entries if e.is_dir() and not e.name.startswith("."))
        except FileNotFoundError:
            return []

    def _make_mark(self) -> None:
        """Mark the root as a store of our format, before anything is written there that an older one cannot read."""
        layout.make_folder(self.root, self._mode)
        with lock_folder(self.root, self._mode):
            self._format = None  # again: another process may have been faster, and newer
            if (self.check_mark() or 0) < FORMAT:
                for half in self.root.glob(f"{TEMPORARY}*"):  # of one who was killed here
                    half.unlink()
                layout.write(self.root / MARK, Mark(FORMAT), mode=self._mode)
                self._format = FORMAT

    def _make(self, run_id: str) -> Path:
        with lock_folder(self.root, self._mode):  # so that no run ever gets two folders
            folder = self.find(run_id) or self.root / NEW / layout.safe_name(run_id)
            layout.make_folder(folder, self._mode)
        return folder
