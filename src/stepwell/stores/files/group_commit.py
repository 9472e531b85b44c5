"""Remembering several things at once.

To make a file safe takes long, and handlers that work side by side often finish together. So what is to be remembered
while another file is being written waits for it, and then goes into one file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import msgspec

from stepwell.errors import CommitConflict
from stepwell.stores.files import layout
from stepwell.stores.files.run_folder import RunFolder
from stepwell.stores.files.superstep_log import LogItem, write_memo


@dataclass(eq=False, slots=True)
class Wish:
    """Something that is to be remembered, and what became of it."""

    place: int
    key: str
    body: bytes
    fence: int | None
    kept: Future[bool] = field(default_factory=Future)


class GroupCommit:
    """Collects what is to be remembered, run by run, as long as something of that run is being written."""

    def __init__(self, start: Callable[[Callable[[], None]], object], write: Callable[[str, list[Wish]], None]) -> None:
        self._start = start  # lets a thread work
        self._write = write  # gives every wish its answer, or raises
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Wish]] = {}  # by run; there is an entry as long as a thread works for it

    def write_log(self, run_id: str, wish: Wish) -> Future[bool]:
        """Whether it is kept, as soon as that is sure."""
        with self._lock:
            if run_id in self._waiting:
                self._waiting[run_id].append(wish)
            else:
                self._start(lambda: self._work(run_id))
                self._waiting[run_id] = [wish]
        return wish.kept

    def _work(self, run_id: str) -> None:
        while wishes := self._next(run_id):
            wanted = [wish for wish in wishes if wish.kept.set_running_or_notify_cancel()]
            try:
                self._write(run_id, wanted)
            except BaseException as error:  # noqa: BLE001 - whoever waits has to hear of it, whatever it is
                for wish in wanted:
                    if not wish.kept.done():
                        wish.kept.set_exception(error)

    def _next(self, run_id: str) -> list[Wish]:
        with self._lock:
            wishes, self._waiting[run_id] = self._waiting[run_id], []
            if not wishes:
                del self._waiting[run_id]
            return wishes


def keep(run: RunFolder, run_id: str, wishes: list[Wish]) -> list[tuple[Wish, bool]]:
    """Write down what is wished for, each place in one file, unless it is there already or comes too late.

    The answers to those that are not refused, to be told when the run is free for them again.
    """
    answers: list[tuple[Wish, bool]] = []
    fresh: dict[int, list[LogItem]] = {}
    for wish in wishes:
        try:
            run.refuse_late(run_id, wish.fence)
            item = LogItem(wish.key, msgspec.Raw(layout.compact(wish.body)))
        except (CommitConflict, ValueError) as error:  # that is its own fault
            wish.kept.set_exception(error)
            continue
        is_new = wish.key not in run.keys(wish.place)
        answers.append((wish, is_new))
        if is_new:
            run.keys(wish.place).add(wish.key)
            fresh.setdefault(wish.place, []).append(item)
    for place, group in fresh.items():
        write_memo(run.folder, place, group)
    return answers
