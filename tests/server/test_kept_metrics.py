"""What a large store holds is not counted at every request."""

from __future__ import annotations

import pytest

from stepwell import InMemoryCheckpointStorage
from stepwell.server import kept_metrics
from stepwell.server.kept_metrics import KeptMetrics
from tests.support.operating_runs import counting


async def test_a_large_store_is_counted_now_and_then_and_a_small_one_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = InMemoryCheckpointStorage()
    kept = KeptMetrics(storage)

    async def count() -> float:
        return sum(sum(metric.values.values()) for metric in await kept.read() if metric.name == "runs")

    for expected in (1, 2):
        await counting(storage).submit(1)
        assert await count() == expected
    monkeypatch.setattr(kept_metrics, "LARGE", 2)
    for expected in (3, 3):
        await counting(storage).submit(1)
        assert await count() == expected
