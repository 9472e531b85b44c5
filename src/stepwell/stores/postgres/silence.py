"""Lines that stay open and silent: a failover without a reset, a server that hangs, a firewall that forgot us.

Nothing reports such a line, so a thread watches. Every wait for an answer is recorded on its line. When a line has
been silent for a while, a probe asks the server on a second connection what its sessions are doing. A session that
works on a statement of that age is a sign of life, however long the statement takes. If the server answers and does
not work for this line, the connection is lost: the line is cut, and the statement is sent again on another one. If
the server does not answer at all, the line is cut when the patience ends. To cut is to `shutdown` the socket: every
kind of wait (an event loop, libpq, a cursor of the driver) then sees a broken connection, and the handling of lost
answers takes over.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from selectors import EVENT_READ, DefaultSelector
from types import TracebackType

from stepwell.stores.postgres.patience import Patience

SUSPECT_AFTER = 3.0  # seconds of silence; a third of the patience if that is less
PROBE_SECONDS = 5.0  # after these a probe has failed, and another one is sent
SLACK = 1.0  # seconds by which the age of a statement may differ on both sides of the line
STRIKES = 2  # so often in a row the server must say that it does not work for a line: an answer may be on its way
SHORTEST_TICK, LONGEST_TICK = 0.02, 0.5  # seconds
STANDSTILL = 2.0  # seconds between two looks: the process was stopped, or its machine slept
IDLE_TICKS = 20  # without a wait, and the thread ends


@dataclass(frozen=True, slots=True)
class Session:
    """What the server says about one of its sessions."""

    pid: int
    age: float | None  # seconds since its statement was begun; None if the server does not keep that
    is_working: bool  # on a statement, and not waiting for its client


Sessions = Sequence[Session]
ANSWERED: Sessions = (Session(0, None, True),)
"""A server that is there and does not say more: it may be working for anybody."""


def is_at_work(sessions: Sessions, backend: int | None, waited: float) -> bool:
    """Whether one of the sessions works on the statement that somebody has waited for so long.

    `backend` is the process that serves the line. Behind a pooler nobody knows it: then the age has to do.
    """
    for session in sessions:
        if not session.is_working or session.pid not in (0, backend or session.pid):
            continue
        if session.age is None or (session.age <= waited + SLACK and (backend or session.age >= waited - SLACK)):
            return True
    return False


class WatchedLine:
    """The socket of a connection, and since when an answer is awaited on it. `with line:` while you wait."""

    __slots__ = (
        "__weakref__",
        "_fd",
        "_lock",
        "_strikes",
        "_watch",
        "backend",
        "lost",
        "sign",
        "silent_since",
        "since",
    )

    def __init__(self, fd: int, watch: Watch) -> None:
        self._watch, self._lock = watch, threading.Lock()
        # libpq closes its own descriptor when it likes, and the next one opened would have the same number
        self._fd = os.dup(fd) if os.name == "posix" else -1
        self._strikes = 0
        self.backend: int | None = None  # the process id of the session, if it is known
        self.since: float | None = None  # None: nobody waits
        self.sign = 0.0  # the last sign of life
        self.lost: str | None = None  # why it was cut
        self.silent_since: float | None = None  # if that was because nobody answered

    def begin(self) -> None:
        self._strikes = 0
        self.sign = self.since = time.monotonic()
        if not self._watch.is_awake:
            self._watch.wake()

    def end(self) -> None:
        self.since = None

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def alive(self, at: float) -> None:
        self._strikes, self.sign = 0, max(self.sign, at)

    def strike(self) -> bool:
        """The server says that it does not work for this line. Whether it has said so often enough."""
        self._strikes += 1
        return self._strikes >= STRIKES

    def has_unread(self) -> bool:
        """Whether the server has said something that nobody has read yet: the reader is slow, not the server."""
        with self._lock:
            if self._fd < 0:
                return False
            with DefaultSelector() as selector:
                selector.register(self._fd, EVENT_READ)
                return bool(selector.select(0))

    def cut(self, why: str) -> None:
        """End every wait on this line, from any thread."""
        with self._lock:
            if self._fd < 0 or self.lost is not None:
                return
            self.lost = why
            line = socket.socket(fileno=os.dup(self._fd))
        with line:
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:  # it is broken already, so nobody waits on it
                return

    def close(self) -> None:
        with self._lock:
            fd, self._fd = self._fd, -1
        self.since = None
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class Watch:
    """Watches the lines of a store while somebody waits on one of them."""

    def __init__(self, patience: Patience, probe: Callable[[], Probe], on_silence: Callable[[], None]) -> None:
        """`probe` starts one; `on_silence` is called when a line is cut."""
        self._patience, self._start_probe, self._on_silence = patience, probe, on_silence
        self._suspect_after = min(SUSPECT_AFTER, patience.silence / 3)
        self._tick = min(max(patience.silence / 20, SHORTEST_TICK), LONGEST_TICK)
        self._lock = threading.Lock()
        self._lines: weakref.WeakSet[WatchedLine] = weakref.WeakSet()
        self._probe: Probe | None = None
        self._looked = 0.0
        self.is_awake = False

    def add(self, fd: int) -> WatchedLine:
        line = WatchedLine(fd, self)
        with self._lock:
            self._lines.add(line)
        return line

    def wake(self) -> None:
        with self._lock:
            if self.is_awake:
                return
            thread = threading.Thread(target=self._work, name="stepwell-silence", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # Python starts none any more when it is about to end
                return
            self.is_awake = True

    def _work(self) -> None:
        idle, pause = 0, threading.Event()
        self._looked = time.monotonic()
        while True:
            pause.wait(self._tick)
            idle = 0 if self._look() else idle + 1
            if idle >= IDLE_TICKS:
                self.is_awake = False  # before the last look: whoever begins to wait after it wakes us up
                if not self._waiting():
                    return
                with self._lock:
                    if self.is_awake:  # somebody has started another thread
                        return
                    self.is_awake = True

    def _waiting(self) -> list[WatchedLine]:
        with self._lock:
            return [line for line in self._lines if line.since is not None and line.lost is None]

    def _look(self) -> bool:
        """Look once. Whether anybody waits."""
        waiting, now = self._waiting(), time.monotonic()
        if now - self._looked > STANDSTILL:  # this process stood still, so nobody has missed anything
            for line in waiting:
                line.alive(now)
        self._looked = now
        suspects = [line for line in waiting if now - line.sign >= self._suspect_after]
        for line in suspects:
            if line.has_unread():
                line.alive(now)
        suspects = [line for line in suspects if line.sign < now]
        self._ask(suspects, now)
        for line in waiting:
            is_waiting = line.since is not None and line.lost is None
            if is_waiting and time.monotonic() >= self._patience.deadline(line.sign):
                line.silent_since = line.sign
                why = f"the server was silent for {now - line.sign:.1f} s"
                self._patience.note_silence(line.sign, TimeoutError(why))
                self._cut(line, why)
        return bool(waiting)

    def _ask(self, suspects: list[WatchedLine], now: float) -> None:
        """Have the server asked about the suspects, and act on what it says."""
        probe = self._probe
        if probe is None:
            self._probe = self._start_probe() if suspects else None
        elif probe.is_done():
            self._probe = None
            if probe.sessions is not None:
                self._judge(suspects, probe, probe.sessions)
        elif now - probe.began >= PROBE_SECONDS or not suspects:
            self._probe = None
            probe.give_up()

    def _judge(self, suspects: list[WatchedLine], probe: Probe, sessions: Sessions) -> None:
        for line in suspects:
            since = line.since
            if since is None or since > probe.began:
                continue
            if is_at_work(sessions, line.backend, probe.ended - since):
                line.alive(probe.began)
            elif line.strike():
                self._cut(line, "the server has lost the connection, and did not say so")

    def _cut(self, line: WatchedLine, why: str) -> None:
        line.cut(why)
        self._on_silence()


class Probe:
    """Asks a server what it does, in a thread that may be left alone."""

    def __init__(self, ask: Callable[[Probe], Sessions | None]) -> None:
        """`ask` gives None if there was no answer; it calls `on_line` as soon as there is a line."""
        self.began = time.monotonic()
        self.ended = 0.0
        self.sessions: Sessions | None = None
        self._line: WatchedLine | None = None
        self._given_up = False
        self._ask = ask
        self._thread = threading.Thread(target=self._work, name="stepwell-probe", daemon=True)
        self._thread.start()

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def on_line(self, line: WatchedLine) -> None:
        self._line = line
        if self._given_up:
            line.cut("the probe came too late")

    def give_up(self) -> None:
        self._given_up = True
        if self._line is not None:
            self._line.cut("the probe took too long")

    def _work(self) -> None:
        self.sessions = self._ask(self)
        self.ended = time.monotonic()
