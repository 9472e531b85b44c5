"""A disk that is full, or can only be read: for whatever Python writes below a folder."""

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

_MAKING = ("mkdir", "rename", "replace", "link", "symlink")  # by path; they need room for a name
_TAKING = ("unlink", "remove", "rmdir")  # by path; they need none
_FILLING = ("write", "pwrite", "fsync", "ftruncate")  # by handle
_NEW = os.O_CREAT
_WRITING = os.O_WRONLY | os.O_RDWR


class FailingDisk:
    """Inside `with FailingDisk(folder, at=3):` what is written below the folder fails from the third operation on.

    It fails as a full disk does, with ENOSPC: a file gets the first half of what is written to it, and nothing more.
    With `read_only` as one that can only be read, with EROFS: nothing can be deleted either. An operation is a file or
    a folder that is created, a write, a sync, a renaming or, with `read_only`, a deletion. With `once` only that one
    fails. `operations` counts; without `at` none fails. A sync that does not fail is not made: it would only take time.

    It works for what Python writes in this process, by `open` and `os`, from any thread: for the store of files, and
    for one of your own. One at a time in a process.
    """

    def __init__(
        self, folder: str | os.PathLike[str], at: int | None = None, *, read_only: bool = False, once: bool = False
    ) -> None:
        self._folder = os.path.abspath(folder)
        self._at, self._once, self._read_only = at, once, read_only
        self._lock = threading.Lock()
        self._real: dict[str, Callable[..., Any]] = {}
        self._real_open: Any = open
        self._files: dict[int, str] = {}  # open below the folder, by handle
        self.operations = 0
        self.failures = 0

    def __enter__(self) -> FailingDisk:
        names = (*_MAKING, *_FILLING, *(_TAKING if self._read_only else ()), "open", "close")
        self._real = {name: getattr(os, name) for name in names if hasattr(os, name)}  # Windows has no pwrite
        for name in (*_MAKING, *(_TAKING if self._read_only else ())):
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
        """One more operation. Raises OSError if it is one that fails."""
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
            if handle not in self._files or (name == "ftruncate" and not self._read_only):
                return real(handle, *args)
            self.meet(self._files[handle])
            return None if name == "fsync" else real(handle, *args)

        return call

    def _open(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if not self._is_below(path):
            return int(self._real["open"](path, flags, *args, **kwargs))
        creates = flags & _NEW and not os.path.exists(path)
        if creates or (self._read_only and flags & _WRITING):
            self.meet(os.fsdecode(path))
        handle = int(self._real["open"](path, flags, *args, **kwargs))
        self._files[handle] = os.fsdecode(path)
        return handle

    def _close(self, fd: int) -> None:
        self._files.pop(fd, None)
        self._real["close"](fd)

    def _open_file(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if set(mode) <= set("rbt") or not self._is_below(file):
            return self._real_open(file, mode, *args, **kwargs)
        opener = kwargs.pop("opener", None)
        if opener is None:  # else it opens the file by `os`, and that is the operation
            self.meet(os.fsdecode(file))
        raw = _File(self, file, mode.replace("b", "").replace("t", ""), opener)
        self._files[raw.fileno()] = os.fsdecode(file)
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, **kwargs)

    def forget(self, handle: int) -> None:
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
            if error.errno == errno.ENOSPC:
                super().write(memoryview(data)[: len(memoryview(data)) // 2])
            raise
        return super().write(data)

    def close(self) -> None:
        if not self.closed:
            self._disk.forget(self.fileno())
        super().close()
