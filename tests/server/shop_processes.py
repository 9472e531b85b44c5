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

SHOP = """
import sys
from dataclasses import dataclass

from stepwell import (
    Executor, SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext, handler, response_handler,
)
from stepwell.worker import Worker

storage = SQLiteCheckpointStorage("runs.db")


@dataclass
class Order:
    item: str
    amount: int = 1


@dataclass
class Decision:
    granted: bool
    note: str = ""


class Desk(Executor):
    @handler
    async def take(self, order: Order, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_state("order", order)
        if order.amount > 10:
            raise ValueError(f"{order.amount} are too many")
        if order.amount > 1:
            await ctx.request_info(f"May {order.amount} {order.item} pass?", Decision, request_id="pass")
        else:
            await ctx.yield_output(f"one {order.item}")

    @response_handler
    async def decided(self, question: str, decision: Decision, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_state("granted", decision.granted)
        await ctx.yield_output("passed" if decision.granted else "held")


workflow = WorkflowBuilder(name="orders", start_executor=Desk("desk"), checkpoint_storage=storage).build()

if __name__ == "__main__":
    if sys.argv[1] == "work":
        Worker(storage, [workflow]).run()
    else:
        import uvicorn

        from stepwell.server import app

        uvicorn.run(app(storage, [workflow], auth=sys.argv[3]), port=int(sys.argv[2]), log_level="error")
"""


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def _process(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "shop.py").write_text(SHOP)
    command = dying_with_us([sys.executable, "shop.py", *arguments])
    process = subprocess.Popen(command, cwd=folder, env=os.environ, stderr=subprocess.DEVNULL)
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
