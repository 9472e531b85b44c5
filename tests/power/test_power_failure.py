"""Wherever the power fails, the store opens, what was acknowledged is there, and the run goes on to the same end."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from tests.support import figures

from .conftest import Record, Recording
from .disk import Disk
from .failures import Failures, chosen, losses, losses_everywhere, prefixes
from .going_on import Trial
from .order import is_rebuilt
from .worker import KINDS

LONG = bool(os.environ.get("STEPWELL_LONG"))
AT_ONCE = 8
MOST, EVERY = (None, 1) if LONG else (80, 10)  # failures, and of these so many are gone on with


async def survive(recorded: Recording, failures: Failures, home: Path) -> Trial:
    trial = Trial(recorded.kind, recorded.calls, home, recorded.command(), EVERY)
    left = chosen(lambda: failures(recorded.calls, Disk(is_rebuilt)), MOST)
    while some := list(islice(left, AT_ONCE)):
        await trial.check(some)
    figures.note("states opened", trial.opened)
    figures.note("of them resumed", trial.gone_on)
    return trial


@pytest.mark.parametrize("kind", KINDS)
async def test_after_any_call(recording: Record, kind: str, tmp_path: Path) -> None:
    trial = await survive(recording(kind), prefixes, tmp_path / "failures")
    assert trial.opened >= (40 if kind.startswith("file") else 80), "a log is written with few calls"
    assert len(trial.seen) >= 20, "commits, memory and mail were there and not yet there"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_not_synced_may_be_lost(recording: Record, kind: str, tmp_path: Path) -> None:
    trial = await survive(recording(kind), losses_everywhere if LONG else losses, tmp_path / "failures")
    assert trial.opened >= 80
    assert len(trial.seen) >= 20, "commits, memory and mail were there and not yet there"


@pytest.mark.parametrize(
    ("kind", "fault"),
    [("sqlite", "synchronous=OFF"), ("file", "no fsync"), ("file", "no fsync of folders")],
)
async def test_a_store_that_does_not_sync_loses_something(
    recording: Record, kind: str, fault: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="the power failed when"):
        await survive(recording(kind, fault), losses, tmp_path / "failures")
