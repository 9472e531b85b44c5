"""Who drives a run: a process, told apart from any other that ever was, and how long it may stay silent.

Processes of one machine compare leases by the time since it was started, which they share and nobody can set. So a wall
clock that is wrong, or is put right, takes no run from a process that is alive. An owner says how its wall clock
stood to that time, and a lease is written as a time of the owner's wall clock: for other machines, that has to do.
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
from stepwell.storage.system import is_posix

LEASE = 30.0  # seconds, unless a storage says otherwise
SHORTEST_LEASE = 1.0  # seconds; a process on a busy machine may not give a sign for most of one


def validate_lease(seconds: float) -> float:
    """Return the length of a lease in seconds. Raises ValueError unless it is a number and long enough."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not math.isfinite(seconds) or seconds < SHORTEST_LEASE:
        raise ValueError(
            f"lease must be a number of seconds, at least {SHORTEST_LEASE:g}, not {seconds!r}: a process that gives "
            f"no sign of life for this long loses the runs it drives"
        )
    return float(seconds)


@dataclass(frozen=True, slots=True)
class Owner:
    """One process, and the one drive of a run in it. Stored as plain text fields."""

    host: str
    machine: str  # boot and process-id space: inside it, a pid can be looked up
    pid: int
    started: str  # the start time of the process, so that a reused pid is not taken for it
    drive: str  # and, after an @, what to add to the time since boot to have the wall clock of the process

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_this_process(self) -> bool:
        return (self.host, self.machine, self.pid, self.started) == _self(os.getpid())

    def is_dead(self) -> bool:
        """True only if the process is known to be gone: it lived on this machine and is not there any more."""
        return self.machine == _machine() and process_start(self.pid) != self.started

    def clock(self) -> float:
        """What the wall clock of that process shows now, as far as it can be known here."""
        offset = _clock_offset(self.drive)
        if offset is None or clock.is_replaced() or _boot(self.machine) != _boot(_machine()):
            return clock.seconds()
        return clock.since_boot() + offset


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim as it is stored."""

    owner: Owner
    until: float  # seconds since the epoch, by the clock of the owner

    @property
    def left(self) -> float:
        """For how many seconds it holds, if it is not renewed."""
        return self.until - self.owner.clock()

    def is_over(self) -> bool:
        return self.left < 0 or self.owner.is_dead()

    def refuse(self, run_id: str) -> RunBusy:
        """The error for whoever else wants the run now."""
        return RunBusy(
            f"run {run_id!r} is being driven by {self.owner}; wait for it, or stop that process "
            f"(its claim ends by itself {max(0.0, self.left):.0f} s after it last gave a sign)",
            run_id=run_id,
            owner=str(self.owner),
            holder=self.owner,
        )


def this_process(drive: str) -> Owner:
    """This process as an owner, for one drive."""
    return Owner(*_self(os.getpid()), f"{drive}{_clock_of(os.getpid())}")


def lease_end(seconds: float) -> float:
    """When a lease of this process ends that is given or renewed now."""
    return this_process("").clock() + seconds


@cache
def _clock_of(pid: int) -> str:
    """How the wall clock of this process stands to the time since boot; nothing where there is no such time.

    Looked up once per process, so that an owner stays the same.
    """
    return f"@{time.time() - clock.since_boot():.3f}" if _boot(_machine()) else ""


def _clock_offset(drive: str) -> float | None:
    try:
        return float(drive.rpartition("@")[2]) if "@" in drive else None
    except ValueError:  # somebody else's name for a drive
        return None


def _boot(machine: str) -> str:
    """Which start of which machine it was; empty if that is not known."""
    return machine.partition("/")[0] if "/" in machine else ""


@cache
def _self(pid: int) -> tuple[str, str, int, str]:
    """Looked up once per process; a forked child asks with another pid."""
    return _host(), _machine(), pid, process_start(pid)


def _host() -> str:
    import socket  # only whoever drives a run needs it

    return socket.gethostname()


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # no such files outside Linux: the host name has to do
        return _host()


def process_start(pid: int) -> str:
    """When a process started, in its system's own words; empty if there is no such process."""
    try:
        # the second field is the program's name in brackets and may hold anything; count after it
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]  # a zombie has ended, only nobody has asked how
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return ""
    if not is_posix():  # to ask for signal 0 is to interrupt a process there: its lease has to run out
        return "alive"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
