"""Networks that can be cut: a namespace of its own for a process, and a cable to it. Only root may have one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OURS, THEIRS = "10.211.55.1", "10.211.55.2"
NEW_NETWORK = 0x40000000  # CLONE_NEWNET


@dataclass(frozen=True)
class Network:
    """A namespace, and the cable that leads there from the address OURS."""

    name: str

    @property
    def cable(self) -> str:
        return f"{self.name}o"

    def cut(self) -> None:
        """Whatever is sent is lost from now on, and nobody is told."""
        _ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self.cable, "up")


def missing() -> str | None:
    """Why there can be no such network here; None if there can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "only root may create a network namespace"
    try:
        with network():
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces cannot be created here: {error}"


@contextlib.contextmanager
def network() -> Iterator[Network]:
    made = Network(f"sw{uuid.uuid4().hex[:8]}")
    there = f"{made.name}i"
    _ip("netns", "add", made.name)
    try:
        _ip("link", "add", made.cable, "type", "veth", "peer", "name", there)
        _ip("link", "set", there, "netns", made.name)
        _ip("addr", "add", f"{OURS}/30", "dev", made.cable)
        _ip("link", "set", made.cable, "up")
        _ip("-n", made.name, "addr", "add", f"{THEIRS}/30", "dev", there)
        _ip("-n", made.name, "link", "set", there, "up")
        yield made
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", made.cable)
        _ip("netns", "del", made.name)


def enter(name: str) -> None:
    """Work in that network from now on. Before the process has threads: each has a network of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    file = os.open(Path("/run/netns") / name, os.O_RDONLY)
    try:
        if libc.setns(file, NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(file)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
