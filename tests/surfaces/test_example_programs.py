"""The programs under examples/ that people start from survive SIGKILL: each continues, and repeats nothing.

Each keeps a ledger with a line for every call of something outside. It is killed as soon as a certain line appears, so
that call is under way and may be made once more; all others are made once.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ANY_KEY = re.compile(r" [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
PATIENCE = 60.0  # seconds

pytestmark = pytest.mark.process


@dataclass(frozen=True)
class Program:
    name: str
    parts: tuple[str, ...]  # the second argument of each start, in turn
    killed_at: tuple[str, ...]  # for each part, the line of the ledger at which it is killed; "": it is not
    calls: tuple[str, ...]  # of systems outside, in all
    shows: str  # the last line that it prints


PROGRAMS = (
    Program(
        "durable_function",
        ("",),
        ("pack teapot",),
        ("charge ada 60", "pack lamp", "pack teapot", "pack clock", "ship 3 boxes to ada"),
        "3 boxes are on their way to ada",
    ),
    Program(
        "invoice_pipeline",
        ("",),
        ("i-1 paid",),
        (*(f"i-{number} {check}" for number in (1, 2, 3) for check in ("supplier", "limit", "fraud")), "i-1 paid"),
        "i-3: refused because of limit",
    ),
    Program(
        "support_agent",
        ("", "approve"),
        ("model 1", "model 2"),
        ("model 0", "look_up A7", "model 1", "refund A7 40", "model 2"),
        "I am sorry about the lamp. 40 were refunded for A7.",
    ),
    Program(
        "research_team",
        ("", "approve"),
        ("", "analyst"),
        ("researcher", "analyst", "writer"),
        "We sold 512 lamps, 28 percent more than last year.",
    ),
    Program(
        "code_migration",
        ("1", "2"),
        ("price p-1", "ship p-1"),
        ("weigh p-1", "price p-1", "insure p-1", "ship p-1"),
        "p-1 is on its way to Lisbon for 1200 cents",
    ),
)


def start(name: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})


def wait_until(condition: Callable[[], object]) -> None:
    patience = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.01)


def ledger(folder: Path) -> list[str]:
    book = folder / "ledger.txt"
    return [ANY_KEY.sub("", line) for line in book.read_text().splitlines()] if book.exists() else []


def kill_at(program: subprocess.Popen[str], folder: Path, line: str) -> None:
    with program:
        wait_until(lambda: line in ledger(folder) or program.poll() is not None)
        assert program.poll() is None, "it ended before it could be killed"
        program.kill()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_that_is_killed_continues_and_repeats_nothing(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    printed = ""
    for part, killed_at in zip(program.parts, program.killed_at, strict=True):
        arguments = [str(folder), *([part] if part else [])]
        if killed_at:
            kill_at(start(program.name, *arguments), folder, killed_at)
        printed, _ = start(program.name, *arguments).communicate(timeout=PATIENCE)
    assert printed.splitlines()[-1] == program.shows
    made, under_way = Counter(ledger(folder)), set(program.killed_at)
    assert set(made) == set(program.calls)
    assert {call for call, times in made.items() if times > (2 if call in under_way else 1)} == set()


def test_a_service_that_is_killed_continues_and_repeats_nothing(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/refunds/a7"

    def serve() -> subprocess.Popen[str]:
        return start("fastapi_service", str(tmp_path), str(port))

    def get(client: httpx.Client) -> dict[str, object]:
        try:
            answer: dict[str, object] = client.get(address).json()
        except httpx.TransportError:  # it has not started yet
            return {}
        return answer

    with httpx.Client() as client:
        first = serve()
        wait_until(lambda: get(client))
        assert client.get(address).status_code == 404
        for _ in range(2):  # the second call changes nothing
            assert client.put(address, params={"amount": 40}).json() == {"run": "a7"}
        kill_at(first, tmp_path, "assess a7")
        with serve() as second:
            wait_until(lambda: get(client).get("standing") == "waiting")
            decided = client.post(f"{address}/decision", json={"approved": True, "by": "ada"})
            assert decided.status_code == 202
            kill_at(second, tmp_path, "pay a7")
        with serve() as third:
            wait_until(lambda: get(client).get("standing") == "completed")
            assert get(client)["outputs"] == ["refunded"]
            runs = client.get(
                f"http://127.0.0.1:{port}/stepwell/api/v1/runs",
                headers={"Authorization": "Bearer a long secret of your own"},
            ).json()
            assert [run["run_id"] for run in runs["runs"]] == ["a7"]
            third.kill()
    made = Counter(ledger(tmp_path))
    assert made["look up a7"] == 1
    assert set(made) == {"look up a7", "assess a7", "pay a7"}
    assert max(made["assess a7"], made["pay a7"]) <= 2
