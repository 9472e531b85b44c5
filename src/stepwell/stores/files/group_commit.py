"""Group commit for the superstep log.

Syncing a file takes long, and handlers that run concurrently often finish together. So entries that
arrive while a file of their run is being written wait for it, and then share the next file.
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
from stepwell.stores.files.superstep_log import LogItem, write_log_file


@dataclass(eq=False, slots=True)
class LogWrite:
    """An entry to be logged, and the future that tells whether it was new."""

    place: int
    key: str
    body: bytes
    fence: int | None
    kept: Future[bool] = field(default_factory=Future)


class GroupCommit:
    """Collects log entries by run while another file of that run is being written."""

    def __init__(
        self, start: Callable[[Callable[[], None]], object], write: Callable[[str, list[LogWrite]], None]
    ) -> None:
        self._start = start  # runs a function in a thread
        self._write = write  # resolves the future of every entry, or raises
        self._lock = threading.Lock()
        # By run. A key exists as long as a thread works for that run, even if nothing waits.
        self._waiting: dict[str, list[LogWrite]] = {}

    def write_log(self, run_id: str, log_write: LogWrite) -> Future[bool]:
        """Return a future: whether the entry was new, once that is durable."""
        with self._lock:
            if run_id in self._waiting:
                self._waiting[run_id].append(log_write)
            else:
                self._start(lambda: self._work(run_id))
                self._waiting[run_id] = [log_write]
        return log_write.kept

    def _work(self, run_id: str) -> None:
        while batch := self._next(run_id):
            wanted = [log_write for log_write in batch if log_write.kept.set_running_or_notify_cancel()]
            try:
                self._write(run_id, wanted)
            except BaseException as error:  # noqa: BLE001 - raised by the futures, in the waiting tasks
                for log_write in wanted:
                    if not log_write.kept.done():
                        log_write.kept.set_exception(error)

    def _next(self, run_id: str) -> list[LogWrite]:
        with self._lock:
            batch, self._waiting[run_id] = self._waiting[run_id], []
            if not batch:
                del self._waiting[run_id]
            return batch


def write_batch(run: RunFolder, run_id: str, batch: list[LogWrite]) -> list[tuple[LogWrite, bool]]:
    """Write a batch, one file per place, without entries that exist or whose fence is too old.

    Returns the entries that were not refused and whether each was new. The caller resolves their
    futures after the lock of the run is released.
    """
    answers: list[tuple[LogWrite, bool]] = []
    fresh: dict[int, list[LogItem]] = {}
    for log_write in batch:
        try:
            run.check_fence(run_id, log_write.fence)
            item = LogItem(log_write.key, msgspec.Raw(layout.compact(log_write.body)))
        except (CommitConflict, ValueError) as error:  # fails this entry alone, not the batch
            log_write.kept.set_exception(error)
            continue
        is_new = log_write.key not in run.keys(log_write.place)
        answers.append((log_write, is_new))
        if is_new:
            run.keys(log_write.place).add(log_write.key)
            fresh.setdefault(log_write.place, []).append(item)
    for place, group in fresh.items():
        write_log_file(run.folder, place, group)
    return answers
