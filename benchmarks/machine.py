"""What the machine says about one process: time, processor time, bytes written, memory, and who else was busy."""

import os
import platform
import resource
import time
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters of this process and of the whole machine, all in seconds or bytes, at one moment."""

    wall: float
    cpu: float
    written: int
    machine_cpu: float


def read() -> Reading:
    return Reading(time.perf_counter(), time.process_time(), bytes_written(), machine_busy())


def bytes_written() -> int:
    """What this process has caused to be written to disks; 0 where the kernel does not count it."""
    try:
        counted = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    except OSError:
        return 0
    return int(counted["write_bytes"])


def machine_busy() -> float:
    """Seconds all processors together were busy since the machine started; 0 where nobody says."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, fields)
    return (user + nice + system + irq + softirq) / TICKS


def children_cpu(parent: int) -> float:
    """Seconds of a process, of those it started, and of those it started that have ended."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended meanwhile
        own, of_ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        if entry.name == str(parent):
            total += own + of_ended
        elif fields[1] == str(parent):
            total += own
    return total / TICKS


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def most_memory() -> int:
    """The most memory this process ever held, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def words() -> str:
    """The machine in general words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, {platform.system()}, {python}"
