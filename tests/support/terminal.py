"""A terminal of its own for the program, with somebody who types."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

PATIENCE = 60.0  # seconds; a test that waits longer has failed
# The terminal becomes that of the process, so that Ctrl-C is a signal as it is for a person.
BEGIN = """
import os, signal, sys
os.setsid()
theirs = os.open(sys.argv[1], os.O_RDWR)
for number in range(3):
    os.dup2(theirs, number)
os.close(theirs)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "stepwell.cli", *sys.argv[2:]])
"""


class Terminal:
    """The program on a terminal of 80 columns."""

    def __init__(self, *arguments: str, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        known = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **env}
        command = [sys.executable, "-S", "-c", BEGIN, os.ttyname(theirs), *arguments]
        self._process = subprocess.Popen(command, env=known)
        self._theirs = theirs
        self.shown, self._read = "", 0  # with every colour; how much of what is seen was read

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(timeout=PATIENCE)
        os.close(self._ours)
        os.close(self._theirs)

    @property
    def seen(self) -> str:
        """Everything that was shown so far, without colours and ends of lines of a terminal."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.shown).replace("\r\n", "\n")

    def answer(self, prompt: str, typed: str) -> None:
        """Wait for a prompt that ends so, and type this."""
        self._until(lambda: self.seen[self._read :].rstrip().endswith(prompt))
        self._read = len(self.seen)
        os.write(self._ours, typed.encode())

    def interrupt(self, prompt: str) -> None:
        """Wait for a prompt that ends so, and press Ctrl-C; again if the program was not listening yet.

        Python that is about to read, and does not yet, hears of it only with the next key.
        """
        self.answer(prompt, "")
        while self._waits_at(prompt):
            os.write(self._ours, b"\x03")
            limit = time.monotonic() + 5
            while self._waits_at(prompt) and time.monotonic() < limit:
                self._more(0.1)

    def _waits_at(self, prompt: str) -> bool:
        return re.sub(r"(\^C)+$", "", self.seen.rstrip()).rstrip().endswith(prompt) and self._process.poll() is None

    def end(self) -> int:
        """Wait until the program ends; the code it ends with."""
        self._until(lambda: self._process.poll() is not None)
        while self._more(0.0):
            pass
        return self._process.wait()

    def _until(self, there: Callable[[], bool]) -> None:
        limit = time.monotonic() + PATIENCE
        while not there():
            assert time.monotonic() < limit, f"it hangs; shown was:\n{self.seen}"
            assert self._more(0.05) or self._process.poll() is None or there(), f"it ended; shown was:\n{self.seen}"

    def _more(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        self.shown += os.read(self._ours, 65536).decode(errors="replace")
        return True
