"""Counters of one process (time, CPU time, bytes written, memory), and the load of the whole machine."""

import os
import platform
import resource
import time
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters of this process and of the machine at one moment, in seconds or bytes."""

    wall: float
    cpu: float
    written: int
    machine_cpu: float


def read() -> Reading:
    return Reading(time.perf_counter(), time.process_time(), bytes_written(), machine_busy())


def bytes_written() -> int:
    """Return the bytes that all threads of this process passed to write calls; 0 if the kernel does not count them.

    `write_bytes` would count whole pages: a log that is synced after each record writes its last page again.
    """
    try:
        counted = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    except OSError:
        return 0
    return int(counted["wchar"])


def seconds_since_start() -> float:
    """Return the age of this process."""
    ticks = int(_stat("self")[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / TICKS


def used_by_children() -> float:
    """Return the CPU seconds of the processes that this one started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine_busy() -> float:
    """Return the seconds that all cores were busy since the machine started; 0 if that is not known."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, fields)
    return (user + nice + system + irq + softirq) / TICKS


def children_cpu(parent: int) -> float:
    """Return the CPU seconds of a process and of its children, including those that have exited."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = _stat(entry.name)
        except OSError:
            continue  # it has exited meanwhile
        own, of_ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        if entry.name == str(parent):
            total += own + of_ended
        elif fields[1] == str(parent):
            total += own
    return total / TICKS


def parent_of(process: int) -> int:
    return int(_stat(process)[1])


def _stat(process: int | str) -> list[str]:
    """Return the fields after the name of the program, which may contain spaces."""
    return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def most_memory() -> int:
    """Return the peak memory of this process, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def words() -> str:
    """Return a short description of the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, {platform.system()}, {python}"
