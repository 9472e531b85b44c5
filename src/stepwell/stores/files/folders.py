"""The folders of a store: where each run has its own, and the lock that allows writing there."""

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
from stepwell.stores.files.lock import hint_of, leave_hint, lock_folder, token_in, token_of, write_token
from stepwell.stores.files.run_folder import FolderCache, RunFolder, read_hint
from stepwell.stores.files.signals import Signals, signals_in

CACHED_RUNS = 1000  # runs of which the cache is kept in memory


class Folders:
    """Finds the folders below a root, and creates them at the first write."""

    def __init__(self, root: Path, mode: int = OWNER_ONLY) -> None:
        self.root = root
        self._mode = mode  # of files; for an existing store, the mode of its mark replaces it
        self._format: int | None = None  # of the mark of the root, once it was read
        self._is_clean = False  # the remains of deleted runs are gone
        self._homes: dict[str, Path] = {}  # where runs were found; checked before use
        self._caches: dict[str, FolderCache] = {}  # by run; checked before use

    def check_mark(self) -> int | None:
        """Return the format of the store; None if there is no store.

        Raises if the format is unknown.
        """
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
        """Refuse a root with folders and no mark: they would be read as workflows."""
        # Look for the mark again: another process may have created the store just now.
        if self._workflows() and not (self.root / MARK).exists():
            raise StoreUnavailable(
                f"{self.root} is not a Stepwell store: it contains folders and no {MARK}. Nothing was changed; "
                f"choose a new or an empty folder"
            )

    def find(self, run_id: str) -> Path | None:
        """Return the folder of a run, if it has one."""
        home = self._homes.get(run_id)
        if home is not None and home.is_dir():
            return home
        name = layout.safe_name(run_id)
        # New runs first: one may be moved to its workflow while we look, never back.
        if (self.root / NEW / name).is_dir():
            return self.root / NEW / name
        for workflow in self._workflows():
            if (workflow / name).is_dir():
                self._homes[run_id] = workflow / name
                return workflow / name
        return None

    def runs(self, workflow: str | None, run_id: str | None) -> list[Path]:
        """Return the folders of all runs that match."""
        if run_id is not None:
            home = self.find(run_id)
            return [home] if home and (workflow is None or home.parent.name == layout.safe_name(workflow)) else []
        above = self._workflows() if workflow is None else [self.root / layout.safe_name(workflow)]
        return [run for folder in above if folder.is_dir() for run in sorted(folder.iterdir()) if run.is_dir()]

    @contextmanager
    def lock_run(self, run_id: str, *, create: bool) -> Iterator[RunFolder | None]:
        """Lock and yield the folder of a run; None if there is none and `create` is false."""
        version = self.check_mark()
        if create if version is None else version < FORMAT:
            self._make_mark()
        if not self._is_clean:
            self._delete_dropped()
        while True:
            folder = self.find(run_id) or (self._make(run_id) if create else None)
            if folder is None:
                yield None
                return
            with lock_folder(folder) as lock:
                if lock is not None:
                    cache = self._caches.pop(run_id, None)
                    if cache is not None and cache.is_current(folder, token_of(lock)):
                        run = RunFolder(folder, cache)
                    else:
                        run = RunFolder(folder, hinted=read_hint(folder, hint_of(lock)))
                    # Before any change: from now on no cache may be trusted.
                    token = write_token(lock)
                    yield run
                    # Not in a `finally`: after an exception nobody knows what was written.
                    self._store_cache(run_id, run, lock, token)
                    return

    def move(self, run: RunFolder, entry: Entry) -> None:
        """Move a folder without records to the workflow of its first record."""
        folder, home = run.folder, self.root / layout.safe_name(entry.workflow) / layout.safe_name(entry.run_id)
        if folder != home:
            with lock_folder(self.root, self._mode):
                layout.make_folder(home.parent, self._mode)
                os.rename(folder, home)
                layout.sync_folder(home.parent)
                layout.sync_folder(folder.parent)
            self._homes[entry.run_id] = home
            run.note_move(home)

    def delete(self, run: RunFolder) -> None:
        """Delete a run with everything in its folder; it is gone once the folder is renamed."""
        folder = run.folder
        with lock_folder(self.root, self._mode):
            layout.make_folder(self.root / GONE, self._mode)
            os.rename(folder, self.root / GONE / f"{folder.name[:60]}-{secrets.token_hex(8)}")
            layout.sync_folder(folder.parent)
        run.invalidate()
        self._delete_dropped()

    def tidy(self) -> None:
        """Delete the remains of deleted runs, and the folders of workflows without runs."""
        if self.check_mark() is None:
            return
        self._delete_dropped()
        with lock_folder(self.root, self._mode):  # nobody moves a run to such a folder meanwhile
            for folder in self._workflows():
                with suppress(OSError):  # it is not empty
                    folder.rmdir()

    def signals(self, run_id: str, folder: Path) -> Signals:
        """Return the signals of a run. Needs no lock."""
        cache = self._caches.get(run_id)
        return cache.signals if cache and cache.is_current(folder, token_in(folder)) else signals_in(folder)

    def forget_caches(self) -> None:
        """Forget all caches, so that everything is read again."""
        self._caches.clear()

    def _delete_dropped(self) -> None:
        """Delete the remains of deleted runs. Other processes may do the same meanwhile."""
        if (self.root / GONE).is_dir():
            for folder in (self.root / GONE).iterdir():
                shutil.rmtree(folder, ignore_errors=True)
        self._is_clean = True

    def _store_cache(self, run_id: str, run: RunFolder, lock: int, token: bytes) -> None:
        cache = None
        # The write is complete; without a cache, the next one only takes longer.
        with suppress(OSError):
            cache = run.make_cache(token)
            if cache is not None:
                leave_hint(lock, token, cache.hint)
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
        """Mark the root as a store of our format, before anything else is written there."""
        layout.make_folder(self.root, self._mode)
        with lock_folder(self.root, self._mode):
            self._format = None  # check again: another process, perhaps a newer one, was faster
            if (self.check_mark() or 0) < FORMAT:
                # Left by a process that was killed here.
                for half in self.root.glob(f"{TEMPORARY}*"):
                    half.unlink()
                layout.write(self.root / MARK, Mark(FORMAT), mode=self._mode)
                self._format = FORMAT

    def _make(self, run_id: str) -> Path:
        # Otherwise two processes could give a run two folders.
        with lock_folder(self.root, self._mode):
            folder = self.find(run_id) or self.root / NEW / layout.safe_name(run_id)
            layout.make_folder(folder, self._mode)
        return folder
