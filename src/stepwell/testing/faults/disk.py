"""A full or read-only disk, simulated for everything that Python writes below a folder."""

from __future__ import annotations

import builtins
import errno
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

# Functions of `os`. The first two groups take a path, the third an open handle.
_MAKING = ("mkdir", "rename", "replace", "link", "symlink")  # need room for a directory entry
_TAKING = ("unlink", "remove", "rmdir")  # need no room, so they work on a full disk
_FILLING = ("write", "pwrite", "fsync", "ftruncate")
_WRITING = os.O_WRONLY | os.O_RDWR


class FailingDisk:
    """A failing disk: `with FailingDisk(folder, at=3):` fails from the third operation on.

    It fails like a full disk, with ENOSPC: a file gets the first half of what is written to it. With
    `read_only` it fails like a read-only disk, with EROFS, and files cannot be deleted either. An
    operation is the creation of a file or folder, a write, a sync, a rename or, with `read_only`, a
    deletion. With `once` only operation `at` fails; without `at` none does. `operations` and `failures`
    count. A sync that does not fail is skipped, to save time.

    It affects what Python writes in this process with `open` and `os`, from any thread: the file store,
    and a store of your own. Only one may be active in a process.
    """

    def __init__(
        self, folder: str | os.PathLike[str], at: int | None = None, *, read_only: bool = False, once: bool = False
    ) -> None:
        self._folder = os.path.abspath(folder)
        self._at, self._once, self._read_only = at, once, read_only
        self._lock = threading.Lock()
        self._real: dict[str, Callable[..., Any]] = {}
        self._real_open: Any = open
        self._files: dict[int, str] = {}  # open files below the folder, by handle
        self.operations = 0
        self.failures = 0

    def __enter__(self) -> FailingDisk:
        by_path = (*_MAKING, *_TAKING) if self._read_only else _MAKING
        names = (*by_path, *_FILLING, "open", "close")
        self._real = {name: getattr(os, name) for name in names if hasattr(os, name)}  # Windows has no pwrite
        for name in by_path:
            setattr(os, name, self._by_path(self._real[name]))
        for name in self._real.keys() & set(_FILLING):
            setattr(os, name, self._by_handle(name, self._real[name]))
        os.open, os.close = self._open, self._close
        self._real_open, builtins.open = builtins.open, self._open_file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        builtins.open = self._real_open
        for name, real in self._real.items():
            setattr(os, name, real)

    def meet(self, path: str) -> None:
        """Count an operation; raise OSError if it is one that fails."""
        with self._lock:
            self.operations += 1
            fails = self._at is not None and (
                self.operations == self._at if self._once else self.operations >= self._at
            )
            self.failures += fails
        if fails:
            code = errno.EROFS if self._read_only else errno.ENOSPC
            raise OSError(code, os.strerror(code), path)

    def _is_below(self, path: Any) -> bool:
        if isinstance(path, int):
            return path in self._files
        return Path(os.path.abspath(os.fsdecode(path))).is_relative_to(self._folder)

    def _by_path(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_below(path):
                self.meet(os.fsdecode(path))
            return real(path, *args, **kwargs)

        return call

    def _by_handle(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(handle: int, *args: Any) -> Any:
            # A full disk can still truncate a file.
            if handle not in self._files or (name == "ftruncate" and not self._read_only):
                return real(handle, *args)
            try:
                self.meet(self._files[handle])
            except OSError as error:
                # A full disk takes what fits, so a store must cope with a write that is cut off.
                if name in ("write", "pwrite") and error.errno == errno.ENOSPC:
                    real(handle, args[0][: len(args[0]) // 2], *args[1:])
                raise
            return None if name == "fsync" else real(handle, *args)

        return call

    def _open(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if not self._is_below(path):
            return int(self._real["open"](path, flags, *args, **kwargs))
        creates = flags & os.O_CREAT and not os.path.exists(path)
        if creates or (self._read_only and flags & _WRITING):
            self.meet(os.fsdecode(path))
        handle = int(self._real["open"](path, flags, *args, **kwargs))
        self._files[handle] = os.fsdecode(path)
        return handle

    def _close(self, fd: int) -> None:
        self.forget(fd)
        self._real["close"](fd)

    def _open_file(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if set(mode) <= set("rbt") or not self._is_below(file):
            return self._real_open(file, mode, *args, **kwargs)
        opener = kwargs.pop("opener", None)
        if opener is None:  # an opener calls `os.open`, which counts the operation
            self.meet(os.fsdecode(file))
        raw = _File(self, file, mode.replace("b", "").replace("t", ""), opener)
        self._files[raw.fileno()] = os.fsdecode(file)
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, **kwargs)

    def forget(self, handle: int) -> None:
        """Note that a handle is closed: its number may be reused for another file."""
        self._files.pop(handle, None)


class _File(io.FileIO):
    """A file on a failing disk."""

    def __init__(self, disk: FailingDisk, path: Any, mode: str, opener: Any) -> None:
        super().__init__(path, mode, opener=opener)
        self._disk = disk

    def write(self, data: Any) -> int:
        try:
            self._disk.meet(str(self.name))
        except OSError as error:
            # As in `os.write`.
            if error.errno == errno.ENOSPC:
                super().write(memoryview(data)[: len(memoryview(data)) // 2])
            raise
        return super().write(data)

    def close(self) -> None:
        if not self.closed:
            self._disk.forget(self.fileno())
        super().close()
