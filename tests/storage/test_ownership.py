"""Who is alive, who is dead, and who cannot be known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from stepwell.storage.lease import Lease, process_start, this_process


def test_this_process_is_alive_and_holds_what_it_claims() -> None:
    lease = Lease(this_process("d"), time.time() + 10)
    assert not lease.owner.is_dead()
    assert not lease.is_over()


def test_a_lease_ends_by_itself_even_if_its_owner_lives() -> None:
    assert Lease(this_process("d"), time.time() - 0.1).is_over()


@pytest.mark.process
def test_a_killed_process_is_dead_at_once_even_before_anybody_asked_how_it_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = replace(this_process("d"), pid=child.pid, started=process_start(child.pid))
    assert not owner.is_dead()
    os.kill(child.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while not owner.is_dead():
        assert time.monotonic() < deadline, "a zombie was taken for the living"
    assert Lease(owner, time.time() + 60).is_over()
    child.communicate()


def test_a_process_that_got_the_pid_of_a_dead_one_is_not_taken_for_it() -> None:
    assert replace(this_process("d"), started="1").is_dead()


def test_a_process_on_another_machine_is_never_called_dead() -> None:
    owner = replace(this_process("d"), machine="elsewhere", pid=1, started="0")
    assert not owner.is_dead()
    assert not Lease(owner, time.time() + 60).is_over()


def test_the_refusal_names_the_owner_and_says_what_to_do() -> None:
    error = Lease(this_process("d"), time.time() + 30).busy_error("run-7")
    assert "run-7" in str(error)
    assert f"process {os.getpid()}" in str(error)
    assert error.run_id == "run-7"
    assert str(os.getpid()) in error.owner
