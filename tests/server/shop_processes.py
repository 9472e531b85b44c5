"""Servers and workers as processes of their own, which tests kill."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.launching import dying_with_us

TOKEN = "a-token-that-nobody-guesses"

_ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def _process(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = dying_with_us([sys.executable, "-m", "tests.server.shop", *arguments])
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server on the store in a folder, which answers inside the block."""
    with _process(folder, "serve", str(port), TOKEN) as process:
        until = time.monotonic() + 30
        while time.monotonic() < until and process.poll() is None:
            with socket.socket() as trying:
                if trying.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield process


@contextmanager
def worker(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker for the store in a folder, which has announced itself."""
    with _process(folder, "work") as process:
        until = time.monotonic() + 30
        while time.monotonic() < until and str(process.pid) not in _workers(folder):
            time.sleep(0.05)
        yield process


def _workers(folder: Path) -> str:
    try:
        with closing(sqlite3.connect(f"file:{folder / 'runs.db'}?mode=ro", uri=True)) as store:
            return str(store.execute("SELECT body FROM workers").fetchall())
    except sqlite3.OperationalError:  # there is none yet
        return ""
