"""The thread that keeps claims alive leaves a store alone as soon as its run is let go."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from stepwell.engine.durability import lease_renewal as claims
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import LeaseReport


class SlowArchive:
    """Is asked for mail, and takes its time."""

    def __init__(self) -> None:
        self.where, self.lease = self, 30.0
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.answered = 0

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        self.asked.set()
        assert self.go_on.wait(60)
        self.answered += 1
        return LeaseReport()


def test_whoever_lets_a_run_go_can_wait_until_nobody_is_at_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_LOOK_EVERY", 0)
    archive: Any = SlowArchive()
    held = claims.HeldLease(archive, "r", this_process("mine"), lambda: None)
    renewer = claims._Renewer()
    renewer.add(held)
    assert archive.asked.wait(60)
    assert not renewer.drop(held)
    waiting = threading.Thread(target=renewer.wait, args=(held,))
    waiting.start()
    assert archive.answered == 0
    archive.go_on.set()
    waiting.join(60)
    assert archive.answered >= 1
    assert renewer.drop(held)
