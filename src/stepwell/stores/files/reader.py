"""Reading records without a lock. If a file disappears meanwhile, the caller tries again."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from pathlib import Path

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.port import Record
from stepwell.stores.files import layout, open_page
from stepwell.stores.files.layout import Cover
from stepwell.stores.files.records import Order, StoredRecords
from stepwell.stores.files.run_folder import newest_path

COARSE = 2_000_000_000  # ns: the coarsest timestamps of any file system (FAT)


def chain(run: Path, number: int) -> list[Record]:
    """Return the last snapshot at or before that number and every record from there to it."""
    records = StoredRecords(run)
    last = records.record(number)
    chain = [] if last is None else [last]
    while chain and not chain[-1].entry.is_snapshot:
        entry = chain[-1].entry
        before = records.record(entry.number - 1)
        if before is None:
            raise CheckpointCorrupt(
                f"{records.paths[entry.number]} cannot be read: it is a delta to commit {entry.number - 1} "
                f"of run {entry.run_id!r}, which is not stored"
            )
        chain.append(before)
    return chain[::-1]


def history(run: Path, after: int, upto: int | None, *, outputs_only: bool) -> list[Record]:
    records = StoredRecords(run)
    numbers = [number for number in records.paths if after < number and (upto is None or number <= upto)]
    if outputs_only:
        numbers = [number for number in numbers if layout.read_cover(records.paths[number]).outputs]
    return [record for record in map(records.record, numbers) if record is not None]


def find_checkpoint(runs: list[Path], checkpoint_id: str) -> Cover | None:
    """Return the checkpoint with that id in any of the runs; the last committed one, if several."""
    # The id is part of the file name, so only files that match are opened.
    ending = _ending(layout.record_name(0, checkpoint_id))
    covers: list[Cover] = []
    for run in runs:
        records = StoredRecords(run)
        paths = [records.paths[number] for number, name in records.paths.names.items() if _ending(name) == ending]
        covers += [cover for cover in map(layout.read_cover, paths) if records.is_live(cover)]
    return max(covers, key=lambda cover: cover.order, default=None)


def find_by_prefix(runs: list[Path], prefix: str) -> list[Cover]:
    """Return the records whose checkpoint id starts with `prefix`, in the order of the ids."""
    covers: list[Cover] = []
    for run in runs:
        records = StoredRecords(run)
        paths = [records.paths[number] for number, name in records.paths.names.items() if _may_start_with(name, prefix)]
        candidates = [cover for cover in map(layout.read_cover, paths) if cover.checkpoint_id.startswith(prefix)]
        covers += filter(records.is_live, candidates)
    return sorted(covers, key=lambda cover: (cover.checkpoint_id, cover.order))


def _may_start_with(name: str, prefix: str) -> bool:
    """Return whether a file's checkpoint id may start with `prefix`; a hashed name hides it."""
    return "~" in name or _ending(name).startswith(f"-{prefix}")


def _ending(name: str) -> str:
    """Return the name of a record's file without its number."""
    return name.lstrip("0123456789")


def backwards(runs: list[Path], before: Order | None = None) -> Iterator[Cover]:
    """Yield the records of the runs that were committed before that, the last one first."""
    return _merge([(run.stat().st_mtime_ns, _backwards_in(run, before)) for run in runs])


def _backwards_in(run: Path, before: Order | None) -> Iterator[Cover]:
    shuffled = open_page.read_state(run).open.shuffled
    path = newest_path(run) if before is None and not shuffled else None
    head = layout.read_cover(path) if path else None
    if head is not None:  # often the caller wants only this one, and the folder need not be listed
        yield head
        before = head.order
    yield from StoredRecords(run).backwards(shuffled=shuffled, before=before)


def _merge(runs: list[tuple[int, Iterator[Cover]]]) -> Iterator[Cover]:
    """Merge the records of several runs, the last one committed first.

    Each run comes with the time its folder last changed. A run whose folder is older than the best
    record so far cannot have a later one, so it is not read yet.
    """
    waiting = sorted(runs, key=lambda run: run[0])
    # The next record of each run that is being read, the one committed last at the end.
    line: list[tuple[Cover, Iterator[Cover]]] = []

    def join(run: Iterator[Cover]) -> None:
        for cover in run:
            insort(line, (cover, run), key=lambda each: each[0].order)
            return

    while waiting or line:
        while waiting and (not line or waiting[-1][0] + COARSE >= line[-1][0].seq):
            join(waiting.pop()[1])
        if line:
            cover, run = line.pop()
            yield cover
            join(run)
