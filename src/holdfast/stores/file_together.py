"""Remembering for several threads at once.

To make a file safe takes long, and handlers that work side by side often finish together. So what is to be remembered
while another file is being written waits for it, and then goes into one file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from ..core.errors import CommitConflict
from .file_memory import Kept, write_memo
from .file_run import Run


@dataclass(eq=False, slots=True)
class Wish:
    """Something that is to be remembered, and the thread that waits for it."""

    place: int
    kept: Kept
    fence: int | None
    answer: bool | BaseException = False
    turn: Future[bool] = field(default_factory=Future)  # True: it is for this one to write; False: it has its answer


class Together:
    """Lets the threads of a process that have something to remember in one run share the work."""

    def __init__(self, keep: Callable[[str, list[Wish]], None]) -> None:
        self._keep = keep  # gives every wish its answer, or raises
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Wish]] = {}  # by run; there is an entry as long as somebody writes

    def remember(self, run_id: str, wish: Wish) -> bool:
        """Whether it was kept. Whoever comes while nobody writes does it, for all who came meanwhile."""
        with self._lock:
            is_first = run_id not in self._waiting
            self._waiting.setdefault(run_id, []).append(wish)
        if is_first or wish.turn.result():
            self._write(run_id)
        if isinstance(wish.answer, BaseException):
            raise wish.answer
        return wish.answer

    def _write(self, run_id: str) -> None:
        with self._lock:
            wishes, self._waiting[run_id] = self._waiting[run_id], []
        try:
            self._keep(run_id, wishes)
        except BaseException as error:  # noqa: BLE001 - whoever waits for it has to hear of it, whatever it is
            for wish in wishes:
                wish.answer = error
        finally:
            self._hand_over(run_id)
            for wish in wishes:
                if not wish.turn.done():
                    wish.turn.set_result(False)

    def _hand_over(self, run_id: str) -> None:
        with self._lock:
            if self._waiting[run_id]:
                self._waiting[run_id][0].turn.set_result(True)
            else:
                del self._waiting[run_id]


def keep(run: Run, run_id: str, wishes: list[Wish]) -> None:
    """Write down what is wished for, each place in one file, unless it is there already or comes too late."""
    fresh: dict[int, list[Wish]] = {}
    for wish in wishes:
        try:
            run.refuse_late(run_id, wish.fence)
        except CommitConflict as error:
            wish.answer = error
            continue
        if wish.kept.key not in run.keys(wish.place):
            run.keys(wish.place).add(wish.kept.key)
            fresh.setdefault(wish.place, []).append(wish)
    for place, group in fresh.items():
        write_memo(run.folder, place, [wish.kept for wish in group])
        for wish in group:
            wish.answer = True
