"""Who drives a run: a process, told apart from any other that ever was, and how long it may stay silent."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..core.errors import RunBusy
from . import clock


@dataclass(frozen=True, slots=True)
class Owner:
    """One process, and the one drive of a run in it. Stored as plain text fields."""

    host: str
    machine: str  # boot and process-id space: inside it, a pid can be looked up
    pid: int
    started: str  # the start time of the process, so that a reused pid is not taken for it
    drive: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_this_process(self) -> bool:
        return (self.host, self.machine, self.pid, self.started) == _self(os.getpid())

    def is_dead(self) -> bool:
        """True only if the process is known to be gone: it lived on this machine and is not there any more."""
        return self.machine == _machine() and process_start(self.pid) != self.started


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim as it is stored."""

    owner: Owner
    until: float  # seconds since the epoch

    def is_over(self) -> bool:
        return self.until < clock.seconds() or self.owner.is_dead()

    def refuse(self, run_id: str) -> RunBusy:
        """The error for whoever else wants the run now."""
        return RunBusy(
            f"run {run_id!r} is being driven by {self.owner}; wait for it, or stop that process "
            f"(its claim ends by itself {max(0.0, self.until - clock.seconds()):.0f} s after it last gave a sign)",
            run_id=run_id,
            owner=str(self.owner),
            holder=self.owner,
        )


def this_process(drive: str) -> Owner:
    """This process as an owner, for one drive."""
    return Owner(*_self(os.getpid()), drive)


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
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
