"""Where processes come from that are to be killed: forked from one that has loaded everything, so that they are cheap.

They are processes like any other, with memory, files and connections of their own; only the import is saved. A child
is `main(*arguments)` of a module. What it says goes to a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOADED = (
    "tests.crash.errands",
    "tests.crash.crew",
    "tests.crash.held",
    "tests.crash.team",
    "stepwell.stores.postgres.store",
)
WAIT = 300.0  # seconds; only so that a broken program does not stop all others


@dataclass
class Child:
    pid: int
    name: str
    said: Path
    _nursery: Nursery = field(repr=False)

    def kill(self) -> None:
        self._send(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """Let it stand still, as a machine does that has no memory left or is being moved."""
        self._send(signal.SIGSTOP)
        while self._state() not in "TZ":
            time.sleep(0.001)

    def stop_between_writes(self) -> None:
        """Let it stand still with no lock in its hands: of a file, nobody can take that from it, not even in time."""
        self.stop()
        while self._holds_a_lock():
            self.go_on()
            time.sleep(0.01)
            self.stop()

    def _holds_a_lock(self) -> bool:
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return any("WRITE" in words and str(self.pid) in words for words in locks)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def code(self) -> int | None:
        """What it ended with; None if it is alive. Negative: the signal."""
        self._nursery.hear(0)
        return self._nursery.ended.get(self.pid)

    def has_failed(self) -> bool:
        """Whether it ended by itself, and not well."""
        return self.code() not in (None, 0, -signal.SIGKILL)

    def wait(self, seconds: float = WAIT) -> int:
        deadline = time.monotonic() + seconds
        while (code := self.code()) is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"{self} did not end within {seconds:g} s")
            self._nursery.hear(0.05)
        return code

    def words(self) -> str:
        return self.said.read_text(errors="replace") if self.said.exists() else ""

    def _send(self, number: signal.Signals) -> None:
        if self.code() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended this very moment
                os.kill(self.pid, number)

    def _state(self) -> str:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "Z"

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})"


class Nursery:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._born: list[int] = []
        self._rest = b""
        self._count = 0
        self.ended: dict[int, int] = {}
        self.hear(WAIT)  # until it is ready

    def bear(self, module: str, *arguments: str, name: str | None = None) -> Child:
        self._count += 1
        said = self._folder / f"said-{self._count}"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([module, str(said), *arguments]).encode() + b"\n")
        while not self._born:
            self.hear(WAIT)
        return Child(self._born.pop(), name or module, said, self)

    def hear(self, seconds: float) -> None:
        """Take in what has happened; wait for so long if nothing has."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return
        heard = os.read(self._process.stdout.fileno(), 65536)
        if not heard:
            raise RuntimeError("the nursery is gone")
        *lines, self._rest = (self._rest + heard).split(b"\n")
        for what, *numbers in (line.decode().split() for line in lines):
            if what == "born":
                self._born.append(int(numbers[0]))
                self.ended.pop(int(numbers[0]), None)  # of one that had the same number long ago
            elif what == "ended":
                self.ended[int(numbers[0])] = int(numbers[1])

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()  # it ends its children, and itself
        self._process.wait()
        self._process.stdout.close()


def main() -> None:
    for name in LOADED:
        importlib.import_module(name)
    alive: set[int] = set()
    signal.signal(signal.SIGCHLD, lambda *_: _bury(alive))
    _say("ready")
    for line in _orders():
        module, said, *arguments = json.loads(line)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # it may be dead before it is known
        pid = os.fork()
        if pid == 0:
            _live(module, said, arguments)
        alive.add(pid)
        _say(f"born {pid}")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _orders() -> Iterator[bytes]:
    """Yield the lines of the standard input.

    It looks up five times a second: Python handles a signal that arrives just before a blocking read only after it.
    """
    rest = b""
    while True:
        if not select.select([0], [], [], 0.2)[0]:
            continue
        if not (heard := os.read(0, 65536)):
            return
        *lines, rest = (rest + heard).split(b"\n")
        yield from lines


def _bury(alive: set[int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            alive.discard(pid)
            _say(f"ended {pid} {os.waitstatus_to_exitcode(status)}")


def _say(word: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{word}\n".encode())


def _live(module: str, said: str, arguments: list[str]) -> None:
    """The life of a child. Never returns."""
    code = 1
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it dies with its parent
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        book = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for here, there in ((nothing, 0), (book, 1), (book, 2)):
            os.dup2(here, there)
        faulthandler.enable()
        importlib.import_module(module).main(*arguments)
        code = 0
    except BaseException:  # noqa: BLE001 - whoever watches reads it there
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
