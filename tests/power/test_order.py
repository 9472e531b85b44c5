"""Each acknowledgement comes after the sync of all that it says: in the calls of a real process."""

from __future__ import annotations

import pytest

from stepwell.stores.files.layout import run_name

from .conftest import Record
from .order import order_of
from .story import RUN
from .worker import KINDS

LOG = f"made/runs/runs/{run_name(RUN)}"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_acknowledged_was_synced_before(recording: Record, kind: str) -> None:
    recorded = recording(kind)
    order = order_of(recorded.calls)
    assert not order.broken, "\n".join([*order.broken, f"the same again: {recorded.command()}"])
    assert order.acknowledged["append"] == 11
    assert order.acknowledged["send"] == 2
    assert order.acknowledged["write_log"] >= 8, "steps, and handlers that returned before their siblings"
    assert order.alone >= 15, "most of them while nothing else was under way"
    if kind.startswith("sqlite"):
        assert order.resets >= 6, "the WAL was begun anew, and removed"


@pytest.mark.parametrize(
    ("kind", "fault", "at_risk"),
    [
        ("sqlite", "synchronous=OFF", "the content of made/runs.db-wal"),
        ("sqlite", "synchronous=OFF", "made/runs.db was not synced before"),
        ("sqlite", "synchronous=NORMAL", "the content of made/runs.db-wal"),
        ("file", "no fsync", f"the content of {LOG}"),
        ("file", "no fsync of folders", f"the name {LOG}"),
        ("file-latest", "no fsync", f"the content of {LOG}"),
        ("file-latest", "no fsync of folders", f"the name {LOG}"),
    ],
)
def test_a_store_that_does_not_sync_is_found_out(recording: Record, kind: str, fault: str, at_risk: str) -> None:
    broken = order_of(recording(kind, fault).calls).broken
    assert any(at_risk in line for line in broken), f"not found out; instead {broken}"
