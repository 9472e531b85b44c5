"""What a worker reports of itself and of its store, for Prometheus and for OpenTelemetry."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stepwell.engine.events.telemetry import find_meter
from stepwell.errors import DurabilityError
from stepwell.model.status_words import SIGNALLED, status_word
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.filters import ReadyFilter

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

MOST_READY = 1000  # ready runs that are counted
_REFRESHED_EVERY = 15.0  # seconds, for OpenTelemetry: its callbacks cannot wait for a store


@dataclass(slots=True)
class Counters:
    """What a worker has done since it started."""

    drives: int = 0
    commits: int = 0
    refused_commits: int = 0
    refused_acquisitions: int = 0
    takeovers: int = 0
    failed_runs: int = 0


COUNTED = {
    "drives": "Drives of runs that have ended",
    "commits": "Commits of this worker",
    "refused_commits": "Commits that were refused because another process had acquired the run",
    "refused_acquisitions": "Runs that another process had acquired a moment before",
    "takeovers": "Runs that were acquired from a driver that had died or fallen silent",
    "failed_runs": "Runs that failed while this worker drove them",
}

Labels = tuple[tuple[str, str], ...]


class Metric(NamedTuple):
    """One metric: its name, what it means, and its value for each set of labels."""

    name: str
    meaning: str
    kind: Literal["counter", "gauge"]
    values: Mapping[Labels, float]


def measure_worker(counters: Counters, slots: int, busy: int) -> list[Metric]:
    """Return what is known without asking the store."""
    counts = (
        Metric(f"worker_{name}", meaning, "counter", {(): getattr(counters, name)}) for name, meaning in COUNTED.items()
    )
    return [
        *counts,
        Metric("worker_slots", "Runs that this worker drives at the same time, at most", "gauge", {(): slots}),
        Metric("worker_slots_busy", "Runs that this worker drives now", "gauge", {(): busy}),
    ]


async def measure_store(storage: BuiltInStorage) -> list[Metric]:
    """Return how much the store holds, and how long its ready runs have been waiting."""
    ready = await storage._store.ready(ReadyFilter(clock.stamp(), resting=SIGNALLED), limit=MOST_READY)
    oldest = min((run.wake or run.at for run in ready), default=None)
    age = 0.0 if oldest is None else max(0.0, (clock.now() - datetime.fromisoformat(oldest)).total_seconds())
    metrics = [
        Metric(
            "runs_ready",
            f"Runs that nobody drives and that could be driven, at most {MOST_READY}",
            "gauge",
            {(): len(ready)},
        ),
        Metric("runs_ready_age_seconds", "For how long the oldest of them has been ready", "gauge", {(): age}),
    ]
    if storage._statistics is not None:
        held = await storage._statistics.statistics()
        by_word = Counter[str]()
        for status, count in held.runs.items():
            by_word[status_word(status)] += count
        labelled: dict[Labels, float] = {(("status", word),): float(count) for word, count in sorted(by_word.items())}
        metrics.append(Metric("runs", "Runs in the store, by their newest commit", "gauge", labelled))
        metrics.append(Metric("requests_open", "Requests that wait for a response", "gauge", {(): held.open_requests}))
    return metrics


def to_prometheus(metrics: Iterable[Metric]) -> str:
    """Return metrics in the text format of Prometheus."""
    lines = []
    for metric in metrics:
        name = f"stepwell_{metric.name}" + ("_total" if metric.kind == "counter" else "")
        lines += [f"# HELP {name} {metric.meaning}.", f"# TYPE {name} {metric.kind}"]
        for labels, value in metric.values.items():
            text = ",".join(f'{label}="{_escape(content)}"' for label, content in labels)
            lines.append(f"{name}{f'{{{text}}}' if text else ''} {value:g}")
    return "\n".join([*lines, ""])


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class MetricsReporter:
    """Measures a worker and its store, and reports both to OpenTelemetry if the program has loaded it."""

    def __init__(self, storage: BuiltInStorage, counters: Counters, slots: int, driving: Mapping[str, Any]) -> None:
        self._storage, self._counters, self._slots, self._driving = storage, counters, slots, driving
        self._of_store: list[Metric] = []
        self._registered: set[str] = set()

    def of_worker(self) -> list[Metric]:
        return measure_worker(self._counters, self._slots, len(self._driving))

    async def all(self) -> list[Metric]:
        """Return all metrics, as they are now. Raises StoreUnavailable."""
        return [*self.of_worker(), *await measure_store(self._storage)]

    async def report(self) -> None:
        """Keep what OpenTelemetry asks for up to date, until cancelled; return at once if nobody asks."""
        meter = find_meter()
        while meter is not None:
            with suppress(DurabilityError):  # the loop that looks for runs reports it
                self._of_store = await measure_store(self._storage)
            for metric in (*self.of_worker(), *self._of_store):
                if metric.name not in self._registered:
                    self._registered.add(metric.name)
                    is_counter = metric.kind == "counter"
                    create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
                    create(f"stepwell.{metric.name}", [self._observer_of(metric.name)], description=metric.meaning)
            await asyncio.sleep(_REFRESHED_EVERY)

    def _observer_of(self, name: str) -> Any:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            from opentelemetry.metrics import Observation  # lazy: only called by a program that has loaded it

            metrics = {metric.name: metric for metric in (*self.of_worker(), *self._of_store)}
            return [Observation(value, dict(labels)) for labels, value in metrics[name].values.items()]

        return observe
