"""The folder of one run in the hands of who holds its lock, and what is still known of it the next time.

Listing a folder costs as much as the run is long. So a store that appends keeps in mind what the newest record is
and which mail there is, and relies on it as long as it can tell that nothing has changed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from . import file_layout as disk
from .file_layout import MAIL
from .file_mail import Letters, letters_in


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest record of a run."""

    number: int
    path: Path


@dataclass(frozen=True, slots=True)
class Known:
    """What was so of a run when its lock was last given back by this store."""

    word: bytes  # that was written into the lock
    touched: tuple[int, int]
    newest: Newest
    letters: Letters

    def is_still_so(self, folder: Path, word: bytes) -> bool:
        """Whether nobody has held the lock since, nor put files there or taken them away by hand."""
        return (
            word == self.word
            and folder == self.newest.path.parent
            and self.newest.path.exists()
            and _touched(folder) == self.touched
        )


class Run:
    """The folder of a run while its lock is held. What is not known of it is looked up."""

    def __init__(self, folder: Path, known: Known | None = None) -> None:
        self.folder = folder
        self._newest = known.newest if known else None
        self._letters = known.letters if known else None
        self._is_swept = known is not None  # who was killed here was here after us

    def newest(self) -> Newest | None:
        if self._newest is None:
            stored = disk.records_in(self.folder)
            self._newest = Newest(max(stored), stored[max(stored)]) if stored else None
        return self._newest

    def has_records(self) -> bool:
        return self._newest is not None or disk.has_records(self.folder)

    def letters(self) -> Letters:
        if self._letters is None:
            self._letters = letters_in(self.folder)
        return self._letters

    def sweep(self) -> None:
        """Delete what killed writers left."""
        if not self._is_swept:
            disk.sweep(self.folder)
            self._is_swept = True

    def appended(self, newest: Newest) -> None:
        """That record was added at the end."""
        self._newest = newest

    def changed(self) -> None:
        """Records or mail were changed in another way: nothing is known any more."""
        self._newest = self._letters = None
        self._is_swept = False

    def known(self, word: bytes) -> Known | None:
        """What may be kept in mind when the lock is given back, into which that word was written."""
        if self._newest is None or not self._is_swept or not word:
            return None
        return Known(word, _touched(self.folder), self._newest, self.letters())


def _touched(folder: Path) -> tuple[int, int]:
    """When the names in a run's folder and in that of its mail were last changed."""
    return _time_of(folder), _time_of(folder / MAIL)


def _time_of(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0
