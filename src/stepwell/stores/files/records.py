"""The records of runs, from the names of their files: which there are, which of them count, and in which order.

In a run the numbers tell the order of commits, unless records were put where they belong later on: then `open.json`
says so (see open_page).
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.port import Record
from stepwell.stores.files import layout
from stepwell.stores.files.layout import LOCK, OPEN, OWNER, RECORD_NAME, REDUCED, Cover

Order = tuple[int, str, int]


class RecordPaths(Mapping[int, Path]):
    """The record files of a run by number, lowest first, from their names alone."""

    def __init__(self, folder: Path, names: dict[int, str], staged: Collection[str] = ()) -> None:
        self._folder, self.names = folder, names
        self._staged = staged  # those whose reduced form lies beside them

    def __getitem__(self, number: int) -> Path:
        return self._folder / self.names[number]

    def staged_path(self, number: int) -> Path | None:
        """The file of what will be kept of a record, if there is one; see run_folder."""
        name = self.names[number]
        return self._folder / f"{REDUCED}{name}" if name in self._staged else None

    def __iter__(self) -> Iterator[int]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def records_in(folder: Path) -> RecordPaths:
    """The records of a run. Raises CheckpointCorrupt if a file has a name that tells nothing."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:  # the run is gone
        return RecordPaths(folder, {})
    by_number: dict[int, str] = {}
    for name in names:
        start = name.partition("-")[0]
        if name.endswith(".json") and len(start) >= 6 and start.isdecimal() and start != name:
            number = int(start)
            by_number[number] = _later(folder, by_number[number], name) if number in by_number else name
        elif name.endswith(".json") and name not in (OWNER, OPEN) and not name.startswith(".") and LOCK in names:
            raise CheckpointCorrupt(f"{folder / name} does not have the name of a record; move it elsewhere")
    staged = {name.removeprefix(REDUCED) for name in names if name.startswith(REDUCED)}
    return RecordPaths(folder, dict(sorted(by_number.items())), staged)


def has_records(folder: Path) -> bool:
    """Whether a run has any, found out without listing them all."""
    try:
        with os.scandir(folder) as entries:
            return any(RECORD_NAME.fullmatch(entry.name) for entry in entries)
    except FileNotFoundError:
        return False


def _later(folder: Path, first: str, second: str) -> str:
    """Of two files of one number, the one that was to replace the other when its writer was killed."""
    return max(first, second, key=lambda name: (folder / name).stat().st_mtime_ns)


class Stock:
    """The records of a run at one moment, as far as they count.

    A record may say that those before a number are gone. Their files are deleted after it was committed: what a killed
    writer has left of them does not count. Of those with outputs, what is to be kept may still lie beside them.
    """

    def __init__(self, folder: Path) -> None:
        self.paths = records_in(folder)

    @cached_property
    def head(self) -> Cover | None:
        return layout.read_cover(self.paths[max(self.paths)]) if self.paths else None

    def counts(self, cover: Cover) -> bool:
        if cover.outputs:
            return True
        try:
            head = self.head
        except CheckpointCorrupt:  # it cannot tell what it has dropped, and must not cost the rest
            return True
        if head is None or head.drop_below is None or cover.number >= head.drop_below:
            return True
        return cover.seq > head.seq  # it was put there since

    def covers(self) -> list[Cover]:
        return [cover for cover in map(layout.read_cover, map(self.path, self.paths)) if self.counts(cover)]

    def path(self, number: int) -> Path:
        """The file that holds the record of that number, as the newest record left it."""
        staged = self.paths.staged_path(number)
        if staged is None:
            return self.paths[number]
        dropped = self.head is not None and number < (self.head.drop_below or 0)
        return staged if dropped else self.paths[number]

    def left_over(self) -> list[Path]:
        """The files of records that do not count."""
        if self.head is None or self.head.drop_below is None:
            return []
        below = [path for number, path in self.paths.items() if number < self.head.drop_below]
        return [path for path in below if not self.counts(layout.read_cover(path))]

    def record(self, number: int) -> Record | None:
        """The record of that number, if there is one that counts."""
        if number not in self.paths:
            return None
        stored = layout.read_record(self.path(number))
        return stored.record if self.counts(stored) else None

    def backwards(self, *, shuffled: bool, before: Order | None = None) -> Iterator[Cover]:
        """The records committed before that, the last one first. `shuffled`: their numbers do not tell the order."""
        if shuffled:
            covers = sorted(self.covers(), key=lambda cover: cover.order, reverse=True)
            return (cover for cover in covers if before is None or cover.order < before)
        numbers = list(self.paths)
        if before is not None:
            numbers = numbers[: bisect_left(numbers, before, key=lambda n: layout.read_cover(self.paths[n]).order)]
        return filter(self.counts, (layout.read_cover(self.paths[number]) for number in reversed(numbers)))
