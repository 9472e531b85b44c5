"""Reading records without a lock. If a file is gone when it is opened, whoever reads looks again."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from pathlib import Path

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.port import Record
from stepwell.stores.files import layout, open_page
from stepwell.stores.files.layout import Cover
from stepwell.stores.files.records import Order, Stock
from stepwell.stores.files.run_folder import newest_path

COARSE = 2_000_000_000  # ns: the least exact time stamps a file system may have


def chain(run: Path, number: int) -> list[Record]:
    """The last frame at or before that number and every record from there to it."""
    stock = Stock(run)
    last = stock.record(number)
    chain = [] if last is None else [last]
    while chain and not chain[-1].entry.is_snapshot:
        entry = chain[-1].entry
        link = stock.record(entry.number - 1)
        if link is None:
            raise CheckpointCorrupt(
                f"{stock.paths[entry.number]} cannot be read: it tells only what changed since commit "
                f"{entry.number - 1} of run {entry.run_id!r}, which is not stored"
            )
        chain.append(link)
    return chain[::-1]


def history(run: Path, after: int, upto: int | None, *, outputs_only: bool) -> list[Record]:
    stock = Stock(run)
    numbers = [number for number in stock.paths if after < number and (upto is None or number <= upto)]
    if outputs_only:
        numbers = [number for number in numbers if layout.read_cover(stock.paths[number]).outputs]
    return [record for record in map(stock.record, numbers) if record is not None]


def find_checkpoint(runs: list[Path], checkpoint_id: str) -> Cover | None:
    """The record of that id in any of the runs; if there are several, that which was committed last."""
    ending = _ending(layout.record_name(0, checkpoint_id))
    covers: list[Cover] = []
    for run in runs:
        stock = Stock(run)
        paths = [stock.paths[number] for number, name in stock.paths.names.items() if _ending(name) == ending]
        covers += [cover for cover in map(layout.read_cover, paths) if stock.counts(cover)]
    return max(covers, key=lambda cover: cover.order, default=None)


def find_by_prefix(runs: list[Path], prefix: str) -> list[Cover]:
    """The records whose checkpoint id begins so, in the order of the ids."""
    covers: list[Cover] = []
    for run in runs:
        stock = Stock(run)
        paths = [stock.paths[number] for number, name in stock.paths.names.items() if _may_begin(name, prefix)]
        candidates = [cover for cover in map(layout.read_cover, paths) if cover.checkpoint_id.startswith(prefix)]
        covers += filter(stock.counts, candidates)
    return sorted(covers, key=lambda cover: (cover.checkpoint_id, cover.order))


def _may_begin(name: str, prefix: str) -> bool:
    """Whether the checkpoint of a file may have an id that begins so. One that is no plain name tells too little."""
    return "~" in name or _ending(name).startswith(f"-{prefix}")


def _ending(name: str) -> str:
    """The name of a record's file without its number."""
    return name.lstrip("0123456789")


def backwards(runs: list[Path], before: Order | None = None) -> Iterator[Cover]:
    """The records of all those runs that were committed before that, the last one first."""
    return _merge([(run.stat().st_mtime_ns, _backwards_in(run, before)) for run in runs])


def _backwards_in(run: Path, before: Order | None) -> Iterator[Cover]:
    shuffled = open_page.look(run).open.shuffled
    path = newest_path(run) if before is None and not shuffled else None
    head = layout.read_cover(path) if path else None
    if head is not None:  # it is the last one; often nobody asks for more
        yield head
        before = head.order
    yield from Stock(run).backwards(shuffled=shuffled, before=before)


def _merge(runs: list[tuple[int, Iterator[Cover]]]) -> Iterator[Cover]:
    """The records of several runs, the last one committed first.

    Each run comes with the time its folder was last changed: none that is older than what was found is looked at.
    """
    waiting = sorted(runs, key=lambda run: run[0])
    line: list[tuple[Cover, Iterator[Cover]]] = []  # the next one of each run, the one committed last at the end

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
