"""The records of a run, from the names of their files: which are live, and their order.

A record is *live* unless a later commit has dropped it; a killed writer may leave the files of
records that are not live. A dropped record with outputs stays live in its *reduced* form, which holds
only the outputs. A reduced form is *staged* if it is stored next to
its record, waiting for the commit that drops the record. A run is *shuffled* if records were
inserted out of order: then the numbers are not the order of commits, and `open.json` has the flag
`shuffled` (see open_page).
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
    """The files of a run's records by number, lowest first, from their names alone."""

    def __init__(self, folder: Path, names: dict[int, str], staged: Collection[str] = ()) -> None:
        self._folder, self.names = folder, names
        self._staged = staged  # names of the records whose reduced form is stored next to them

    def __getitem__(self, number: int) -> Path:
        return self._folder / self.names[number]

    def staged_path(self, number: int) -> Path | None:
        """Return the file with the reduced form of a record, if there is one; see run_folder."""
        name = self.names[number]
        return self._folder / f"{REDUCED}{name}" if name in self._staged else None

    def __iter__(self) -> Iterator[int]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def records_in(folder: Path) -> RecordPaths:
    """Return the records of a run. Raises CheckpointCorrupt if a file has an unknown name."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:  # the run is gone
        return RecordPaths(folder, {})
    by_number: dict[int, str] = {}
    for name in names:
        # Not a regular expression: this loop runs over every file of a run.
        start = name.partition("-")[0]
        if name.endswith(".json") and len(start) >= 6 and start.isdecimal() and start != name:
            number = int(start)
            by_number[number] = _newer(folder, by_number[number], name) if number in by_number else name
        # Without a lock the folder is not a run, or is being deleted: its files are not checked.
        elif name.endswith(".json") and name not in (OWNER, OPEN) and not name.startswith(".") and LOCK in names:
            raise CheckpointCorrupt(f"{folder / name} is not named like a record; move it out of the store")
    staged = {name.removeprefix(REDUCED) for name in names if name.startswith(REDUCED)}
    return RecordPaths(folder, dict(sorted(by_number.items())), staged)


def has_records(folder: Path) -> bool:
    """Return whether a run has any records, without listing them all."""
    try:
        with os.scandir(folder) as entries:
            return any(RECORD_NAME.fullmatch(entry.name) for entry in entries)
    except FileNotFoundError:
        return False


def _newer(folder: Path, first: str, second: str) -> str:
    """Return the newer of two files of one number, left by a writer that was killed in between."""
    return max(first, second, key=lambda name: (folder / name).stat().st_mtime_ns)


class StoredRecords:
    """The live records of a run at one moment.

    A record may drop those before a number. Their files are deleted after it is committed, so a
    killed writer may leave some: they are not live. The reduced form of those with outputs may still
    be stored next to them.
    """

    def __init__(self, folder: Path) -> None:
        self.paths = records_in(folder)

    @cached_property
    def head(self) -> Cover | None:
        return layout.read_cover(self.paths[max(self.paths)]) if self.paths else None

    def is_live(self, cover: Cover) -> bool:
        if cover.outputs:
            return True
        try:
            head = self.head
        except CheckpointCorrupt:  # a damaged head must not make the other records unreadable
            return True
        if head is None or head.drop_below is None or cover.number >= head.drop_below:
            return True
        return cover.seq > head.seq  # it was stored after the head

    def covers(self) -> list[Cover]:
        return [cover for cover in map(layout.read_cover, map(self.path, self.paths)) if self.is_live(cover)]

    def path(self, number: int) -> Path:
        """Return the file of a record: its reduced form if the newest record has dropped it."""
        staged = self.paths.staged_path(number)
        if staged is None:
            return self.paths[number]
        dropped = self.head is not None and number < (self.head.drop_below or 0)
        return staged if dropped else self.paths[number]

    def left_over(self) -> list[Path]:
        """Return the files of records that are not live."""
        if self.head is None or self.head.drop_below is None:
            return []
        below = [path for number, path in self.paths.items() if number < self.head.drop_below]
        return [path for path in below if not self.is_live(layout.read_cover(path))]

    def record(self, number: int) -> Record | None:
        """Return the record of that number, if it is live."""
        if number not in self.paths:
            return None
        stored = layout.read_record(self.path(number))
        return stored.record if self.is_live(stored) else None

    def backwards(self, *, shuffled: bool, before: Order | None = None) -> Iterator[Cover]:
        """Yield the covers of the live records, the last commit first; with `before`, of earlier ones only.

        If the run is `shuffled`, all covers must be read and sorted.
        """
        if shuffled:
            covers = sorted(self.covers(), key=lambda cover: cover.order, reverse=True)
            return (cover for cover in covers if before is None or cover.order < before)
        numbers = list(self.paths)
        if before is not None:
            numbers = numbers[: bisect_left(numbers, before, key=lambda n: layout.read_cover(self.paths[n]).order)]
        return filter(self.is_live, (layout.read_cover(self.paths[number]) for number in reversed(numbers)))
