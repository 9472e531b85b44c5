"""Counts what the store holds, for everybody who asks: of a large store not more often than is needed."""

from __future__ import annotations

import asyncio
import time

from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.worker.metrics import Metric, measure_store

LARGE = 10_000  # runs; counting a million takes a quarter of a second
_KEPT = 5.0  # seconds


class KeptMetrics:
    """The metrics of a store. Those of a large one may be a few seconds old."""

    def __init__(self, storage: BuiltInStorage) -> None:
        self._storage = storage
        self._metrics: list[Metric] = []
        self._until = 0.0  # monotonic
        self._counting = asyncio.Lock()

    async def read(self) -> list[Metric]:
        async with self._counting:
            if time.monotonic() >= self._until:
                self._metrics = await measure_store(self._storage)
                runs = sum(sum(metric.values.values()) for metric in self._metrics if metric.name == "runs")
                self._until = time.monotonic() + _KEPT if runs > LARGE else 0.0
            return self._metrics
