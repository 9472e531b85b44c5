"""Leases: which process drives a run, and for how long it may stay silent before others take over.

Processes of one machine compare leases by the time since boot, which they share and nobody can set.
So a wall clock that is wrong, or is corrected, takes no run away from a process that is alive. An
owner records the offset of its wall clock to that time, and a lease ends at a time of the owner's
wall clock; other machines have nothing better to compare with.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stepwell.errors import RunBusy
from stepwell.storage import clock
from stepwell.storage.posix import is_posix

LEASE = 30.0  # seconds, unless a storage sets another length
# Seconds. On a busy machine the renewing thread may be delayed for most of a second.
SHORTEST_LEASE = 1.0


def validate_lease(seconds: float) -> float:
    """Return the length of a lease in seconds.

    Raises ValueError unless it is a number and long enough.
    """
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not math.isfinite(seconds) or seconds < SHORTEST_LEASE:
        raise ValueError(
            f"lease must be a number of seconds, at least {SHORTEST_LEASE:g}, not {seconds!r}: a process that does "
            f"not renew for this long loses the runs it drives"
        )
    return float(seconds)


@dataclass(frozen=True, slots=True)
class Owner:
    """One process, and one drive of a run in it."""

    host: str
    machine: str  # boot id and pid namespace: the scope in which a pid can be looked up
    pid: int
    started: str  # start time of the process, so that a reused pid is not mistaken for it
    # The id of the drive and, after an @, the offset of the process's wall clock to the time since
    # boot; see `clock`.
    drive: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_this_process(self) -> bool:
        return (self.host, self.machine, self.pid, self.started) == _self(os.getpid())

    def is_dead(self) -> bool:
        """Return True only if the process ran on this machine and no longer does."""
        return self.machine == _machine() and process_start(self.pid) != self.started

    def clock(self) -> float:
        """Return what the wall clock of that process shows now, as well as it can be known here."""
        offset = _clock_offset(self.drive)
        # A replaced clock means a test that moves time: then all processes follow the test's clock.
        if offset is None or clock.is_replaced() or _boot(self.machine) != _boot(_machine()):
            return clock.seconds()
        return clock.since_boot() + offset


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it is stored."""

    owner: Owner
    until: float  # seconds since 1970, by the owner's clock; 0: its owner has ended it

    @property
    def was_released(self) -> bool:
        """Whether its owner has ended it, and has left the run in the middle."""
        return self.until == 0

    @property
    def left(self) -> float:
        """The seconds until it ends, if it is not renewed."""
        return self.until - self.owner.clock()

    def is_over(self) -> bool:
        # A dead owner on this machine is replaced at once; elsewhere its lease has to run out.
        return self.left < 0 or self.owner.is_dead()

    def busy_error(self, run_id: str) -> RunBusy:
        """The error for any other process that tries to acquire the run now."""
        return RunBusy(
            f"run {run_id!r} is being driven by {self.owner}; wait for it, or stop that process "
            f"(if it has died, its lease ends in {max(0.0, self.left):.0f} s)",
            run_id=run_id,
            owner=str(self.owner),
            holder=self.owner,
        )


def this_process(drive: str) -> Owner:
    """Return this process as an owner, for one drive."""
    return Owner(*_self(os.getpid()), f"{drive}{_clock_of(os.getpid())}")


def lease_end(seconds: float) -> float:
    """Return when a lease of this process ends that is acquired or renewed now."""
    return this_process("").clock() + seconds


@cache
def _clock_of(pid: int) -> str:
    """Return the offset of this process's wall clock to the time since boot, or nothing.

    Computed once per process, because it is part of the owner, and owners are compared.
    """
    return f"@{time.time() - clock.since_boot():.3f}" if _boot(_machine()) else ""


def _clock_offset(drive: str) -> float | None:
    try:
        return float(drive.rpartition("@")[2]) if "@" in drive else None
    except ValueError:  # a drive id of the caller's own, with an @ in it
        return None


def _boot(machine: str) -> str:
    """Return which boot of which machine it was; empty if unknown."""
    return machine.partition("/")[0] if "/" in machine else ""


@cache
def _self(pid: int) -> tuple[str, str, int, str]:
    """Look this process up once; a forked child has another pid, and so another cache entry."""
    return _host(), _machine(), pid, process_start(pid)


def _host() -> str:
    import socket  # lazy: 5 ms, which only a program that drives runs pays

    return socket.gethostname()


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux: fall back to the host name
        return _host()


def process_start(pid: int) -> str:
    """Return when a process started, as its system writes it; empty if there is no such process."""
    try:
        # The second field is the program's name in brackets and may contain anything, spaces and
        # brackets included, so the fields are counted from behind it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # A zombie has ended; its parent has not reaped it.
        return "" if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    if Path("/proc/self/stat").exists():  # /proc works, so the process is gone
        return ""
    if not is_posix():
        # On Windows, os.kill(pid, 0) would send Ctrl+C. Assume it lives; its lease will run out.
        return "alive"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
