"""The side file of a run: open requests, wake-up time, and the signals being consumed.

    <run>/open.json   what is open, and what the newest record does not tell about the run
    <run>/mail/       see signals

A commit takes effect when its record gets its name, which is one atomic rename. Its effects are
written to `open.json` before that, under `next`: they hold from the moment the record exists. So a
writer may be killed anywhere, and the next reader sees all of its commit or none. Consumed signals
are renamed after the commit, by its writer or by the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.port import CommitEffects, Entry, RunEntry
from stepwell.stores.files import layout
from stepwell.stores.files.layout import FORMAT, OPEN, SIGNALS_FOLDER, StoredFile
from stepwell.stores.files.open_state import NOTHING_OPEN, Open
from stepwell.stores.files.records import has_records
from stepwell.stores.files.run_folder import RunFolder, newest_path
from stepwell.stores.files.signals import Signals, delete_signals, has_signals, read_signal
from stepwell.stores.files.superstep_log import drop_log, log_files


class Next(msgspec.Struct, frozen=True):
    """What holds as soon as a record exists."""

    record: str  # the name of its file
    seq: int | None  # set if the record replaces a file of the same name, to distinguish the two
    consumed: tuple[str, ...]
    open: Open

    def is_committed(self, folder: Path) -> bool:
        path = folder / self.record
        return path.exists() and (self.seq is None or layout.read_cover(path).seq == self.seq)


class Page(StoredFile):
    """The content of `open.json`.

    It covers only the last write; the next one folds `next` into `open`.
    """

    open: Open
    next: Next | None = None
    leaving: bool = False  # once the last record is gone, nothing beside it counts


_PAGES = msgspec.json.Decoder(Page)


@dataclass(frozen=True, slots=True)
class PageState:
    """What holds beside the records of a run at one moment."""

    open: Open = NOTHING_OPEN
    consumed: tuple[str, ...] = ()  # signals that may not have become tombstones yet
    is_gone: bool = False  # the run is deleted; its remaining files do not count


def read_state(folder: Path, has_records: Callable[[Path], bool] = has_records) -> PageState:
    """Return what holds, whatever a killed writer left. Needs no lock."""
    while True:
        page = _page_in(folder)
        if page is None:
            return PageState()
        if page.next is not None and page.next.is_committed(folder):
            return PageState(page.next.open, page.next.consumed)
        if not has_records(folder):
            return PageState(is_gone=page.leaving)
        # If the page has changed meanwhile, its record may have appeared and been folded in between
        # our two looks: start again.
        if page.next is None or _page_in(folder) == page:
            return PageState(page.open)


def recover(run: RunFolder) -> Open:
    """Return what is open, after finishing what a killed writer began."""
    if run.open is not None:
        return run.open
    state = read_state(run.folder, lambda folder: run.has_records())
    if state.is_gone:
        delete_side_files(run)
    elif not run.has_records():  # its writer was killed before the first record
        (run.folder / OPEN).unlink(missing_ok=True)
    _consume(run, state.consumed)
    return state.open


def announce(run: RunFolder, entry: Entry, seq: int, now: Open, after: Open, consumed: tuple[str, ...]) -> None:
    """Write what will hold once the record of that entry exists. `now` is from `recover`."""
    # Most commits of a busy run open and consume nothing: then the page need not be written again.
    if after != now or consumed:
        path = run.folder / layout.record_name(entry.number, entry.checkpoint_id)
        following = Next(path.name, seq if path.exists() else None, consumed, after)
        _write_page(run.folder, Page(FORMAT, now, following))
        run.note_open(after, is_settled=False)
    elif not (run.is_settled and run.open == now):
        settle(run.folder, now)
        run.note_open(now, is_settled=True)


def settle(folder: Path, now: Open) -> None:
    """Make what is open independent of any record, before one is written or removed."""
    page = _page_in(folder) or Page(FORMAT, NOTHING_OPEN)
    if page.open != now or page.next is not None or page.leaving:
        _write_page(folder, Page(FORMAT, now))


def announce_removal(folder: Path, newest: Path, now: Open, after: Open) -> None:
    """Announce that `after` is open once the newest record is removed. `now` is from `recover`.

    The page says it the other way round: `after` holds, but `now` as long as that record exists.
    """
    if after != now:
        _write_page(folder, Page(FORMAT, after, Next(newest.name, None, (), now)))
    else:
        settle(folder, now)


def announce_end(folder: Path, now: Open) -> None:
    """Announce that nothing counts once the last record is removed. `now` is from `recover`."""
    if now != NOTHING_OPEN or has_signals(folder) or log_files(folder):
        _write_page(folder, Page(FORMAT, now, leaving=True))
    else:
        settle(folder, now)


def _write_page(folder: Path, page: Page) -> None:
    if (folder / SIGNALS_FOLDER).is_dir():
        # The old page may be the only one that names consumed signals: their tombstones must be
        # durable before it is replaced.
        layout.sync_folder(folder / SIGNALS_FOLDER)
    layout.write(folder / OPEN, page)


def finish(run: RunFolder, effects: CommitEffects) -> None:
    """Clean up after a commit. If a crash prevents it, the next writer does it."""
    _consume(run, effects.consumed)
    if effects.drop_log_through is not None:
        drop_log(run.folder, effects.drop_log_through)
        run.forget_keys()
    if effects.reduced:
        run.install_reduced(effects.drop_below or 0)
    if effects.drop_below is not None:
        run.drop_below(effects.drop_below)


def _consume(run: RunFolder, consumed: tuple[str, ...]) -> None:
    if consumed:
        run.signals().consume(run.folder, consumed)


def delete_side_files(run: RunFolder) -> None:
    """Delete everything beside the records, of which there are none left."""
    # First make the removal of the last record durable: a power failure must not bring it back
    # without the rest.
    layout.sync_folder(run.folder)
    drop_log(run.folder)
    delete_signals(run.folder)
    run.invalidate()
    layout.sync_folder(run.folder)
    # The page last: as long as it exists, it says that the rest does not count.
    (run.folder / OPEN).unlink(missing_ok=True)


def pending_signals(folder: Path, signals: Callable[[], Signals]) -> list[tuple[str, bytes]]:
    """Return the signals that are not consumed, oldest first. Needs no lock."""
    stored = [read_signal(path) for path in pending_files(folder, signals)]
    return [(signal.key, layout.compact(signal.body)) for signal in stored]


def pending_files(folder: Path, signals: Callable[[], Signals]) -> list[Path]:
    """Return the files of the signals that are not consumed, oldest first. Needs no lock."""
    # The page before the files: a consumed signal becomes a tombstone before the page that names it
    # is replaced, so in this order at least one of them shows that it is consumed.
    state = read_state(folder)
    done = {layout.safe_name(key) for key in state.consumed}
    paths = {} if state.is_gone else signals().pending
    if not paths and not folder.is_dir():
        raise FileNotFoundError(2, "the run was moved while we looked", str(folder))
    return [path for name, path in paths.items() if name not in done]


def run_in(folder: Path) -> RunEntry | None:
    """Return the entry of a run. Needs no lock, and reads no body."""
    # Two files are read; if the first changes meanwhile, they may not belong together.
    while True:
        known_origin, path = read_state(folder).open.origin, newest_path(folder)
        if path is None:
            return None
        newest = layout.read_cover(path)
        if read_state(folder).open.origin == known_origin:
            break
    origin = known_origin or newest.origin
    return RunEntry(
        newest.run_id,
        newest.workflow,
        status=newest.status,
        number=newest.number,
        checkpoint_id=newest.checkpoint_id,
        iteration=newest.iteration,
        at=newest.at,
        began=origin.began,
        metadata=origin.metadata,
    )


def _page_in(folder: Path) -> Page | None:
    try:
        page = layout.read(folder / OPEN, _PAGES)
    except FileNotFoundError:
        return None
    # A page that was copied from another run would show requests of that run.
    for state in (page.open, *([page.next.open] if page.next else [])):
        for run_id in (*(q.run_id for q in state.questions), *([state.wake.run_id] if state.wake else [])):
            if layout.safe_name(run_id) != folder.name:
                raise CheckpointCorrupt(f"{folder / OPEN} belongs to run {run_id!r}; move it back to its folder")
    return page
