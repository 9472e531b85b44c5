"""What lies beside the records of a run: its mail, its open questions, and when it wants to be woken.

    <run>/open.json   what is open, and what the newest record does not say of the run
    <run>/mail/       see signals

A commit happens when its record gets its name. What goes along with it is written to `open.json` before, as
what is so `next`: it holds from the moment that the record is there. So a writer may be killed anywhere, and
whoever comes next reads all of its commit or none. Mail is renamed after the commit, by it or by the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stepwell.errors import CheckpointCorrupt
from stepwell.storage.port import CommitEffects, Entry, RunEntry
from stepwell.stores.files import layout
from stepwell.stores.files.layout import FORMAT, MAIL, OPEN, StoredFile
from stepwell.stores.files.open_state import NOTHING_OPEN, Open
from stepwell.stores.files.records import has_records
from stepwell.stores.files.run_folder import RunFolder, newest_path
from stepwell.stores.files.signals import Signals, forget_signals, has_signals, read_signal
from stepwell.stores.files.superstep_log import forget as forget_log
from stepwell.stores.files.superstep_log import memos_in


class Next(msgspec.Struct, frozen=True):
    """What is so as soon as a record is there."""

    record: str  # the name of its file
    seq: int | None  # set if it replaces a file of the same name, to tell them apart
    consumed: tuple[str, ...]
    open: Open

    def has_come(self, folder: Path) -> bool:
        path = folder / self.record
        return path.exists() and (self.seq is None or layout.read_cover(path).seq == self.seq)


class Page(StoredFile):
    """`open.json`. It tells of the last write only: whoever writes next turns what has come into what is."""

    open: Open
    next: Next | None = None
    leaving: bool = False  # when the last record is gone, so is everything beside it


_PAGES = msgspec.json.Decoder(Page)


@dataclass(frozen=True, slots=True)
class PageState:
    """What is so beside the records of a run at one moment."""

    open: Open = NOTHING_OPEN
    consumed: tuple[str, ...] = ()  # mail that may not be marked yet
    is_gone: bool = False  # nothing that still lies there counts


def look(folder: Path, has_records: Callable[[Path], bool] = has_records) -> PageState:
    """What is so, whatever a killed writer left. Needs no lock."""
    while True:
        page = _page_in(folder)
        if page is None:
            return PageState()
        if page.next is not None and page.next.has_come(folder):
            return PageState(page.next.open, page.next.consumed)
        if not has_records(folder):
            return PageState(is_gone=page.leaving)
        if page.next is None or _page_in(folder) == page:  # else its record may have come and gone while we looked
            return PageState(page.open)


def recover(run: RunFolder) -> Open:
    """What is open, after finishing what a killed writer left."""
    if run.open is not None:
        return run.open
    state = look(run.folder, lambda folder: run.has_records())
    if state.is_gone:
        forget(run)
    elif not run.has_records():  # it was killed before the first record
        (run.folder / OPEN).unlink(missing_ok=True)
    _mark(run, state.consumed)
    return state.open


def announce(run: RunFolder, entry: Entry, seq: int, now: Open, after: Open, consumed: tuple[str, ...]) -> None:
    """Write down what will be so when the record of that entry and seq has its name. `now` is from `recover`."""
    if after != now or consumed:
        path = run.folder / layout.record_name(entry.number, entry.checkpoint_id)
        following = Next(path.name, seq if path.exists() else None, consumed, after)
        _turn(run.folder, Page(FORMAT, now, following))
        run.note_open(after, rests=False)
    elif not (run.rests and run.open == now):
        rest(run.folder, now)
        run.note_open(now, rests=True)


def rest(folder: Path, now: Open) -> None:
    """Make what is open independent of any record: one is about to be written or removed. `now` is from `recover`."""
    page = _page_in(folder) or Page(FORMAT, NOTHING_OPEN)
    if page.open != now or page.next is not None or page.leaving:
        _turn(folder, Page(FORMAT, now))


def step_back(folder: Path, newest: Path, now: Open, after: Open) -> None:
    """Let `after` be open as soon as the newest record is gone, which is about to be removed. `now` is from `recover`.

    Until then the page says it the other way round: `after` is so, and `now` as long as that record is there.
    """
    if after != now:
        _turn(folder, Page(FORMAT, after, Next(newest.name, None, (), now)))
    else:
        rest(folder, now)


def take_leave(folder: Path, now: Open) -> None:
    """Let everything go together with the last record, which is about to be removed. `now` is from `recover`."""
    if now != NOTHING_OPEN or has_signals(folder) or memos_in(folder):
        _turn(folder, Page(FORMAT, now, leaving=True))
    else:
        rest(folder, now)


def _turn(folder: Path, page: Page) -> None:
    if (folder / MAIL).is_dir():
        layout.sync_folder(folder / MAIL)  # the marks must not be lost with the page that told of them
    layout.write(folder / OPEN, page)


def finish(run: RunFolder, effects: CommitEffects) -> None:
    """Tidy up after a commit. If a crash prevents it, the next writer does it."""
    _mark(run, effects.consumed)
    if effects.settled is not None:
        forget_log(run.folder, effects.settled)
        run.forget_keys()
    if effects.reduced:
        run.install_reduced(effects.drop_below or 0)
    if effects.drop_below is not None:
        run.drop_below(effects.drop_below)


def _mark(run: RunFolder, consumed: tuple[str, ...]) -> None:
    if consumed:
        run.signals().mark(run.folder, consumed)


def forget(run: RunFolder) -> None:
    """Delete all that lies beside the records."""
    layout.sync_folder(run.folder)  # no power failure may bring the last record back without it
    forget_log(run.folder)
    forget_signals(run.folder)
    run.invalidate()
    layout.sync_folder(run.folder)
    (run.folder / OPEN).unlink(missing_ok=True)  # last: as long as it is there the rest does not count


def unread(folder: Path, signals: Callable[[], Signals]) -> list[tuple[str, bytes]]:
    """The mail that is not consumed, oldest first. Needs no lock."""
    stored = [read_signal(path) for path in waiting(folder, signals)]
    return [(signal.key, layout.compact(signal.body)) for signal in stored]


def waiting(folder: Path, signals: Callable[[], Signals]) -> list[Path]:
    """The files of the mail that is not consumed, oldest first. Needs no lock."""
    state = look(folder)  # first: mail is marked before the page that tells of it is turned, so one of them tells us
    done = {layout.safe_name(key) for key in state.consumed}
    paths = {} if state.is_gone else signals().waiting
    if not paths and not folder.is_dir():
        raise FileNotFoundError(2, "the run was moved while we looked", str(folder))
    return [path for name, path in paths.items() if name not in done]


def run_in(folder: Path) -> RunEntry | None:
    """What is to be known of a run, and where it is now. Needs no lock, and reads no body."""
    while True:
        known_origin, path = look(folder).open.origin, newest_path(folder)
        if path is None:
            return None
        newest = layout.read_cover(path)
        if look(folder).open.origin == known_origin:
            break
    origin = known_origin or newest.origin
    return RunEntry(
        newest.run_id,
        newest.workflow,
        newest.status,
        newest.number,
        newest.checkpoint_id,
        newest.iteration,
        newest.at,
        origin.began,
        origin.metadata,
    )


def _page_in(folder: Path) -> Page | None:
    try:
        page = layout.read(folder / OPEN, _PAGES)
    except FileNotFoundError:
        return None
    for state in (page.open, *([page.next.open] if page.next else [])):
        for run_id in (*(q.run_id for q in state.questions), *([state.wake.run_id] if state.wake else [])):
            if layout.safe_name(run_id) != folder.name:
                raise CheckpointCorrupt(f"{folder / OPEN} is that of run {run_id!r}; put it back where it belongs")
    return page
