"""Records what a real process does to its files, and reads such a recording."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCES = ("recorder.c", "recorder_writes.c", "recorder_names.c")
HEAD = struct.Struct("=ciqqII")
KINDS = {
    "O": "open",
    "C": "close",
    "W": "write",
    "T": "resize",
    "P": "resize by path",
    "V": "map",
    "S": "sync",
    "R": "rename",
    "L": "link",
    "U": "remove",
    "D": "make folder",
    "N": "set time",
    "M": "mark",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the recorded process. Paths are relative to the recorded folder."""

    what: str
    fd: int = -1
    number: int = 0  # flags, offset, length or time
    path: str = ""
    to: str = ""
    data: bytes = b""

    @property
    def mark(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.data)
        return found

    def __str__(self) -> str:
        if self.what == "mark":
            told = {key: value for key, value in self.mark.items() if key != "body"}
            return f"mark {told}"
        shown = [self.path, self.to, f"fd {self.fd}" if self.fd >= 0 else ""]
        size = f"{len(self.data)} bytes at {self.number}" if self.what == "write" else ""
        return " ".join(part for part in (self.what, *shown, size) if part)


def compiled(folder: Path) -> Path:
    """The recorder, ready to be loaded."""
    library = folder / "recorder.so"
    sources = [str(HERE / name) for name in SOURCES]
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), *sources, "-ldl", "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr}"
    return library


def record(library: Path, home: Path, *command: str) -> list[Call]:
    """What the program `python -m <command> ...` does below `home/disk`. The recording stays in `home/calls`."""
    disk, log = (home / "disk").resolve(), home / "calls"
    disk.mkdir(parents=True)
    env = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "RECORDER_ROOT": str(disk),
        "RECORDER_LOG": str(log),
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run([sys.executable, "-m", *command], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(command)} failed with {done.returncode}:\n{done.stderr}"
    (home / "root").write_text(str(disk))
    return read(home)


def read(home: Path) -> list[Call]:
    """The calls of a recording."""
    root, log = (home / "root").read_text(), (home / "calls").read_bytes()
    calls: list[Call] = []
    at = 0
    while at < len(log):
        kind, fd, number, _, one, two = HEAD.unpack_from(log, at)
        middle = at + HEAD.size + one
        first, second = log[at + HEAD.size : middle], log[middle : middle + two]
        calls.append(_call(kind.decode(), fd, number, first, second, root))
        at = middle + two
    return calls


def _call(kind: str, fd: int, number: int, first: bytes, second: bytes, root: str) -> Call:
    assert kind in KINDS, f"the recorder cannot describe this call: {first.decode()} {second.decode()}"
    if kind in "MW":
        return Call(KINDS[kind], fd, number, data=first)
    return Call(KINDS[kind], fd, number, _below(first, root), _below(second, root))


def _below(path: bytes, root: str) -> str:
    parts = [part for part in path.decode().removeprefix(root).split("/") if part not in ("", ".")]
    assert ".." not in parts, f"{path.decode()} leads out of its folder"
    return "/".join(parts)
