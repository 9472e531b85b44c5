"""An OpenTelemetry that remembers what it was told."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Watching:
    """What was told to an OpenTelemetry that a test set up."""

    def __init__(self, **options: Any) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(**options), MeterProvider([self._reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))

    def spans(self) -> list[ReadableSpan]:
        """Those that ended, in that order."""
        return list(self._exporter.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        [found] = [one for one in self.spans() if one.name == name]
        return found

    def metrics(self) -> dict[str, Any]:
        """Each metric by its name."""
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def counted(self, name: str) -> list[tuple[dict[str, Any], int]]:
        return [(dict(point.attributes), point.value) for point in self.metrics()[name].data.data_points]

    def timed(self, name: str) -> list[tuple[dict[str, Any], int]]:
        """With which attributes something was timed, and how often."""
        return [(dict(point.attributes), point.count) for point in self.metrics()[name].data.data_points]

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()


def use(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the program had set these providers; the real setting is for ever."""
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: watching.tracers)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: watching.meters)


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def id_of(span: ReadableSpan) -> int:
    found: int = span.context.span_id
    return found
