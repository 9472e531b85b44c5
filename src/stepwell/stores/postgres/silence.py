"""Detection of dead connections: failover without a reset, hanging server, lossy firewall.

Nothing reports such a connection, so a thread watches. Every wait for an answer is recorded on its line
(the socket of a connection). When a line has been silent for a while, a probe asks the server on a
second connection what its sessions are doing. A session that works on a statement of that age is a
sign of life, however long the statement takes. If the server answers but does not work for this line,
the connection is lost: the line is cut, and the statement is sent again on another one. If the server
does not answer at all, the line is cut when the patience ends.

To cut a line is to `shutdown` its socket. Every kind of wait (an event loop, libpq, a cursor of the
driver) then sees a broken connection, and the usual handling of lost answers takes over.
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
PROBE_SECONDS = 5.0  # after which a probe has failed, and another one is sent
SLACK = 1.0  # seconds by which server and client may disagree about the age of a statement
# How often in a row the server must deny that it works for a line. Once is not enough: the answer
# may be on its way.
STRIKES = 2
SHORTEST_TICK, LONGEST_TICK = 0.02, 0.5  # seconds
STANDSTILL = 2.0  # seconds between two ticks that mean this process was stopped, or its machine asleep
IDLE_TICKS = 20  # ticks without a wait, after which the thread ends


@dataclass(frozen=True, slots=True)
class Session:
    """The server's view of one of its sessions."""

    pid: int
    age: float | None  # seconds since its statement started; None if the server does not track that
    is_working: bool  # on a statement, and not waiting for its client


Sessions = Sequence[Session]
ANSWERED: Sessions = (Session(0, None, True),)
"""The answer of a server that is alive but reveals nothing: it may be working for any line."""


def is_at_work(sessions: Sessions, backend: int | None, waited: float) -> bool:
    """Return whether a session works on the statement that a caller has been waiting for.

    `backend` is the process that serves the line. Behind a pooler it is unknown; then a session with a
    statement of about that age counts.
    """
    for session in sessions:
        if not session.is_working or session.pid not in (0, backend or session.pid):
            continue
        if session.age is None or (session.age <= waited + SLACK and (backend or session.age >= waited - SLACK)):
            return True
    return False


class WatchedLine:
    """The socket of a connection, and since when a caller waits on it.

    Use `with line:` around a wait.
    """

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
        # A duplicate, because libpq may close its descriptor at any time, and the next file opened
        # would get the same number: we would cut an innocent socket.
        self._fd = os.dup(fd) if os.name == "posix" else -1
        self._strikes = 0
        self.backend: int | None = None  # the process id of the session, if known
        self.since: float | None = None  # when the current wait started; None if nobody waits
        self.sign = 0.0  # when the last sign of life came
        self.lost: str | None = None  # why the line was cut
        self.silent_since: float | None = None  # since when, if it was cut for silence

    def begin(self) -> None:
        """Start waiting.

        No lock: this is called for every statement, and only one caller uses a line.
        """
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
        """Note a sign of life of the server."""
        self._strikes, self.sign = 0, max(self.sign, at)

    def strike(self) -> bool:
        """Note that the server denies working for this line; return whether to cut it."""
        self._strikes += 1
        return self._strikes >= STRIKES

    def has_unread(self) -> bool:
        """Return whether an unread answer has arrived: the reader is slow, not the server."""
        with self._lock:
            if self._fd < 0:
                return False
            with DefaultSelector() as selector:
                selector.register(self._fd, EVENT_READ)
                return bool(selector.select(0))

    def cut(self, why: str) -> None:
        """End every wait on this line, from any thread. Later waits fail at once."""
        with self._lock:
            if self._fd < 0 or self.lost is not None:
                return
            self.lost = why
            line = socket.socket(fileno=os.dup(self._fd))
        with line:
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:  # the connection is broken already, so every wait has ended
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
    """Watches the lines of a store, in a thread that runs only while there are waits."""

    def __init__(self, patience: Patience, probe: Callable[[], Probe], on_silence: Callable[[], None]) -> None:
        """Create a watch. `probe` starts a probe; `on_silence` is called after a line was cut."""
        self._patience, self._start_probe, self._on_silence = patience, probe, on_silence
        self._suspect_after = min(SUSPECT_AFTER, patience.silence / 3)
        self._tick = min(max(patience.silence / 20, SHORTEST_TICK), LONGEST_TICK)
        self._lock = threading.Lock()
        self._lines: weakref.WeakSet[WatchedLine] = weakref.WeakSet()
        self._probe: Probe | None = None
        self._looked = 0.0
        self.is_awake = False

    def add(self, fd: int) -> WatchedLine:
        """Return a watched line for the socket with that descriptor."""
        line = WatchedLine(fd, self)
        with self._lock:
            self._lines.add(line)
        return line

    def wake(self) -> None:
        """Start the watching thread, unless it runs."""
        with self._lock:
            if self.is_awake:
                return
            thread = threading.Thread(target=self._work, name="stepwell-silence", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is shutting down and starts no threads
                return
            self.is_awake = True

    def _work(self) -> None:
        idle, pause = 0, threading.Event()
        self._looked = time.monotonic()
        while True:
            pause.wait(self._tick)
            idle = 0 if self._look() else idle + 1
            if idle >= IDLE_TICKS:
                # Cleared before the last check: a wait that starts after the check starts a new
                # thread.
                self.is_awake = False
                if not self._waiting():
                    return
                with self._lock:
                    if self.is_awake:  # another thread was started meanwhile
                        return
                    self.is_awake = True

    def _waiting(self) -> list[WatchedLine]:
        with self._lock:
            return [line for line in self._lines if line.since is not None and line.lost is None]

    def _look(self) -> bool:
        """Check all lines once; return whether anybody waits."""
        waiting, now = self._waiting(), time.monotonic()
        # If this process itself stood still, the silence is not the server's: all lines get a fresh
        # start.
        if now - self._looked > STANDSTILL:
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
            # Looked at again: the wait may have ended during this tick.
            is_waiting = line.since is not None and line.lost is None
            if is_waiting and time.monotonic() >= self._patience.deadline(line.sign):
                line.silent_since = line.sign
                why = f"the server was silent for {now - line.sign:.1f} s"
                self._patience.note_silence(line.sign, TimeoutError(why))
                self._cut(line, why)
        return bool(waiting)

    def _ask(self, suspects: list[WatchedLine], now: float) -> None:
        """Start a probe for the suspects, or act on the result of the current one."""
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
            # The probe says nothing about a wait that started after it.
            if since is None or since > probe.began:
                continue
            if is_at_work(sessions, line.backend, probe.ended - since):
                line.alive(probe.began)
            elif line.strike():
                self._cut(line, "the server has lost the connection without closing it")

    def _cut(self, line: WatchedLine, why: str) -> None:
        line.cut(why)
        self._on_silence()


class Probe:
    """Asks a server what its sessions are doing, in a thread that may be abandoned."""

    def __init__(self, ask: Callable[[Probe], Sessions | None]) -> None:
        """Start the probe.

        `ask` returns None without an answer; it calls `on_line` once connected.
        """
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
        """Note the line of the probe, so that `give_up` can cut it."""
        self._line = line
        if self._given_up:
            line.cut("the probe connected too late")

    def give_up(self) -> None:
        """Abandon the probe and end its wait."""
        self._given_up = True
        if self._line is not None:
            self._line.cut("the probe took too long")

    def _work(self) -> None:
        self.sessions = self._ask(self)
        self.ended = time.monotonic()
