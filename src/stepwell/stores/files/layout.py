"""The names of the files and folders of a store, and the mark that makes a directory one.

    <root>/stepwell.json                             the mark, with the format of the store
    <root>/runs/3f/refund-3~a80091c28d5eb.jsonl      the log of run refund-3
    <root>/runs/3f/refund-3~a80091c28d5eb.part       the same while it is written anew

The digits are the hash of the run id that checkpoint ids contain too, so both lead to the file.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from stepwell.errors import CheckpointCorrupt, NewerFormat, StoreUnavailable
from stepwell.storage.ids import run_hash
from stepwell.storage.permissions import OWNER_ONLY, create, folder_mode, make_one_folder
from stepwell.storage.posix import sync_folder
from stepwell.stores.files.lines import FORMAT

MARK, RUNS = "stepwell.json", "runs"
_DIGITS, _FOLDER_DIGITS = 15, 2  # of the hash, and how many of them name the folder
_RUN_NAME = re.compile(r".*~[0-9a-f]{13}\.jsonl")


class _Mark(msgspec.Struct):
    format: int


_decode_mark = msgspec.json.Decoder(_Mark).decode


def run_name(run_id: str) -> str:
    """Return the name of a run's file, with its folder: never hidden, never a path elsewhere."""
    digits = f"{run_hash(run_id):0{_DIGITS}x}"
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", run_id)[:60]
    return f"{digits[:_FOLDER_DIGITS]}/{readable}~{digits[_FOLDER_DIGITS:]}.jsonl"


class Layout:
    """The folder of a store. Nothing is created before the first write."""

    def __init__(self, root: Path, mode: int = OWNER_ONLY) -> None:
        self.root, self._runs = root, root / RUNS
        self._mode = mode  # of files; in an existing store, that of its mark
        self._format: int | None = None  # of the store, once its mark was read

    def run_path(self, run_id: str) -> Path:
        return self._runs / run_name(run_id)

    def paths(self, hashed: int | None = None) -> Iterator[Path]:
        """Yield the files of all runs, or of those with that hash."""
        digits = None if hashed is None else f"{hashed:0{_DIGITS}x}"
        folders = sorted(_list(self._runs)) if digits is None else [digits[:_FOLDER_DIGITS]]
        ending = "" if digits is None else f"~{digits[_FOLDER_DIGITS:]}.jsonl"
        for folder in folders:
            for name in sorted(_list(self._runs / folder)):
                if _RUN_NAME.fullmatch(name) and name.endswith(ending):
                    yield self._runs / folder / name

    def check(self) -> None:
        """Raise unless this is a store that this Stepwell knows, or there is none yet."""
        if self._format is None:
            self._format = read_mark(self.root)
            if self._format is not None:
                self._mode = stat.S_IMODE((self.root / MARK).stat().st_mode) & 0o666 | OWNER_ONLY
            elif any(entry.is_dir() for entry in self._entries()) and not (self.root / MARK).exists():
                raise StoreUnavailable(
                    f"{self.root} is not a Stepwell store: it contains folders and no {MARK}. Nothing was changed; "
                    f"choose a new or an empty folder"
                )

    def mark(self) -> None:
        """Make the root a store of our format, before anything else is written there."""
        self.check()
        if self._format is None or self._format < FORMAT:
            _make_folder(self.root, self._mode)
            part = self.root / f".{MARK}-{secrets.token_hex(4)}"
            handle = create(part, os.O_WRONLY, self._mode)
            try:
                os.write(handle, b'{"format": %d}\n' % FORMAT)
                os.fsync(handle)
                os.replace(part, self.root / MARK)
            except BaseException:
                with suppress(OSError):
                    os.unlink(part)
                raise
            finally:
                os.close(handle)
            sync_folder(self.root)
            self._format = FORMAT

    def make_folder(self, path: Path) -> int:
        """Create the folder of a run's file; return the mode for the file."""
        if not self.root.is_dir():
            self._format = None  # it was deleted since we looked
        self.mark()
        _make_folder(path.parent, self._mode)
        return self._mode

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root) as entries:
                return [entry for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []


def read_mark(root: Path) -> int | None:
    """Return the format of a store; None if there is no store.

    Raises NewerFormat if it is unknown here, and CheckpointCorrupt if the mark is damaged.
    """
    path = root / MARK
    try:
        stored = _decode_mark(path.read_bytes()).format
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise CheckpointCorrupt(f"{path} is damaged: {str(error)[:200]}; restore it from a backup") from None
    if stored > FORMAT:
        raise NewerFormat(
            f"{path} was written by a newer Stepwell (format {stored}, this one knows {FORMAT}) and is unchanged; "
            f"upgrade Stepwell to use it"
        )
    if stored < 1:
        raise CheckpointCorrupt(f"{path} is damaged: there is no format {stored}; restore it from a backup")
    return stored


def _list(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _make_folder(folder: Path, mode: int) -> None:
    """Create a folder for files of that mode, and the folders above it, durably."""
    if folder.is_dir():
        return
    _make_folder(folder.parent, mode)
    with suppress(FileExistsError):  # another process was faster; if it is a file, the next use fails
        make_one_folder(folder, folder_mode(mode))
    sync_folder(folder.parent)
