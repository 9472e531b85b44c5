"""`stepwell worker` and `stepwell workers` in processes of their own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from stepwell.admin.retention.policy import Keep
from stepwell.worker import Worker, shutdown
from tests.support.command_line import Place, Say, ran

CODE = """
from stepwell import WorkflowBuilder, WorkflowContext, executor

@executor(id="greet")
async def greet(name: str, ctx: WorkflowContext[None, str]) -> None:
    await ctx.yield_output(f"hello {name}")

workflow = WorkflowBuilder(name="greeting", start_executor=greet).build()
"""


@contextmanager
def working(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "stepwell.cli", "worker", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.process
def test_a_worker_drives_what_is_submitted_and_leaves_when_told(place: Place, say: Say) -> None:
    Path("greeting.py").write_text(CODE)
    with working("greeting:workflow", "--name", "one", "--slots", "3", "--store", place.address) as process:
        until(lambda: '"name": "one"' in ran("workers", "--json", "--store", place.address).stdout)
        listed = say("workers", "--store", place.address)
        assert listed.exit_code == 0
        assert "alive" in listed.output
        assert "0 of 3" in listed.output
        assert "greeting@1" in listed.output
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
        assert process.returncode == 0
    assert "worker 'one' drives 'greeting', 3 at a time" in log
    assert "worker 'one' has left" in log
    assert "the store has no workers" in say("workers", "--store", place.address).output


@pytest.mark.process
def test_a_worker_answers_those_who_watch_over_it() -> None:
    Path("greeting.py").write_text(CODE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def is_ready() -> bool:
        try:
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/ready").status == 200)
        except OSError:
            return False

    with working("greeting:workflow", "--listen", f"127.0.0.1:{port}", "--store", "sqlite:///runs.db"):
        until(is_ready)
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    assert "stepwell_worker_slots 50\n" in metrics


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "Missing argument 'MODULE:WORKFLOW...'"),
        (("greeting:nothing",), 5, "module 'greeting' has no 'nothing'"),
        (("greeting:workflow", "--slots", "0"), 2, "0 is not in the range x>=1"),
        (("greeting:workflow", "--lease", "0.5"), 1, "lease must be a number of seconds, at least 1"),
        (("greeting:workflow", "--grace", "-1"), 1, "grace must be a number of seconds, 0 or more"),
        (("greeting:workflow", "--listen", "9100"), 2, "'9100' is not of the form HOST:PORT"),
        (("greeting:workflow", "--listen", "host:port"), 2, "is not of the form HOST:PORT"),
        (("greeting:workflow", "--prune", "30d"), 2, "'30d' is not of the form 'older-than 30d'"),
        (("greeting:workflow", "greeting:workflow"), 1, "two workflows are named 'greeting'"),
    ],
)
def test_what_cannot_work_is_said(arguments: tuple[str, ...], code: int, words: str, say: Say) -> None:
    Path("greeting.py").write_text(CODE)
    result = say("worker", *arguments, "--store", "sqlite:///runs.db")
    assert result.exit_code == code, result.output
    assert words in result.output


@pytest.mark.process
def test_what_is_submitted_is_stored_with_its_priority_and_driven_by_a_worker(place: Place, say: Say) -> None:
    Path("greeting.py").write_text(CODE)
    for run_id, priority in (("a", "0"), ("b", "-5"), ("c", "7")):
        options = ["--run-id", run_id, "--priority", priority, "--store", place.address]
        submitted = say("submit", "greeting:workflow", "--input", "ada", *options)
        assert (submitted.exit_code, submitted.stdout) == (0, f"{run_id}\n"), submitted.output
    listed = json.loads(say("list", "--json", "--store", place.address).stdout)["runs"]
    assert {run["run_id"]: (run["status"], run["priority"]) for run in listed} == {
        "a": ("queued", 0),
        "b": ("queued", -5),
        "c": ("queued", 7),
    }
    assert json.loads(say("show", "c", "--json", "--store", place.address).stdout)["priority"] == 7
    assert "priority      7" in say("show", "c", "--store", place.address).stdout
    with working("greeting:workflow", "--store", place.address):
        until(lambda: say("list", "--status", "completed", "--store", place.address).stdout.count("greeting") == 3)


def test_a_priority_that_no_run_can_have_is_refused(place: Place, say: Say) -> None:
    Path("greeting.py").write_text(CODE)
    refused = say(
        "submit", "greeting:workflow", "--input", "ada", "--priority", "101", "--store", place.address
    )  # fmt: skip
    assert refused.exit_code == 2
    assert "priority must be a whole number from -100 to 100, not 101" in refused.output


def test_cleaning_up_can_be_left_to_a_worker(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("greeting.py").write_text(CODE)
    policies: list[Keep | None] = []

    async def serve(worker: Worker) -> None:
        policies.append(worker._policy)

    monkeypatch.setattr(Worker, "serve", serve)
    monkeypatch.setattr(shutdown, "exit_soon", lambda code: None)
    for arguments in ((), ("--prune", "older-than 30d")):
        result = say("worker", "greeting:workflow", *arguments, "--store", "sqlite:///runs.db")
        assert result.exit_code == 0, result.output
    assert policies == [None, Keep(age=timedelta(days=30))]
