"""Answers may be taken in several threads at once, each with an event loop of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

# msgspec finds out what a class is like when it first needs it; two threads that do so at once crash the process
PROGRAM = """
import faulthandler, sys, threading
from dataclasses import make_dataclass
from stepwell.storage.response_types import answer_as

faulthandler.enable()
sys.setswitchinterval(1e-6)
for n in range(400):
    inner = make_dataclass(f"Inner{n}", [("a", str), ("b", "int"), ("c", "str | None", None)])
    outer = make_dataclass(f"Outer{n}", [("a", "str"), ("of", inner)])
    found, together = [], threading.Barrier(4)

    def take():
        together.wait()
        found.append(answer_as({"a": "x", "of": {"a": "y", "b": n}}, [outer]).of.b)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [n] * 4
print("alive")
"""


def test_many_threads_may_take_the_first_answer_of_a_type() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr
