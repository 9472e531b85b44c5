"""Kill a subject when nine of ten parallel handlers return, and count how many handlers are called again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from job import Job

CRASHES = ("crash", "crash-late")
HANDLERS = 10
LAST = HANDLERS - 1
PIPE = "STEPWELL_BENCH_RETURNED"


class Marks:
    """Records that handlers write: a line when they are called, and a byte when they are about to return."""

    def __init__(self, job: Job) -> None:
        self._called = os.open(called_in(job.folder), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._returned = None if job.again else int(os.environ[PIPE])

    def called(self, handler: int) -> None:
        os.write(self._called, f"{handler}\n".encode())

    def returns(self) -> None:
        if self._returned is not None:
            os.write(self._returned, b".")


def called_in(folder: Path) -> Path:
    return folder / "called"


def measure(job: Job, part: list[str]) -> None:
    """Run the subject twice, each time in its own process. `part` is the command line of such a process.

    The first is killed `late_ms` after the ninth handler is about to return.
    """
    called_in(job.folder).touch()
    with _signs() as (read, write):
        environment = os.environ | {PIPE: str(write)}
        first = subprocess.Popen([sys.executable, *part], pass_fds=[write], env=environment, stdout=subprocess.DEVNULL)
        try:
            _wait_for_nine(read, write)
            time.sleep(job["late_ms"] / 1000)
        finally:
            first.send_signal(signal.SIGKILL)
            first.wait()
    before = len(called_in(job.folder).read_text().split())
    subprocess.run([sys.executable, *part, "--again"], check=True, stdout=subprocess.DEVNULL, timeout=120)
    job.notes["called_again"] = len(called_in(job.folder).read_text().split()) - before


@contextmanager
def _signs() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    try:
        yield read, write
    finally:
        os.close(read)


def _wait_for_nine(read: int, write: int) -> None:
    os.close(write)
    returned = 0
    while returned < LAST:
        signs = os.read(read, LAST)
        if not signs:
            raise RuntimeError("the subject ended before it was killed")
        returned += len(signs)
